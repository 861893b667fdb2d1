// Package api has the operations of the organization API as values, in one list for each group (agents, channels, wallet, …), with their
// routes, bodies and answers. The operations of the operator are values without a route. Package endpoint checks credentials, scopes, roles and
// bodies before they run.
//
// Invariants:
//   - An operation reads and writes rows of the principal's organization only; an id of another organization is forbidden and
//     an unknown one not_found, decided by one shared helper.
//   - Secrets that come in are sealed or hashed immediately and are never shown again.
//
// It keeps no state but lists of templates, for a minute. It calls a platform to find the account of new credentials and to read templates,
// and the gateway for the playground.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/widget"
	"github.com/caddy-svc/caddy-svc/internal/egress"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/topup"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Deps are the dependencies of the endpoint groups. All are required, unless a field says otherwise.
type Deps struct {
	Authenticator handlers.Authenticator
	// Sessions are the login sessions of people. Nil means new ones over DB.
	Sessions *handlers.Sessions
	Wallets  Wallets
	// Book has the budgets, and posts for the operator. Endpoints returns the state of the models' endpoints; only the operator's operations need it.
	Book      *billing.Book
	Endpoints func() []gateway.EndpointState
	// TopUps are the ways to pay for credits. Nil means none.
	TopUps        *topup.Payments
	DB            *store.DB
	Conversations Conversations
	// Ring seals the credentials of channels.
	Ring *vault.Ring
	// Models are the models of the configuration: [gateway.Catalog].
	Models ModelCatalog
	// Platforms calls the platforms of channels: [messaging.Set]. Commands have none, so they find no accounts. Catalog
	// has the channel types; nil means only the widget's type.
	Platforms Platforms
	Catalog   *messaging.Catalog
	Plans     PlanLimits
	// Knowledge are the documents of the database; nil makes it anew, over DB.
	Knowledge *knowledge.Library
	// Chat streams the answers of agents in the playground, and PlaygroundCall makes the calls for them.
	Chat           *v1.Chat
	PlaygroundCall PlaygroundCall
	// StartDoctor starts the doctor in the background for an actor, on recent rows or on all. Commands have none.
	StartDoctor func(ctx context.Context, actor string, all bool) error
	// EventTargets decides which addresses event endpoints may have.
	EventTargets egress.Policy
	// Providers are the names of the configuration's providers. An organization may have a key of its own for each.
	Providers []string
	// BaseURL is the service's own address, without a trailing slash.
	BaseURL string
	// Rates bounds how often the operations are used, and, by its Windows, how often platforms are asked; the zero value doesn't.
	Rates endpoint.Rates
	// Bodies is the budget that all buffered request bodies share. Nil means unlimited.
	Bodies *handlers.ByteBudget
	// Now is time.Now when it is nil.
	Now func() time.Time
	// Logger gets the platforms' errors about credentials. Nil discards them.
	Logger *slog.Logger

	questions     *questions
	keptTemplates *keptTemplates
}

// ModelCatalog finds the models of the configuration.
type ModelCatalog interface {
	v1.ModelList
	Model(id string) (*gateway.Model, bool)
}

// Platforms calls the platforms of channels, as [messaging.Set] does.
type Platforms interface {
	// HasTemplates reports whether channels of a type have message templates.
	HasTemplates(t platforms.Type) bool
	// Templates reads a page of a channel's approved templates. The error is a [*platforms.Error].
	Templates(ctx context.Context, channel *platforms.Channel, query platforms.TemplateQuery) (platforms.TemplatePage, error)
	// Identify returns the external ids (pages, accounts, numbers, shops) that belong to a channel's credentials.
	Identify(ctx context.Context, channel *platforms.Channel) ([]string, error)
}

// PlanLimits returns the configured plans and their limits for an organization.
type PlanLimits interface {
	PlanNames() []string
	// DefaultPlan is the plan of a new organization. Empty means that no plan is configured.
	DefaultPlan() string
	// RequestsPerMinute is the limit of a plan. 0 means unlimited.
	RequestsPerMinute(plan string) int64
	// ChannelLimit is the number of channels that a plan allows. 0 means unlimited.
	ChannelLimit(plan string) int64
	// KnowledgeLimit is the number of bytes of documents that a plan allows. Less than 0 means unlimited.
	KnowledgeLimit(plan string) int64
}

// New returns a server with the operations of all groups. Nothing of it is shared with another one.
func New(deps Deps) *endpoint.Server { return serve(&deps) }

