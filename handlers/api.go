package handlers

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// APIDeps is what the endpoint groups work with. All of it is needed, unless a field says otherwise.
type APIDeps struct {
	Authenticator Authenticator
	// Sessions are those of people; nil makes them anew, over DB.
	Sessions      *Sessions
	Wallets       Wallets
	DB            *store.DB
	Conversations Conversations
	// Ring seals the credentials of channels.
	Ring *vault.Ring
	// Models are those of the configuration: [gateway.Catalog].
	Models ModelCatalog
	// Platforms asks whose account a token belongs to: [messaging.Set]. Catalog has the channel types; nil has the widget's only.
	Platforms Identifier
	Catalog   *messaging.Catalog
	Plans     PlanLimits
	// Knowledge are the documents of the database; nil makes it anew, over DB.
	Knowledge *knowledge.Library
	// Chat streams what agents answer in the playground, and PlaygroundCall makes the call for it.
	Chat           *Chat
	PlaygroundCall PlaygroundCall
	// Providers are the names of those in the configuration: an organization may have a key of its own for each.
	Providers []string
	// BaseURL is the service's own address, without a trailing slash (design §4 `base_url`).
	BaseURL string
	// Bodies is the budget that all buffered request bodies share; nil is unlimited.
	Bodies *ByteBudget
	// Now is time.Now when it is nil.
	Now func() time.Time
	// Logger gets what platforms say about credentials; nil discards it.
	Logger *slog.Logger
}

// ModelCatalog knows the models of the configuration.
type ModelCatalog interface {
	ModelList
	Model(id string) (*gateway.Model, bool)
}

// Identifier asks a platform which external ids (pages, accounts, numbers, shops) credentials belong to, as
// [messaging.Set] does.
type Identifier interface {
	Identify(ctx context.Context, channel *platforms.Channel) ([]string, error)
}

// PlanLimits knows what the configured plans allow an organization to have.
type PlanLimits interface {
	// ChannelLimit is how many channels a plan allows; 0 is no limit.
	ChannelLimit(plan string) int64
	// KnowledgeLimit is how many bytes of documents a plan allows; less than 0 is no limit.
	KnowledgeLimit(plan string) int64
}

// API serves the endpoint groups of spec §4.4, but for the widget and the webhooks. Every route has its own
// scope, so API checks the key itself: it needs no [Auth] before it. It keeps no state and is safe for concurrent use.
type API struct {
	APIDeps

	mux    *http.ServeMux
	huma   huma.API
	routes []Route
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
	if a.Sessions == nil {
		a.Sessions = NewSessions(identity.NewSessions(a.DB, nil), a.BaseURL)
	}
	if a.Knowledge == nil {
		a.Knowledge = knowledge.New(a.DB, a.Logger)
	}
	if a.Catalog == nil {
		a.Catalog, _ = messaging.NewCatalog(nil) // the widget's description has no fault
	}
	a.huma = humago.New(a.mux, apiConfig())
	a.huma.UseMiddleware(a.admit)
	a.registerSession()
	a.registerMembers()
	a.registerAPIKeys()
	a.registerProviderKeys()
	a.registerAuditLog()
	a.registerAgents()
	a.registerPlayground()
	a.registerKnowledgeBases()
	a.registerChannels()
	a.registerConversations()
	a.registerWallet()
	a.registerWidget()
	a.registerOrganization()
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
		return challenge(w, answer.err)
	case answer.streamed:
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
	// streamed: the operation wrote its answer to where it goes.
	streamed bool
	err      error
}

// Header is the framework's own: an answer has those of [writeJSON].
func (a *apiAnswer) Header() http.Header { return a.header }

func (a *apiAnswer) WriteHeader(status int) { a.status = status }

func (a *apiAnswer) Write(text []byte) (int, error) {
	a.body = append(a.body, text...)
	return len(text), nil
}
