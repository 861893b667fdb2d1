package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store/schema"
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
	Organizations      Organizations
	Processes          Processes
	ProviderKeys       ProviderKeys
	Routes             Routes
	Sessions           Sessions
	UserLinks          UserLinks
	Users              Users
	Widgets            Widgets
}

func newResources(db *DB) Resources {
	return Resources{
		APIKeys:            APIKeys{db},
		Agents:             Agents{db},
		AuditLog:           AuditLog{db},
		ChannelCredentials: ChannelCredentials{db},
		Channels:           Channels{db},
		Chunks:             Chunks{db},
		Documents:          Documents{db},
		EventDeliveries:    EventDeliveries{db},
		EventEndpoints:     EventEndpoints{db},
		EventWatch:         EventWatch{db},
		IDKeys:             IDKeys{db},
		KnowledgeBases:     KnowledgeBases{db},
		Logins:             Logins{db},
		Organizations:      Organizations{db},
		Processes:          Processes{db},
		ProviderKeys:       ProviderKeys{db},
		Routes:             Routes{db},
		Sessions:           Sessions{db},
		UserLinks:          UserLinks{db},
		Users:              Users{db},
		Widgets:            Widgets{db},
	}
}

// Errors of resources that a caller distinguishes with [errors.Is]. None of them carries a value that was written or asked
// for. [ErrNotFound] and [ErrConflict] are the usual ones.
var (
	// ErrAgentNotFound: the organization has no agent with the id that a channel shall have. It is an ErrNotFound, too.
	ErrAgentNotFound = fmt.Errorf("%w: the agent", ErrNotFound)
	// ErrKnowledgeBaseNotFound: the organization has no knowledge base with an id that an agent shall have. It is an
	// ErrNotFound, too.
	ErrKnowledgeBaseNotFound = fmt.Errorf("%w: the knowledge base", ErrNotFound)
	// ErrLimit: the organization has as many as its plan, or the store, allows. Nothing happened.
	ErrLimit = errors.New("store: limit reached")
	// ErrSalt: a user with the same e-mail address has another password than the one whose salt was used. Nothing happened.
	ErrSalt = errors.New("store: another salt")
	// ErrTooSoon: the same was done a moment ago. Nothing happened.
	ErrTooSoon = errors.New("store: too soon")
	// ErrLastOwner: the organization would have no owner left who can sign in. Nothing happened.
	ErrLastOwner = errors.New("store: the last owner")
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
)

// lockOrganization makes other transactions that lock the organization wait. On PostgreSQL the next statement sees what was committed
// while the lock was waited for. It returns [ErrNotFound] for an unknown organization.
func lockOrganization(ctx context.Context, tx Tx, orgID string) error {
	return change(ctx, tx, `SELECT id FROM organizations WHERE id = $1`+tx.LockRows(), orgID)
}

// checkRoom returns [ErrLimit] if count, a query with the organization as its only argument, finds at least most. It locks the
// organization, so that another creation waits for this one. It returns [ErrNotFound] for an unknown organization.
func checkRoom(ctx context.Context, tx Tx, orgID string, most int64, count string) error {
	if err := lockOrganization(ctx, tx, orgID); err != nil {
		return err
	}
	var rows int64
	err := tx.Query(ctx, func(row Row) error { return row.Scan(&rows) }, count, orgID)
	if err == nil && rows >= most {
		err = ErrLimit
	}
	return err
}

// OwnedKind is a sort of resource that belongs to an organization.
type OwnedKind string

// The sorts of resources whose owner can be asked for.
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
)

// OwnerOf returns the organization that a resource belongs to, or [ErrNotFound]. It is for ids that an
// organization doesn't have: they are forbidden when another organization has them, and unknown otherwise.
func (db *DB) OwnerOf(ctx context.Context, kind OwnedKind, id string) (orgID string, err error) {
	switch kind {
	case OwnedAgents, OwnedChannels, OwnedConversations, OwnedAPIKeys, OwnedUsers, OwnedKnowledgeBases, OwnedDocuments,
		OwnedEventEndpoints, OwnedCalls:
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
	// selectSealedSample reads the beginning of values: a value names its key there. Provider keys have no order of their
	// own; there are a few for an organization at most, so they are sorted.
	selectSealedSample = `SELECT head FROM (SELECT substr(sealed, 1, 64) AS head FROM provider_keys
			ORDER BY updated_at DESC LIMIT $1) AS of_providers
		UNION ALL SELECT head FROM (SELECT substr(credentials, 1, 64) AS head FROM channels
			WHERE credentials IS NOT NULL ORDER BY id DESC LIMIT $1) AS of_channels
		UNION ALL SELECT head FROM (SELECT substr(body, 1, 64) AS head FROM messages ORDER BY id DESC LIMIT $1) AS of_customers
		UNION ALL SELECT head FROM (SELECT substr(response, 1, 64) AS head FROM kept_answers LIMIT $1) AS of_calls
		UNION ALL SELECT head FROM (SELECT substr(secret, 1, 64) AS head FROM event_endpoints ORDER BY id DESC LIMIT $1) AS of_endpoints`
)

// SealedSample reads the first 64 bytes of the newest values that are sealed with the master key: at most 8 each of provider
// keys, credentials of channels, messages of customers, and answers kept for an Idempotency-Key. It takes 2 s at most.
func (db *DB) SealedSample(ctx context.Context) ([][]byte, error) {
	return ReadRows(ctx, db, "read sealed values", ScanValue[[]byte], selectSealedSample, sealedSample)
}
