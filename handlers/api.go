package handlers

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/platforms"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// APIDeps is what the endpoint groups work with. All of it is needed, unless a field says otherwise.
type APIDeps struct {
	Authenticator Authenticator
	Wallets       Wallets
	DB            *store.DB
	Conversations Conversations
	// Ring seals the credentials of channels.
	Ring *vault.Ring
	// Models are those of the configuration: [gateway.Catalog].
	Models ModelCatalog
	// Platforms tells whose account a token belongs to: [platforms.Client].
	Platforms Identifier
	Plans     ChannelPlans
	// BaseURL is the service's own address, without a trailing slash (design §4 `base_url`).
	BaseURL string
	// Bodies is the budget that all buffered request bodies share; nil is unlimited.
	Bodies *ByteBudget
	// Now is time.Now when it is nil.
	Now func() time.Time
	// Logger gets what platforms say about credentials; nil discards it.
	Logger *slog.Logger
}

// ModelCatalog finds a model of the configuration by its id.
type ModelCatalog interface {
	Model(id string) (*gateway.Model, bool)
}

// Identifier asks a platform which external ids (pages, accounts, numbers, shops) credentials belong to, as
// [platforms.Client] does. Some platforms can only be asked about one; externalID is what the channel claims to be.
type Identifier interface {
	Identify(ctx context.Context, channel platforms.Type, externalID string, credentials platforms.Credentials) ([]string, error)
}

// ChannelPlans knows how many channels the configured plans allow.
type ChannelPlans interface {
	// ChannelLimit of a plan; 0 is no limit.
	ChannelLimit(plan string) int64
}

// API serves the endpoint groups of spec §4.4: /agents, /channels, /conversations and /wallet. Every route has its own
// scope, so API checks the key itself: it needs no [Auth] before it. It keeps no state and is safe for concurrent use.
type API struct {
	APIDeps

	mux    *http.ServeMux
	huma   huma.API
	routes []Route
	// members are the names of all members of all request bodies.
	members map[string]bool
}

// NewAPI registers the operations. Nothing of it is shared with another API.
func NewAPI(deps APIDeps) *API {
	a := &API{APIDeps: deps, mux: http.NewServeMux()}
	if a.Now == nil {
		a.Now = time.Now
	}
	if a.Logger == nil {
		a.Logger = slog.New(slog.DiscardHandler)
	}
	a.huma = humago.New(a.mux, apiConfig())
	a.huma.UseMiddleware(a.admit)
	a.registerAgents()
	a.registerChannels()
	a.registerConversations()
	a.registerWallet()
	a.members = memberNames(a.huma.OpenAPI().Components.Schemas)
	return a
}

// Routes lists the operations in the order in which they were registered.
func (a *API) Routes() []Route { return a.routes }

// Serve answers a request. A path or method that no operation has is not_found, with or without a key; HEAD is no GET
// here. For the others the order is that of design §6: key 401, suspended 402, scope 403, then the request itself.
func (a *API) Serve(w http.ResponseWriter, r *http.Request) error {
	r, _ = EnsureRequestID(w, r)
	answer := &apiAnswer{to: w, header: make(http.Header)}
	a.mux.ServeHTTP(answer, r)
	switch {
	case !answer.admitted:
		// What the mux wrote by itself, a 404, a 405 or a redirect to a cleaner path, is dropped.
		return notFound(r)
	case answer.err != nil:
		return answer.err
	case answer.status == http.StatusNoContent:
		w.WriteHeader(http.StatusNoContent)
	default:
		writeJSON(w, answer.status, answer.body)
	}
	return nil
}

// apiAnswer keeps what the framework writes until it is known whether that is the answer: errors are [WriteError]'s.
type apiAnswer struct {
	// to is where the answer goes in the end.
	to     http.ResponseWriter
	header http.Header
	status int
	body   []byte
	// admitted: an operation has the path and the method.
	admitted bool
	err      error
}

// Header is the framework's own: an answer has those of [writeJSON].
func (a *apiAnswer) Header() http.Header { return a.header }

func (a *apiAnswer) WriteHeader(status int) { a.status = status }

func (a *apiAnswer) Write(text []byte) (int, error) {
	a.body = append(a.body, text...)
	return len(text), nil
}
