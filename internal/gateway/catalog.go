package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Model is one model that organizations can call; docs/contract.md#models describes its public fields.
type Model struct {
	// ID is the public id, "<provider>/<model>".
	ID string
	// Provider names the [ProviderEntry] that serves the model.
	Provider string
	// Upstream is the vendor's name of the model.
	Upstream string

	DisplayName, FriendlyName, Tier, OwnedBy string
	// Created is in Unix seconds.
	Created  int64
	VNHosted bool

	// ContextWindow is the size of the context in tokens.
	ContextWindow int64
	// MaxOutputTokens limits the tokens that a request can have generated.
	MaxOutputTokens int64
	// ReserveMaxOutput: a call reserves the price of MaxOutputTokens, also if it requests fewer.
	ReserveMaxOutput bool
	// LiveOnly: keys of the test environment can't use the model; see [Model.OpenTo].
	LiveOnly bool
	// Reasoning: the model generates hidden tokens, which only the usage at the end of its answer counts.
	Reasoning bool
	// MaxTokensField is the name of max_tokens upstream.
	MaxTokensField string
	Price          billing.Price
}

// OpenTo reports whether calls of an environment can use the model. A closed model isn't listed, and is unknown like any other.
func (m *Model) OpenTo(env store.Env) bool { return !m.LiveOnly || env != store.Test }

// KeyMode says which secret a provider is called with when the call brings none of its own.
type KeyMode int

// The ways a provider's `api_key` can be configured.
const (
	// KeyMissing: only calls with the organization's own key are possible; others end as provider_error.
	KeyMissing KeyMode = iota
	// KeyOperator: the operator's key is sent.
	KeyOperator
	// KeyNone: no Authorization is sent (`api_key none`).
	KeyNone
)

// ProviderEntry is a configured model vendor.
type ProviderEntry struct {
	Name     string
	Provider providers.Provider
	KeyMode  KeyMode
	// APIKey is the operator's secret when KeyMode is KeyOperator.
	APIKey string
	// MaxDuration bounds a whole call; its hold lives that long and HoldTTL more.
	MaxDuration time.Duration
	// MaxCalls limits the calls that run in this process. 0 means unlimited.
	MaxCalls int
	// SendTraceparent: the vendor gets the trace context of traced requests.
	SendTraceparent bool
}

// Catalog is the set of models and providers of one configuration. It is immutable: a call keeps the catalog with which it
// began, whatever a reload changes.
type Catalog struct {
	models    []Model
	byID      map[string]*Model
	providers map[string]*ProviderEntry
}

// NewCatalog checks that ids are unique and that every model's provider exists; all faults are joined in the error.
func NewCatalog(models []Model, entries []ProviderEntry) (*Catalog, error) {
	c := &Catalog{
		models:    slices.Clone(models),
		byID:      make(map[string]*Model, len(models)),
		providers: make(map[string]*ProviderEntry, len(entries)),
	}
	var faults []error
	for i := range entries {
		entry := entries[i]
		entry.Provider = providers.WithDeadline(entry.Provider, entry.MaxDuration)
		if c.providers[entry.Name] != nil {
			faults = append(faults, fmt.Errorf("provider %q is configured twice", entry.Name))
		}
		c.providers[entry.Name] = &entry
	}
	slices.SortFunc(c.models, func(a, b Model) int { return strings.Compare(a.ID, b.ID) })
	for i := range c.models {
		m := &c.models[i]
		if c.byID[m.ID] != nil {
			faults = append(faults, fmt.Errorf("model %q is configured twice", m.ID))
		}
		if c.providers[m.Provider] == nil {
			faults = append(faults, fmt.Errorf("model %q names the unknown provider %q", m.ID, m.Provider))
		}
		c.byID[m.ID] = m
	}
	return c, errors.Join(faults...)
}

// Models returns all models sorted by id. The slice is the catalog's own and must not be changed.
func (c *Catalog) Models() []Model { return c.models }

// share returns how many of n places one provider may take: three quarters, or all when it is the only one.
func (c *Catalog) share(n int) int {
	if len(c.providers) < 2 {
		return n
	}
	return n - n/4
}

// Model finds a model by its public id.
func (c *Catalog) Model(id string) (*Model, bool) {
	m, ok := c.byID[id]
	return m, ok
}
