package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Where the operator's interface has operations on the service, and those on an organization.
const (
	operatorPrefix     = "/operator"
	organizationPrefix = operatorPrefix + "/organizations/{orgId}"
)

// OwnerOfID replaces an organization's id in a path by the organization that has the id behind it.
const OwnerOfID = "-"

// operatorOperations are the operations of the operator's interface: the operator's own, and some of the organizations'.
var operatorOperations = []Operation{
	CreateOrganization, ListOrganizations, ReadOrganization, SuspendOrganization, ResumeOrganization, SetPlan, SetTimeZone,
	CreateAPIKey, ListAPIKeys, GetAPIKey, RevokeAPIKey,
	ListOrganizationModels, EnableModel, DisableModel,
	ListChannelStates, ApproveChannel,
	InviteMember, ListMembers, GetMember, UpdateMember, RemoveMember, LinkMember,
	GetWallet, ListTransactions, ListCalls, GetCall, ListStatements, GetStatement, ListUsageEvents, ListAllUsageEvents,
	CreditWallet, AdjustWallet, RefundCall, ListPayments, GetPayment, MatchPayment, IgnorePayment,
	ListBudgets, CreateBudget, GetBudget, UpdateBudget, EndBudget, RaiseBudget, EndBudgetRise,
	GetQueue, ListDeadTurns, RetryTurn, ListAttention,
	GetStatus, ListConditions, GetDoctor, RunDoctor, StartBackup, ListVendors, ListPlans, ListActions,
	ListUsers, ListUsage, GetOverview, FindOrganization, ListOrganizationUsage, GetSummary,
	CreateOperatorKey, ListOperatorKeys, RevokeOperatorKey, ListOperators,
}

// NewOperator returns a server with the operator's interface. deps.Authenticator is [identity.OperatorKeys], and deps.Ring is required.
func NewOperator(deps Deps) *endpoint.Server {
	deps.Complete()
	s := endpoint.New(deps.Authenticator, nil, deps.Bodies)
	s.Rates, s.Mount, s.Complete = deps.Rates, onOperatorServer, deps.operatorRequest
	s.Repeats = &endpoint.Repeats{DB: deps.DB, Ring: deps.Ring}
	for _, o := range operatorOperations {
		o.Register(s, &deps)
	}
	return s
}

// OperatorRoute returns the route of an operation of the operator's interface. ok is false for another operation.
func OperatorRoute(o Operation) (route handlers.Route, ok bool) {
	spec := o.Spec()
	ok = slices.ContainsFunc(operatorOperations, func(other Operation) bool { return other.Spec().ID == spec.ID })
	return onOperatorServer(spec).Route, ok
}

// onOperatorServer returns an operation with its place in the operator's interface.
func onOperatorServer(o endpoint.Operation) endpoint.Operation {
	text := func(name, in, doc string) {
		o.Parameters = append(o.Parameters, &huma.Param{
			Name: name, In: in, Required: in == "path", Description: doc, Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	prefix := operatorPrefix
	if o.Role != roleService {
		prefix, o.Role = organizationPrefix, roleOperator
		text("orgId", "path", "The organization's id")
	}
	if o.Method != http.MethodGet {
		text("X-Actor", "header", "The person for whom the program works, for the audit log")
	}
	if o.Method == http.MethodPost {
		text(handlers.HeaderIdempotencyKey, "header", "Makes it safe to send the request again, within 24 hours. 1 to 255 visible ASCII characters")
	}
	o.Path, o.Scope = strings.TrimSuffix(prefix+o.Path, "/"), noScope
	return o
}

// Bounds of the person that a program names for the audit log, in characters, and of the whole actor in bytes.
const (
	maxPerson     = 100
	maxActorBytes = 500
)

// operatorRequest returns the principal of a request with the organization in its path and the person in its X-Actor.
func (d *Deps) operatorRequest(r *http.Request, key *identity.Principal) (*identity.Principal, error) {
	orgID := r.PathValue("orgId")
	if orgID == OwnerOfID {
		id := r.PathValue("id")
		group, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, operatorPrefix+"/organizations/-/"), "/"+id)
		kind := map[string]store.OwnedKind{
			"api-keys": store.OwnedAPIKeys, "channels": store.OwnedChannels, "members": store.OwnedUsers, "calls": store.OwnedCalls,
			"wallet/budgets": store.OwnedBudgets,
		}[group]
		if kind == "" || !handlers.WellFormedID(id) {
			return nil, handlers.NotFound("- stands for the owner of an id in the path, and this path has none.")
		}
		var err error
		if orgID, err = d.DB.OwnerOf(r.Context(), kind, id); err != nil {
			return nil, unlessMissing(err, "There is no "+singular(kind)+" with this id.")
		}
	}
	if orgID != "" && !handlers.WellFormedID(orgID) {
		return nil, handlers.NotFound("There is no organization with this id.")
	}
	principal, err := d.Operator(r.Context(), *key, orgID)
	if err != nil {
		return nil, err
	}
	person := []rune(strings.TrimSpace(strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) && c != unicode.ReplacementChar {
			return c
		}
		return -1
	}, r.Header.Get("X-Actor"))))
	person = person[:min(len(person), maxPerson)]
	for principal.OnBehalfOf = string(person); len(principal.Actor()) > maxActorBytes; principal.OnBehalfOf = string(person) {
		person = person[:len(person)-1]
	}
	return principal, nil
}

