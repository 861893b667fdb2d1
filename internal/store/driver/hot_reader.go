package driver

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"
)

// HotReader reads the rows that every request needs: its key and its organization's models, or the channels of a delivery. Each look-up
// returns the rows that were committed when it began, so a revocation, a suspension or a disabled model holds at the very next request on
// every node. The texts of routes are valid for PostgreSQL.
type HotReader interface {
	// Key reads the API key with a SHA-256 hash, and false when there is none.
	Key(ctx context.Context, hash [32]byte) (KeyRecord, bool, error)
	// Models reads the models that an organization has switched on or off.
	Models(ctx context.Context, orgID string) (map[string]bool, error)
	// ProviderKey reads the sealed key of an organization at a provider, and false when there is none.
	ProviderKey(ctx context.Context, id ProviderKeyID) (sealed []byte, found bool, err error)
	// Route reads the route of a channel, and false when there is none.
	Route(ctx context.Context, channelID string) (*Route, bool, error)
	// Routes adds the routes of up to MaxRouteKeys keys to found.
	Routes(ctx context.Context, keys []RouteKey, found map[RouteKey]*Route) error
	// Windows counts requests for several processes. It is nil on SQLite, because the gateway is one process there and counts in memory.
	Windows() Windows
	// Close waits for the lookups that run, and refuses later ones with ErrClosed.
	Close() error
}

// KeyRecord is an API key with the state of its organization that decides about a request.
type KeyRecord struct {
	KeyID, OrgID string
	Hash         [32]byte // of the raw key, to be compared in constant time
	Env          Env
	Scopes       string        // space separated
	ExpiresAt    sql.NullInt64 // epoch milliseconds, as the others
	RevokedAt    sql.NullInt64
	Plan         string
	SuspendedAt  sql.NullInt64
	Models       KeyModels
	// RequestsPerMinute and MaxConcurrent are the key's own bounds; 0 means none.
	RequestsPerMinute, MaxConcurrent int64
	NowMS                            int64 // the database's clock when the key was read
	// HasOrgModels reports whether the organization has rows in org_models; if not, store.Organizations.Models is empty.
	HasOrgModels bool
	// BudgetVersion counts the changes of the organization's budgets. 0 means that it never had one.
	BudgetVersion int64
	// Permit is set when a request was counted with the look-up, see [Windows].
	Permit Permit
}

// KeyModels are the models that a key may use, a line for each. NULL, as in the zero value, means all models.
type KeyModels struct{ sql.NullString }

// NewKeyModels returns the models with some ids; nil means all models.
func NewKeyModels(ids []string) KeyModels {
	return KeyModels{sql.NullString{String: strings.Join(ids, "\n"), Valid: ids != nil}}
}

// List returns the ids of the models, or nil for all models.
func (m KeyModels) List() []string {
	switch {
	case !m.Valid:
		return nil
	case m.String == "":
		return []string{}
	}
	return strings.Split(m.String, "\n")
}

// Allow reports whether a model is among the models.
func (m KeyModels) Allow(id string) bool {
	if !m.Valid {
		return true
	}
	for one := range strings.SplitSeq(m.String, "\n") {
		if one == id {
			return true
		}
	}
	return false
}

// The columns of a key lookup, and the tables they come from.
const (
	KeyColumns = `k.hash, k.id, k.org_id, k.env, k.scopes, k.expires_at, k.revoked_at, k.models,
	COALESCE(k.requests_per_minute, 0) AS requests_per_minute, COALESCE(k.max_concurrent, 0) AS max_concurrent,
	o.plan, o.suspended_at, o.budget_version,
	EXISTS (SELECT 1 FROM org_models m WHERE m.org_id = k.org_id)`
	KeyTables = ` FROM api_keys k JOIN organizations o ON o.id = k.org_id WHERE k.hash `
)

// ScanKey reads KeyColumns, and more columns after them.
func ScanKey(row Row, record *KeyRecord, more ...any) error {
	var hash []byte
	columns := append([]any{
		&hash, &record.KeyID, &record.OrgID, &record.Env, &record.Scopes, &record.ExpiresAt, &record.RevokedAt,
		&record.Models.NullString, &record.RequestsPerMinute, &record.MaxConcurrent,
		&record.Plan, &record.SuspendedAt, &record.BudgetVersion, &record.HasOrgModels,
	}, more...)
	if err := row.Scan(columns...); err != nil {
		return err
	}
	copy(record.Hash[:], hash)
	return nil
}

// ProviderKeyID identifies an organization's own key at a provider.
type ProviderKeyID struct{ OrgID, Provider string }

// RouteKey is how a platform names the channel of a delivery.
type RouteKey struct{ Type, ExternalID string }

// Lookable reports whether a channel may have the key: one without an external id has none, and PostgreSQL can't even
// be asked for a text that it can't keep.
func (k RouteKey) Lookable() bool {
	return k.ExternalID != "" && IsText(k.Type) && IsText(k.ExternalID)
}

// Route has the columns of a channel that a webhook needs. Its readers share it and must not change it.
type Route struct {
	ChannelID, OrgID, Type, ExternalID, State string

	Credentials []byte // sealed; nil is none
	// These are the times of the channel's agent in milliseconds, see store.Agent. They are 0 if the channel has no
	// agent.
	DebounceMS, DebounceMaxMS, PauseMS int64

	// Remembered: the route was read for an earlier delivery, and may have changed since.
	Remembered bool
}