// Complete sets what may be left out. Later calls change nothing, so they may come from several requests at a time.
func (d *Deps) Complete() {
	if d.questions != nil {
		return
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	if d.Sessions == nil {
		d.Sessions = handlers.NewSessions(identity.NewSessions(d.DB, d.Ring, nil), d.BaseURL)
	}
	if d.Knowledge == nil {
		d.Knowledge = knowledge.New(d.DB, d.Logger)
	}
	if d.Catalog == nil {
		d.Catalog, _ = messaging.NewCatalog(nil) // the widget's description has no fault
	}
	d.TopUps = cmp.Or(d.TopUps, new(topup.Payments))
	d.questions, d.keptTemplates = &questions{rates: &d.Rates}, &keptTemplates{}
}

// Operator returns an operator of the service as the principal of operations on an organization, or on the whole service if orgID is empty. by is
// [identity.CommandLine], or the principal of an operator's key or session. The error is not_found if there is no organization with the id.
func (d *Deps) Operator(ctx context.Context, by identity.Principal, orgID string) (*identity.Principal, error) {
	d.Complete()
	by.Env = store.Live
	if orgID == "" {
		return &by, nil
	}
	organization, err := d.DB.Organizations.ByID(ctx, orgID)
	if err != nil {
		return nil, unlessMissing(err, "There is no organization with this id.")
	}
	by.OrgID, by.Plan, by.Suspended, by.HasOrgModels = orgID, organization.Plan, organization.SuspendedAt.Valid, true
	by.BudgetVersion = organization.BudgetVersion
	return &by, nil
}

func serve(d *Deps) *endpoint.Server {
	d.Complete()
	s := endpoint.New(d.Authenticator, d.Sessions, d.Bodies)
	s.Rates = d.Rates
	for _, o := range organizationOperations() {
		o.Register(s, d)
	}
	s.Describe = d.describeCredentials
	widget.Register(s)
	return s
}

// organizationOperations are the operations of the organization API.
func organizationOperations() []Operation {
	return []Operation{
		SignIn, SetPassword, ChangePassword, ListSessions, SignOutEverywhere, GetSession, UpdateSession, SignOut, GetSecondFactor,
		BeginSecondFactor, EnableSecondFactor, DisableSecondFactor,
		InviteMember, ListMembers, GetMember, UpdateMember, RemoveMember, LinkMember, ResetMemberSecondFactor,
		CreateAPIKey, ListAPIKeys, GetAPIKey, UpdateAPIKey, RevokeAPIKey,
		ListProviderKeys, PutProviderKey, DeleteProviderKey, ListAuditLog,
		CreateAgent, ListAgents, ListAgentModels, GetAgent, UpdateAgent, DeleteAgent, TryAgent,
		CreateKnowledgeBase, ListKnowledgeBases, GetKnowledgeBase, UpdateKnowledgeBase, DeleteKnowledgeBase, SearchKnowledgeBase,
		CreateDocument, ListDocuments, GetDocument, DeleteDocument,
		CreateChannel, ListChannels, GetChannel, UpdateChannel, DeleteChannel, ListTemplates, VerifyChannel,
		ListConversations, GetConversation, DeleteConversation, ListMessages, SendMessage, HandOver, HandBack, BlockCustomer,
		UnblockCustomer, ListDrafts, SendDraft, DiscardDraft, GetFile, ExportConversation, RetryConversation, DismissConversation,
		ActOnConversations, ResendMessage,
		GetWallet, ListTransactions, ListCalls, GetCall, GetSpend, ListStatements, GetStatement, ListUsageEvents,
		ListBudgets, CreateBudget, GetBudget, UpdateBudget, EndBudget, RaiseBudget, EndBudgetRise,
		GetTopUpWays, CreateTopUp, ListWalletPayments,
		CreateEventEndpoint, ListEventEndpoints, GetEventEndpoint, UpdateEventEndpoint, DeleteEventEndpoint, RotateEventSecret,
		TestEventEndpoint, ListEventDeliveries, GetOrganization, UpdateOrganization,
	}
}

// Operation is an operation of the organization API.
type Operation = endpoint.Any[*Deps]

// operation makes an operation of its description and the method that does it and returns the answer's body.
func operation[I, T any](
	o endpoint.Operation, do func(d *Deps, ctx context.Context, principal *identity.Principal, in *I) (*T, error),
) endpoint.Op[*Deps, I, endpoint.JSON[T]] {
	return operationOf(o, func(d *Deps, ctx context.Context, principal *identity.Principal, in *I) (*endpoint.JSON[T], error) {
		body, err := do(d, ctx, principal, in)
		if err != nil {
			return nil, err
		}
		return endpoint.Answer(*body), nil
	})
}

// operationOf is [operation] for a method that returns another answer than a body with the usual status. A value that package
// identity refuses is an invalid_request, other errors that aren't public are internal, and the answer beside an error isn't given.
func operationOf[I, O any](
	o endpoint.Operation, do func(d *Deps, ctx context.Context, principal *identity.Principal, in *I) (*O, error),
) endpoint.Op[*Deps, I, O] {
	return endpoint.Op[*Deps, I, O]{Operation: o, Do: func(d *Deps, ctx context.Context, principal *identity.Principal, in *I) (*O, error) {
		answer, err := do(d, ctx, principal, in)
		if err == nil {
			return answer, nil
		}
		if public, ok := errors.AsType[*handlers.Error](err); ok {
			return nil, public
		}
		return nil, handlers.BadField(err)
	}}
}

// noScope is the scope of operations that no API key may use.
const noScope identity.Scope = ""

// members describes an operation that every person of the organization may use, and API keys with the scope. route is a method and a path.
func members(id, route string, scope identity.Scope, summary string) endpoint.Operation {
	return described(id, route, handlers.Route{Scope: scope, Role: handlers.RoleMember, Summary: summary})
}

// described returns an operation at a route, which is a method and a path.
func described(id, route string, r handlers.Route) endpoint.Operation {
	r.Method, r.Path, _ = strings.Cut(route, " ")
	return endpoint.Operation{ID: id, Route: r}
}

// administrators is members for administrators only.
func administrators(id, route string, scope identity.Scope, summary string) endpoint.Operation {
	return described(id, route, handlers.Route{Scope: scope, Role: handlers.RoleAdministrator, Summary: summary})
}

// public describes an operation that needs no credentials.
func public(id, route, summary string) endpoint.Operation {
	return described(id, route, handlers.Route{Public: true, Summary: summary})
}

// operated lets operators with the scope use an operation of organizations.
func operated(scope identity.OperatorScope, o endpoint.Operation) endpoint.Operation {
	o.OperatorScope = scope
	return o
}

// testKeys lets keys of the test environment use an operation, too ([handlers.Route].TestKeys).
func testKeys(o endpoint.Operation) endpoint.Operation {
	o.TestKeys = true
	return o
}

// acting describes a POST that makes nothing new.
func acting(o endpoint.Operation) endpoint.Operation {
	o.Status = http.StatusOK
	return o
}

// streaming describes an operation that answers with a stream of chunks.
func streaming(o endpoint.Operation) endpoint.Operation {
	o.Stream = true
	return acting(o)
}

// reading sets the largest body.
func reading(bytes int64, o endpoint.Operation) endpoint.Operation {
	o.MaxBody = bytes
	return o
}

// answering sets the size of a large answer.
func answering(bytes int64, o endpoint.Operation) endpoint.Operation {
	o.UsualAnswer = bytes
	return o
}

// containing describes an answer by media type.
func containing(content map[string]*huma.MediaType, o endpoint.Operation) endpoint.Operation {
	o.Content = content
	return o
}

// missing returns the error for an id that the organization doesn't have: forbidden when it is another organization's, else
// not_found. Nothing else of the row is revealed.
func (d *Deps) missing(ctx context.Context, principal *identity.Principal, kind store.OwnedKind, id string) error {
	owner, err := d.DB.OwnerOf(ctx, kind, id)
	switch {
	case err == nil && owner != principal.OrgID:
		return endpoint.Refusal(errcode.Forbidden, nil, "The %s belongs to another organization.", singular(kind))
	case err == nil, errors.Is(err, store.ErrNotFound): // without an error it was made, or deleted, a moment ago
		return handlers.NotFound("There is no %s with this id.", singular(kind))
	default:
		return handlers.Internal(fmt.Errorf("looking for the owner of %s %s: %w", singular(kind), id, err))
	}
}

// unlessMissing returns the public form of an error of the store: not_found with the message if the row doesn't exist. It returns nil if there is
// no error.
func unlessMissing(err error, message string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return handlers.NotFound("%s", message)
	}
	return handlers.Internal(err)
}