// The operations that only the operator's interface and console have.
var (
	ReadOrganization = operation(operators("readOrganization", "GET /", "organizations:read", "Get an organization"), (*Deps).readOrganization)

	ListOrganizationModels = operation(operators("listOrganizationModels", "GET /models", "models:read",
		"List the models of the configuration, and which the organization may call, all on one page"), (*Deps).listOrganizationModels)
	ListChannelStates = operation(operators("listChannelStates", "GET /channels", "channels:read",
		"List the channels and their states, oldest first"), (*Deps).listChannelStates)
	ListUsers = operation(service("listUsers", "GET /users", "users:read",
		"List or search the users of all organizations, invited people among them, oldest first"), (*Deps).listUsers)
	GetQueue  = operation(service("getQueue", "GET /queue", "queue:read", "Get how many messages wait, and since when"), (*Deps).getQueue)
	GetStatus = operation(service("getStatus", "GET /status", "status:read",
		"Get which servers and workers run, and when the store was backed up last"), (*Deps).getStatus)
	StartBackup = operation(service("startBackup", "POST /backup", "backup:write",
		"Write a whole copy of a SQLite store into the folder backups beside it"), (*Deps).startBackup)
	ListVendors = operation(service("listVendors", "GET /vendors", "vendors:read",
		"List the endpoints of the models as the process that answers sees them, all on one page"), (*Deps).listVendors)
	ListPlans = operation(service("listPlans", "GET /plans", "organizations:read", "List the plans, all on one page"), (*Deps).listPlans)
)

func (d *Deps) readOrganization(ctx context.Context, principal *identity.Principal, _ *struct{}) (*customerObject, error) {
	return d.changed(ctx, principal, nil)
}

func (d *Deps) listOrganizationModels(ctx context.Context, principal *identity.Principal, _ *struct{}) (*pageOf[modelState], error) {
	exceptions, err := d.DB.Organizations.Models(ctx, principal.OrgID)
	return onePage(d.Models.Models(), func(model *gateway.Model) modelState {
		return modelState{model.ID, model.Enabled(exceptions, store.Live, store.KeyModels{})}
	}), err
}

// channelStateObject is a channel in the operator's view, without credentials and texts.
type channelStateObject struct {
	ID                string  `json:"id"`
	Type              string  `json:"type"`
	Name              string  `json:"name"`
	ExternalID        *string `json:"externalId"`
	State             string  `json:"state"`
	UnavailableReason *string `json:"unavailableReason"`
	ThrottledUntil    *string `json:"throttledUntil" format:"date-time"`
	UpdatedAt         string  `json:"updatedAt" format:"date-time"`
}

func (d *Deps) listChannelStates(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[channelStateObject], error) {
	show, err := d.channelShower(ctx, principal)
	if err != nil {
		return nil, err
	}
	return listRows(ctx, principal, in.PageQuery, d.DB.Channels.List, func(row *store.Channel) string { return row.ID },
		func(row *store.Channel) channelStateObject {
			c := show(row)
			return channelStateObject{c.ID, c.Type, c.Name, c.ExternalID, c.State, c.UnavailableReason, c.ThrottledUntil, c.UpdatedAt}
		})
}

// userObject is a user of an organization in the operator's view.
type userObject struct {
	MemberObject

	OrgID   string `json:"orgId"`
	OrgName string `json:"orgName"`
}

type usersQuery struct {
	endpoint.PageQuery

	Email string `query:"email" maxLength:"254" doc:"The beginning of the e-mail address"`
}

func (d *Deps) listUsers(ctx context.Context, principal *identity.Principal, in *usersQuery) (*pageOf[userObject], error) {
	search := func(ctx context.Context, _ string, page store.Page) ([]store.FoundUser, error) {
		return d.DB.Users.Search(ctx, strings.ToLower(in.Email), page)
	}
	return listRows(ctx, principal, in.PageQuery, search, func(row *store.FoundUser) string { return row.ID },
		func(row *store.FoundUser) userObject {
			return userObject{d.showMember(&row.User), row.OrgID, row.OrgName}
		})
}

