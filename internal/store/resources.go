package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
	"github.com/caddy-svc/caddy-svc/internal/store/writer"
)

// Resources are the rows of a database, with one type for each sort of rows that has no rules of its own.
type Resources struct {
	APIKeys            APIKeys
	Agents             Agents
	AuditLog           AuditLog
	ChannelCredentials ChannelCredentials
	Channels           Channels
	Chunks             Chunks
	Documents          Documents
	EventDeliveries    EventDeliveries
	EventEndpoints     EventEndpoints
	EventWatch         EventWatch
	IDKeys             IDKeys
	KnowledgeBases     KnowledgeBases
	Logins             Logins
	OperatorKeys       OperatorKeys
	Operators          Operators
	OperatorRequests   OperatorRequests
	Organizations      Organizations
	Processes          Processes
	ProviderKeys       ProviderKeys
	Routes             Routes
	SecondFactors      SecondFactors
	Sessions           Sessions
	UserLinks          UserLinks
	Users              Users
	Widgets            Widgets
}

// Errors of resources that a caller distinguishes with [errors.Is]. None of them carries a value that was written or asked
// for. [ErrNotFound] and [ErrConflict] are the usual ones.
var (
	// ErrAgentNotFound: the organization has no agent with the id that a channel shall have. It is also an ErrNotFound.
	ErrAgentNotFound = fmt.Errorf("%w: the agent", ErrNotFound)
	// ErrKnowledgeBaseNotFound: the organization has no knowledge base with an id that an agent shall have. It is also an ErrNotFound.
	ErrKnowledgeBaseNotFound = fmt.Errorf("%w: the knowledge base", ErrNotFound)
	// ErrLimit: the organization has as many as its plan, or the store, allows. Nothing happened.
	ErrLimit = errors.New("store: limit reached")
	// ErrSalt: the password of a user with the same e-mail address has another salt than the given one. Nothing happened.
	ErrSalt = errors.New("store: another salt")
	// ErrTooSoon: the same was done a moment ago. Nothing happened.
	ErrTooSoon = errors.New("store: too soon")
	// ErrLastOwner: the organization would have no owner left who can sign in. Nothing happened.
	ErrLastOwner = errors.New("store: the last owner")
	// ErrLastAdministrator: the service would have no operator left who may change operators. Nothing happened.
	ErrLastAdministrator = errors.New("store: the last administrator of the service")
	// ErrUnreleased is [schema.ErrUnreleased].
	ErrUnreleased = schema.ErrUnreleased
	// ErrNewer is [schema.ErrNewer].
	ErrNewer = schema.ErrNewer
	// ErrOlder is [schema.ErrOlder].
	ErrOlder = schema.ErrOlder
)

// The most rows of an organization. Without them one API key could fill the disk.
const (
	MaxAgents         = 1_000
	MaxKnowledgeBases = 100
	MaxMembers        = 1_000 // invitations among them
	MaxAPIKeys        = 1_000 // that aren't revoked
	MaxOperatorKeys   = 1_000 // of the service, that aren't revoked
)

// lockOrganization makes other transactions that lock the organization wait. On PostgreSQL the next statement reads everything that was
// committed during the wait. It returns [ErrNotFound] for an unknown organization.
func lockOrganization(ctx context.Context, tx Tx, orgID string) error {
	return change(ctx, tx, `SELECT id FROM organizations WHERE id = $1`+tx.LockRows(), orgID)
}

// checkRoom returns [ErrLimit] if count, a query with the organization as its only argument, finds at least most. It locks the
// organization, so that another creation waits for this one. It returns [ErrNotFound] for an unknown organization.
func checkRoom(ctx context.Context, tx Tx, orgID string, most int64, count string) error {
	if err := lockOrganization(ctx, tx, orgID); err != nil {
		return err
	}
	return checkCount(ctx, tx, most, count, orgID)
}

// checkCount returns [ErrLimit] if count, a query of a number, finds at least most.
func checkCount(ctx context.Context, tx Tx, most int64, count string, arguments ...any) error {
	var rows int64
	err := queryRow(ctx, tx, []any{&rows}, count, arguments...)
	if err == nil && rows >= most {
		err = ErrLimit
	}
	return err
}

// OwnedKind is a sort of resource that belongs to an organization.
type OwnedKind string

