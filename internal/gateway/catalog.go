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
	// LiveOnly means that keys of the test environment can't use the model; see [Model.OpenTo].
	LiveOnly bool
	// Reasoning means that the model generates hidden tokens, which are counted only in the usage at the end of its answer.
	Reasoning bool
	// MaxTokensField is the vendor's name of max_tokens.
	MaxTokensField string
	Price          billing.Price
}

// OpenTo reports whether calls of an environment can use the model. A closed model isn't listed and counts as unknown.
func (m *Model) OpenTo(env store.Env) bool { return !m.LiveOnly || env != store.Test }

// KeyMode is the source of a provider's secret for calls without a key of their own.
type KeyMode int

// The ways a provider's `api_key` can be configured.
const (
	// KeyMissing allows only calls with the organization's own key. Other calls end as provider_error.
	KeyMissing KeyMode = iota
	// KeyOperator means that the operator's key is sent.
	KeyOperator
	// KeyNone means that no Authorization is sent (`api_key none`).
	KeyNone
)

// ProviderEntry is a configured model vendor.
type ProviderEntry struct {
	Name     string
	Provider providers.Provider
	KeyMode  KeyMode
	// APIKey is the operator's secret when KeyMode is KeyOperator.
	APIKey string
	// MaxDuration limits a whole call. Its hold lives that long and HoldTTL more.
	MaxDuration time.Duration
	// MaxCalls limits the calls that run in this process. 0 means unlimited.
	MaxCalls int
	// SendTraceparent: the vendor gets the trace context of traced requests.
	SendTraceparent bool
}

// Catalog is the set of models and providers of one configuration. It is immutable: a call keeps its catalog even if the
// configuration is reloaded.
type Catalog struct {
	models    []Model
	byID      map[string]*Model
	providers map[string]*ProviderEntry
}

// NewCatalog checks that ids are unique and that every model's provider exists. The error joins all faults.
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

// Models returns all models sorted by id. Callers must not change the slice.
func (c *Catalog) Models() []Model { return c.models }

// share returns the number of n places that one provider may use: three quarters, or all if there is no other provider.
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