// refuse returns the public form of an error of the store, or of the queue, about one resource. It returns nil if there is no error, and a public
// error unchanged.
func (d *Deps) refuse(ctx context.Context, principal *identity.Principal, kind store.OwnedKind, id string, err error) error {
	if public, ok := errors.AsType[*handlers.Error](err); ok {
		return public
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return d.missing(ctx, principal, kind, id)
	case errors.Is(err, inbox.ErrConversationClosed):
		return customerBlocked(err)
	default:
		return handlers.Internal(fmt.Errorf("%s %s: %w", singular(kind), id, err))
	}
}

// noRoom returns the error of an organization that has as many of a kind as it may.
func noRoom(most int, kind string, err error) error {
	return endpoint.Refusal(errcode.PlanLimitExceeded, err, "The organization has %d %s, the most it may have.", most, kind)
}

// singular returns the name of one of a kind, as texts to clients use it.
func singular(kind store.OwnedKind) string {
	switch kind {
	case store.OwnedAPIKeys:
		return "API key"
	case store.OwnedUsers:
		return "member"
	default:
		return strings.ReplaceAll(strings.TrimSuffix(string(kind), "s"), "_", " ")
	}
}

// idAndBody is the input of an operation on the row with an id.
type idAndBody[T any] struct {
	endpoint.PathID

	Body T
}