// queueObject is the depth of the queue, over all organizations.
type queueObject struct {
	Waiting       int64 `json:"waiting" doc:"Conversations that wait for a worker"`
	OldestSeconds int64 `json:"oldestSeconds" doc:"How long the first of them has waited"`
	Answering     int64 `json:"answering" doc:"Conversations that are with a worker"`
	Standing      int64 `json:"standing" doc:"Turns that wait for a change, such as credits"`
	Dead          int64 `json:"dead" doc:"Turns that were given up"`
}

func (d *Deps) getQueue(ctx context.Context, _ *identity.Principal, _ *struct{}) (*queueObject, error) {
	depth, err := d.Conversations.Depth(ctx)
	return &queueObject{depth.Due, int64(depth.OldestDue.Seconds()), depth.Leased, depth.Attention, depth.Dead}, err
}

// statusObject is the state of the service.
type statusObject struct {
	Engine       string   `json:"engine" enum:"sqlite,postgres"`
	Processes    []string `json:"processes" nullable:"false" doc:"The servers and workers that showed a sign of life within a minute"`
	LastBackupAt *string  `json:"lastBackupAt" format:"date-time" doc:"null: no backup was made with caddy svc backup or here"`
}

func (d *Deps) getStatus(ctx context.Context, _ *identity.Principal, _ *struct{}) (*statusObject, error) {
	living, livingErr := d.DB.Processes.Living(ctx)
	backup, backupErr := d.DB.LastBackup(ctx)
	processes := showAll(living, func(p *store.Process) string { return p.Name })
	return &statusObject{string(d.DB.Engine()), processes, endpoint.TimestampOrNull(backup)}, errors.Join(livingErr, backupErr)
}

// maxBackups bounds the copies in the folder, because an operator's key could fill the disk.
const maxBackups = 30

// backupObject is a copy of the store.
type backupObject struct {
	Name  string `json:"name" doc:"The file in the folder backups beside the store"`
	Bytes int64  `json:"bytes"`
}

func (d *Deps) startBackup(ctx context.Context, principal *identity.Principal, _ *struct{}) (*backupObject, error) {
	if d.DB.Engine() != store.SQLite {
		return nil, endpoint.Refusal(errcode.Conflict, nil, "The store is PostgreSQL, which is backed up with pg_dump.")
	}
	folder := filepath.Join(filepath.Dir(d.DB.Location().DSN), "backups")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, handlers.Internal(fmt.Errorf("making the folder of backups: %w", err))
	}
	copies, err := os.ReadDir(folder)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the folder of backups: %w", err))
	}
	if len(copies) >= maxBackups {
		return nil, endpoint.Refusal(errcode.Conflict, nil, "The folder of backups has %d files. Move old ones elsewhere.", len(copies))
	}
	name := "svc-" + d.Now().UTC().Format("20060102-150405") + ".db"
	path := filepath.Join(folder, name)
	if err := d.DB.BackupTo(ctx, path); errors.Is(err, fs.ErrExist) {
		return nil, endpoint.Refusal(errcode.Conflict, err, "A backup of this second is there already.")
	} else if err != nil {
		return nil, handlers.Internal(fmt.Errorf("backing up the store: %w", err))
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading a backup: %w", err))
	}
	err = d.DB.AuditLog.Add(ctx, store.AuditEntry{Actor: principal.Actor(), Action: "store.backup", Target: name})
	return &backupObject{name, info.Size()}, err
}

// vendorObject is the state of an endpoint of a model in the process of the request.
type vendorObject struct {
	Provider      string  `json:"provider"`
	UpstreamModel string  `json:"upstreamModel"`
	State         string  `json:"state" enum:"ok,resting,probing" doc:"resting: calls go elsewhere after a failure. probing: one call finds out whether it works"` //nolint:lll // a struct tag can't be broken
	RestSeconds   int64   `json:"restSeconds"`
	Failure       *string `json:"failure" doc:"The class of the last failure"`
	OtherModel    *string `json:"otherModel" doc:"The name of the model that answered, if it is another one"`
	Attempts      int64   `json:"attempts" doc:"Calls since the process began"`
	Failures      int64   `json:"failures" doc:"Those of them that failed"`
}

func (d *Deps) listVendors(context.Context, *identity.Principal, *struct{}) (*pageOf[vendorObject], error) {
	return onePage(d.Endpoints(), func(e *gateway.EndpointState) vendorObject {
		vendor := vendorObject{
			Provider: e.Provider, UpstreamModel: e.Upstream, State: "ok", RestSeconds: int64(e.Cooled.Seconds()),
			Failure: endpoint.OrNull(string(e.Failure)), OtherModel: endpoint.OrNull(e.Other),
		}
		switch {
		case e.Probing:
			vendor.State = "probing"
		case e.Cooled > 0:
			vendor.State = "resting"
		}
		for outcome, attempts := range e.Attempts {
			vendor.Attempts += attempts
			if outcome != gateway.AttemptAnswered && outcome != gateway.AttemptCanceled {
				vendor.Failures += attempts
			}
		}
		return vendor
	}), nil
}