// The sorts of resources for [DB.OwnerOf].
const (
	OwnedAgents        OwnedKind = "agents"
	OwnedChannels      OwnedKind = "channels"
	OwnedConversations OwnedKind = "conversations"
	OwnedAPIKeys       OwnedKind = "api_keys"
	OwnedCalls         OwnedKind = "calls"
	OwnedUsers         OwnedKind = "users"

	OwnedKnowledgeBases OwnedKind = "knowledge_bases"
	OwnedDocuments      OwnedKind = "documents"

	OwnedEventEndpoints OwnedKind = "event_endpoints"
	OwnedBudgets        OwnedKind = "budgets"
)

// OwnerOf returns the organization that a resource belongs to. It returns [ErrNotFound] if there is no such resource. It is for ids that an
// organization doesn't have: they are forbidden if another organization has them, and unknown otherwise.
func (db *DB) OwnerOf(ctx context.Context, kind OwnedKind, id string) (orgID string, err error) {
	switch kind {
	case OwnedAgents, OwnedChannels, OwnedConversations, OwnedAPIKeys, OwnedUsers, OwnedKnowledgeBases, OwnedDocuments,
		OwnedEventEndpoints, OwnedCalls, OwnedBudgets:
	default:
		return "", fmt.Errorf("store: find an owner: there is no kind %q", string(kind))
	}
	text := `SELECT org_id FROM ` + string(kind) + ` WHERE id = $1`
	if kind == OwnedUsers {
		text += ` UNION ALL SELECT org_id FROM invitations WHERE id = $1`
	}
	return ReadRow(ctx, db, "find an owner", ScanValue[string], text, id)
}

const (
	// sealedSample is how many values of each sort SealedSample reads.
	sealedSample = 8
	// selectSealedSample reads the beginning of values, which names their key. Provider keys have no order of their own; an organization
	// has only a few, so they are sorted.
	selectSealedSample = `SELECT head FROM (SELECT substr(sealed, 1, 64) AS head FROM provider_keys
			ORDER BY updated_at DESC LIMIT $1) AS of_providers
		UNION ALL SELECT head FROM (SELECT substr(credentials, 1, 64) AS head FROM channels
			WHERE credentials IS NOT NULL ORDER BY id DESC LIMIT $1) AS of_channels
		UNION ALL SELECT head FROM (SELECT substr(body, 1, 64) AS head FROM messages ORDER BY id DESC LIMIT $1) AS of_customers
		UNION ALL SELECT head FROM (SELECT substr(response, 1, 64) AS head FROM kept_answers LIMIT $1) AS of_calls
		UNION ALL SELECT head FROM (SELECT substr(secret, 1, 64) AS head FROM event_endpoints ORDER BY id DESC LIMIT $1) AS of_endpoints`
)

// SealedSample reads the first 64 bytes of the newest values that are sealed with the master key: up to 8 each of provider keys,
// credentials of channels, messages of customers, and responses kept for an Idempotency-Key. It is bounded to 2 s.
func (db *DB) SealedSample(ctx context.Context) ([][]byte, error) {
	return ReadRows(ctx, db, "read sealed values", ScanValue[[]byte], selectSealedSample, sealedSample)
}

// The types of the drivers and the writer that every user of a store needs.
type (
	// Engine is [driver.Engine].
	Engine = driver.Engine
	// Location is [driver.Location].
	Location = driver.Location
	// Env is [driver.Env].
	Env = driver.Env
	// Row is [driver.Row].
	Row = driver.Row
	// Tx is [driver.Tx].
	Tx = driver.Tx
	// Route is [driver.Route].
	Route = driver.Route
	// RouteKey is [driver.RouteKey].
	RouteKey = driver.RouteKey
	// KeyRecord is [driver.KeyRecord].
	KeyRecord = driver.KeyRecord
	// KeyModels is [driver.KeyModels].
	KeyModels = driver.KeyModels
	// Windows is [driver.Windows].
	Windows = driver.Windows
	// KeyTerms is [driver.KeyTerms].
	KeyTerms = driver.KeyTerms
	// Permit is [driver.Permit].
	Permit = driver.Permit

	// Kind is [writer.Kind].
	Kind = writer.Kind
	// RowLocking is [writer.RowLocking].
	RowLocking = writer.RowLocking
	// Op is [writer.Op].
	Op = writer.Op
	// Urgent is [writer.Urgent].
	Urgent = writer.Urgent
	// Undoer is [writer.Undoer].
	Undoer = writer.Undoer
	// Sized is [writer.Sized].
	Sized = writer.Sized
	// Joint is [writer.Joint].
	Joint = writer.Joint
	// PendingWrite is [writer.PendingWrite].
	PendingWrite = writer.PendingWrite
	// Batch is [writer.Batch].
	Batch = writer.Batch
	// WriterObserver is [writer.Observer].
	WriterObserver = writer.Observer
)