// pageInput is the input of a list without filters.
type pageInput = struct{ endpoint.PageQuery }

// pageOf is the answer of a list.
type pageOf[T any] = endpoint.ListObject[T]

// onePage is the answer of a list without a bound on its rows.
func onePage[Row, T any](rows []Row, show func(*Row) T) *pageOf[T] {
	return &pageOf[T]{Data: showAll(rows, show)}
}

// showAll returns rows as the API shows them. It is never nil.
func showAll[Row, T any](rows []Row, show func(*Row) T) []T {
	shown := make([]T, len(rows))
	for i := range rows {
		shown[i] = show(&rows[i])
	}
	return shown
}

// listRows returns a page of the organization's rows. Errors of list are internal unless they are [handlers.Error]s.
func listRows[Row, T any](
	ctx context.Context, principal *identity.Principal, in endpoint.PageQuery,
	list func(ctx context.Context, orgID string, page store.Page) ([]Row, error), id func(*Row) string, show func(*Row) T,
) (*pageOf[T], error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	rows, err := list(ctx, principal.OrgID, page)
	if err != nil {
		return nil, handlers.AsError(err)
	}
	return endpoint.Listed(in, rows, id, show), nil
}

// getRow returns one row of the organization.
func getRow[Row, T any](
	ctx context.Context, d *Deps, principal *identity.Principal, kind store.OwnedKind, id string,
	byID func(ctx context.Context, orgID, id string) (Row, error), show func(*Row) T,
) (*T, error) {
	row, err := byID(ctx, principal.OrgID, id)
	return new(show(&row)), d.refuse(ctx, principal, kind, id, err)
}

// change applies a change of one row of the organization, such as its deletion.
func (d *Deps) change(
	ctx context.Context, principal *identity.Principal, kind store.OwnedKind, id string,
	apply func(ctx context.Context, actor, orgID, id string) error,
) error {
	return d.refuse(ctx, principal, kind, id, apply(ctx, principal.Actor(), principal.OrgID, id))
}

// checkRow refuses an id of a body that isn't one of the organization's rows. unknown is the error for an id that no organization has.
func checkRow[Row any](
	ctx context.Context, d *Deps, principal *identity.Principal, kind store.OwnedKind, id string,
	byID func(ctx context.Context, orgID, id string) (Row, error), unknown error,
) error {
	if !handlers.WellFormedID(id) {
		return unknown
	}
	_, err := byID(ctx, principal.OrgID, id)
	err = d.refuse(ctx, principal, kind, id, err)
	if err != nil && handlers.AsError(err).Code == errcode.NotFound {
		return unknown
	}
	return err
}

// set replaces the value of a field, if the body has one.
func set[T any](into, value *T) {
	if value != nil {
		*into = *value
	}
}

// setMillis replaces a whole number of a unit by a given number of units.
func setMillis(into *int64, value *float64, unit float64) {
	if value != nil {
		*into = int64(math.Round(*value * unit))
	}
}

// clearable is a member of a PATCH body that can be removed. An absent member changes nothing, null removes the value.
type clearable[T any] struct {
	given bool
	value *T
}

// UnmarshalJSON implements json.Unmarshaler. It also runs for null.
func (c *clearable[T]) UnmarshalJSON(text []byte) error {
	c.given, c.value = true, nil
	return json.Unmarshal(text, &c.value)
}

// set replaces a value by that of the member, or by the zero value if the member is null.
func (c *clearable[T]) set(into *T) {
	if c.given {
		*into = *cmp.Or(c.value, new(T))
	}
}

// ValueType is the type of the value, for [endpoint.Field].
func (*clearable[T]) ValueType() reflect.Type { return reflect.TypeFor[T]() }

// Schema describes the value.
func (*clearable[T]) Schema(registry huma.Registry) *huma.Schema {
	schema := registry.Schema(reflect.TypeFor[T](), false, "")
	schema.Nullable = true
	return schema
}

var _ huma.SchemaProvider = (*clearable[int64])(nil)