// planObject is a plan of the configuration.
type planObject struct {
	Name              string `json:"name"`
	Default           bool   `json:"default" doc:"A new organization has it"`
	RequestsPerMinute int64  `json:"requestsPerMinute" doc:"0: without a limit"`
	Channels          int64  `json:"channels" doc:"0: without a limit"`
	KnowledgeBytes    int64  `json:"knowledgeBytes" doc:"Less than 0: without a limit"`
}

func (d *Deps) listPlans(context.Context, *identity.Principal, *struct{}) (*pageOf[planObject], error) {
	return onePage(d.Plans.PlanNames(), func(name *string) planObject {
		p := d.Plans
		return planObject{*name, *name == p.DefaultPlan(), p.RequestsPerMinute(*name), p.ChannelLimit(*name), p.KnowledgeLimit(*name)}
	}), nil
}

// The operator's operations on the state of the service.
var (
	ListConditions = operation(service("listConditions", "GET /conditions", "status:read",
		"List the conditions that need the operator, the gravest first, all on one page"), (*Deps).listConditions)
	GetDoctor = operation(service("getDoctor", "GET /doctor", "doctor:read", "Read the result of the doctor's last run"), (*Deps).getDoctor)
	RunDoctor = operation(service("runDoctor", "POST /doctor", "doctor:write",
		"Start the doctor in the background; 409 conflict while it runs"), (*Deps).runDoctor)
)

func (d *Deps) listConditions(ctx context.Context, _ *identity.Principal, _ *struct{}) (*pageOf[conditions.Object], error) {
	all, err := conditions.List(ctx, d.DB)
	return onePage(all, (*conditions.Condition).Show), err
}

// doctorObject is the doctor's last result, and whether the doctor runs.
type doctorObject struct {
	RunningSince *string            `json:"runningSince" format:"date-time" doc:"null: the doctor doesn't run"`
	State        *string            `json:"state" enum:"ok,findings,unfinished" doc:"Of the last run that has ended; null: none has"`
	StartedAt    *string            `json:"startedAt" format:"date-time"`
	EndedAt      *string            `json:"endedAt" format:"date-time"`
	StartedBy    *string            `json:"startedBy" doc:"null: the run was due"`
	Node         *string            `json:"node" doc:"The process that ran it"`
	Invariants   []billing.Examined `json:"invariants" doc:"What was checked, with up to 20 findings each"`
}

func (d *Deps) getDoctor(ctx context.Context, _ *identity.Principal, _ *struct{}) (*doctorObject, error) {
	shown := doctorObject{Invariants: []billing.Examined{}}
	last, err := conditions.LastRun(ctx, d.DB)
	if err == nil {
		shown.State, shown.Node, shown.StartedBy = &last.State, &last.Node, endpoint.OrNull(last.StartedBy)
		shown.StartedAt, shown.EndedAt = endpoint.TimestampOrNull(last.StartedAt), endpoint.TimestampOrNull(last.EndedAt)
		shown.Invariants = append(shown.Invariants, last.Report.Invariants...)
		for i := range shown.Invariants {
			shown.Invariants[i].Findings = append([]billing.Finding{}, shown.Invariants[i].Findings...) // [], not null
		}
	}
	if err == nil || errors.Is(err, store.ErrNotFound) {
		var running conditions.Run
		if running, err = conditions.RunningRun(ctx, d.DB); err == nil {
			shown.RunningSince = endpoint.TimestampOrNull(running.StartedAt)
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, handlers.Internal(err)
	}
	return &shown, nil
}

type doctorStart struct {
	All bool `json:"all,omitempty" doc:"Check all rows; otherwise those of the last two hours and those that are open"`
}

type doctorStarted struct {
	Started bool `json:"started"`
}

func (d *Deps) runDoctor(ctx context.Context, principal *identity.Principal, in *struct{ Body doctorStart }) (*doctorStarted, error) {
	if d.StartDoctor == nil {
		return nil, handlers.InvalidRequest("", "Only a server runs the doctor in the background. Run `caddy svc doctor`.")
	}
	err := d.StartDoctor(ctx, principal.Actor(), in.Body.All)
	if errors.Is(err, conditions.ErrRunning) {
		return nil, endpoint.Refusal(errcode.Conflict, err, "The doctor runs already. Read its result when it has ended.")
	}
	return &doctorStarted{true}, err
}