// Same reports whether both routes have the same columns.
func (r *Route) Same(other *Route) bool {
	return r.ChannelID == other.ChannelID && r.OrgID == other.OrgID && r.Type == other.Type && r.ExternalID == other.ExternalID &&
		r.State == other.State && bytes.Equal(r.Credentials, other.Credentials) &&
		r.DebounceMS == other.DebounceMS && r.DebounceMaxMS == other.DebounceMaxMS && r.PauseMS == other.PauseMS
}

// MaxRouteKeys bounds the keys of one query of store.Routes.ByKeys, so that one delivery doesn't keep the others waiting.
const MaxRouteKeys = 1000

// RouteReader shares look-ups of routes: all requests during a look-up go with the next one. It also saves each delivery of a crowd a read
// transaction of its own on SQLite.
type RouteReader struct {
	byIDs  Coalescer[string, *Route]
	byKeys Coalescer[RouteKey, *Route]
}

// NewRouteReader returns a reader that shares look-ups. byIDs and byKeys leave out routes that don't exist. patience bounds the wait of a
// look-up; 0 means unlimited.
func NewRouteReader(
	byIDs func(channelIDs map[string]int64) (map[string]*Route, error), byKeys func(keys map[RouteKey]int64) (map[RouteKey]*Route, error),
	patience time.Duration,
) *RouteReader {
	return &RouteReader{
		byIDs:  Coalescer[string, *Route]{Fetch: byIDs, Patience: patience},
		byKeys: Coalescer[RouteKey, *Route]{Fetch: byKeys, Patience: patience},
	}
}

// Route implements [HotReader].
func (r *RouteReader) Route(ctx context.Context, channelID string) (*Route, bool, error) {
	return r.byIDs.Get(ctx, channelID)
}

// Routes implements [HotReader].
func (r *RouteReader) Routes(ctx context.Context, keys []RouteKey, found map[RouteKey]*Route) error {
	return r.byKeys.getAll(ctx, keys, found)
}

// Close waits for the lookups that run, and refuses later ones.
func (r *RouteReader) Close() {
	r.byIDs.Close()
	r.byKeys.Close()
}

// The columns of a route lookup, and the tables they come from.
const (
	RouteColumns = `c.id, c.org_id, c.type, c.external_id, c.state, c.credentials,
	COALESCE(a.debounce_ms, 0), COALESCE(a.debounce_max_ms, 0), COALESCE(a.pause_ms, 0)`
	RouteTables = ` channels c LEFT JOIN agents a ON a.id = c.agent_id AND a.org_id = c.org_id `
)

// ScanRoute reads RouteColumns.
func ScanRoute(row Row) (*Route, error) {
	route := &Route{}
	err := row.Scan(&route.ChannelID, &route.OrgID, &route.Type, &route.ExternalID, &route.State, &route.Credentials,
		&route.DebounceMS, &route.DebounceMaxMS, &route.PauseMS)
	return route, err
}

// Key returns the key that finds the route.
func (r *Route) Key() RouteKey { return RouteKey{r.Type, r.ExternalID} }

// Windows counts requests in windows of one minute of the database's clock, for all processes that share the database. A window admits no
// more than the limit. Requests that arrive during a count share the next round trip. Counts are durable. An error may come after the
// request was counted.
type Windows interface {
	// Take counts one request under a limit above 0 in the window of a name, if it is admitted.
	Take(ctx context.Context, name string, limit int64) (Permit, error)
	// Key reads a key as [HotReader] does. In the same round trip it counts one request by [KeyTerms.Window], if the key may be used and has
	// the scopes, the organization isn't suspended, and the window has a limit: the record has the permit.
	Key(ctx context.Context, hash [32]byte, terms *KeyTerms) (KeyRecord, bool, error)
	// Return uncounts one request in the window of a name that begins at window. It doesn't wait.
	Return(name string, window int64) error
}

// KeyTerms are the conditions under which a request is counted with its key. Requests with the same pointer share statements.
type KeyTerms struct {
	// Scopes are required of the key, all of them.
	Scopes []string
	// Plans and PerMinute are the plans and their limits; 0 means unlimited. The first plan is also for organizations without a known plan.
	Plans     []string
	PerMinute []int64
}

// Window returns the name and the limit of the window that counts requests of a key: its own if it has a bound, and otherwise its organization's
// by the plan. 0 means unlimited.
func (t *KeyTerms) Window(record *KeyRecord) (name string, limit int64) {
	if record.RequestsPerMinute > 0 {
		return record.KeyID, record.RequestsPerMinute
	}
	if len(t.Plans) == 0 {
		return record.OrgID, 0
	}
	return record.OrgID, t.PerMinute[max(slices.Index(t.Plans, record.Plan), 0)]
}

// Permit is the result of a window for one request. The zero value means that the request wasn't counted.
type Permit struct {
	// Before is how many requests the window had admitted before this one, which is admitted if that is less than the limit.
	Before int64
	// Window is the window's beginning, and NowMS the database's clock, in epoch milliseconds.
	Window, NowMS int64
}