// The constants of the drivers.
const (
	SQLite   = driver.SQLite
	Postgres = driver.Postgres

	Live = driver.Live
	Test = driver.Test

	AnyRows    = driver.AnyRows
	RetryAfter = driver.RetryAfter
)

// The errors of the drivers and the writer, see [driver.ErrNotFound] and those beside it.
var (
	ErrNotFound      = driver.ErrNotFound
	ErrConflict      = driver.ErrConflict
	ErrClosed        = driver.ErrClosed
	ErrBusy          = driver.ErrBusy
	ErrOverloaded    = driver.ErrOverloaded
	ErrCommitUnknown = driver.ErrCommitUnknown
	ErrRows          = driver.ErrRows
	ErrText          = driver.ErrText
	ErrUnsupported   = driver.ErrUnsupported
)

// ParseLocation is [driver.ParseLocation].
func ParseLocation(engine Engine, dsn string) (Location, error) {
	return driver.ParseLocation(engine, dsn)
}

// Counts is how many of the resources that an operator makes are stored, over all organizations.
type Counts struct {
	Organizations, Suspended int64
	// Users have a password; Invited people haven't set one yet.
	Users, Invited int64
	// Keys are the API keys that are not revoked, and Channels the channels in all states.
	Keys, Agents, ProviderKeys, KnowledgeBases, Channels int64
}

const selectCounts = `SELECT
	(SELECT count(*) FROM organizations), (SELECT count(*) FROM organizations WHERE suspended_at IS NOT NULL),
	(SELECT count(*) FROM users), (SELECT count(*) FROM invitations),
	(SELECT count(*) FROM api_keys WHERE revoked_at IS NULL), (SELECT count(*) FROM agents),
	(SELECT count(*) FROM provider_keys), (SELECT count(*) FROM knowledge_bases), (SELECT count(*) FROM channels)`

// Counts counts them. It reads the tables from end to end: it is for people, not for requests.
func (db *DB) Counts(ctx context.Context) (Counts, error) {
	return ReadRow(ctx, db, "count what is stored", ScanFields[Counts](), selectCounts)
}

// processForgotten is the time without a sign of life after which a process counts as ended: four signs are missing.
const processForgotten = time.Minute

// ProcessInterval is the time between two signs of life of a process.
const ProcessInterval = processForgotten / 4

// Process is a server or worker that uses the store.
type Process struct {
	// ID is unique among all processes that ever were.
	ID string
	// Name identifies the process for the operator.
	Name string
	// KeyIDs are the ids of the keys in its master_key, the first key's first.
	KeyIDs []string `db:"words"`
}

// Processes are the servers and workers that use the store. Commands aren't among them.
type Processes struct{ db *DB }

// Announce stores a process as living, and forgets others that have shown no sign of life for a minute. A process calls it every
// [ProcessInterval], and when it gets other keys.
func (p Processes) Announce(ctx context.Context, process Process) error {
	return p.db.ExecQueued(ctx, func(tx Tx) {
		tx.Queue(1, `INSERT INTO processes (id, name, key_ids, seen_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name, key_ids = excluded.key_ids, seen_at = excluded.seen_at`,
			process.ID, process.Name, strings.Join(process.KeyIDs, " "), tx.Now())
		from, to := livingAt(tx.Now())
		tx.Queue(AnyRows, `DELETE FROM processes WHERE seen_at NOT BETWEEN $1 AND $2`, from, to)
	})
}

// End forgets a process, which has ended.
func (p Processes) End(ctx context.Context, id string) error {
	return p.db.ExecQueued(ctx, func(tx Tx) { tx.Queue(AnyRows, `DELETE FROM processes WHERE id = $1`, id) })
}

// Living reads the processes that have shown a sign of life within the last minute, by name.
func (p Processes) Living(ctx context.Context) ([]Process, error) {
	now, err := p.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	from, to := livingAt(now)
	return ReadRows(ctx, p.db, "read the processes", ScanFields[Process](),
		`SELECT id, name, key_ids FROM processes WHERE seen_at BETWEEN $1 AND $2 ORDER BY name, id`, from, to)
}

// livingAt returns the bounds of the last sign of life of a living process. A time ahead comes from a clock that was set back since.
func livingAt(now int64) (from, to int64) {
	const forgotten = int64(processForgotten / time.Millisecond)
	return now - forgotten, now + forgotten
}
