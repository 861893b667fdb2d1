package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Organization is a tenant.
type Organization struct {
	ID          string
	Name        string // unique
	Plan        string // the name of a plan in the Caddyfile
	CreatedAt   int64  // epoch milliseconds; 0 when it is written: the transaction's clock
	SuspendedAt sql.NullInt64
	// RetentionDays is the number of days for which conversations are kept. 0, as in a new organization, means unlimited.
	RetentionDays int64
	// LowBalanceMicros is the balance of the live wallet below which people are notified; 0, as in a new organization, means never.
	// WaitingMinutes is a customer's wait after which people are notified; 0 means never. It is [DefaultWaitingMinutes] in a new
	// organization.
	LowBalanceMicros, WaitingMinutes int64
	// ExternalID is the operator's own id of the organization, which no other organization has. It may be empty.
	ExternalID string `db:"null"`
	// FirstPlan is the plan that the organization began with.
	FirstPlan string
	// SuspensionReason says why a suspended organization is suspended. Empty means no reason was given.
	SuspensionReason string
	// TimeZone is the IANA name of the zone in which the organization's days and months begin, [DefaultTimeZone] in a new organization.
	TimeZone string
	// BudgetVersion counts the changes of the organization's budgets. 0 means that it never had one.
	BudgetVersion int64
}

var organizations = newTable("organizations o", func(o *Organization) []field {
	return []field{{"search_name", convert(func() string { return searchName(o.Name) }, func(string) {})}}
})

// DefaultWaitingMinutes is the WaitingMinutes of a new organization.
const DefaultWaitingMinutes = 15

// DefaultTimeZone is the TimeZone of a new organization.
const DefaultTimeZone = "UTC"

// Organizations reads and writes organizations.
type Organizations struct{ db *DB }

// Create adds an organization. It returns [ErrConflict] if the name, the id or the external id is in use.
func (o Organizations) Create(ctx context.Context, actor string, organization Organization) error {
	return o.db.ExecQueued(ctx, func(tx Tx) {
		organization.CreatedAt = orNow(tx, organization.CreatedAt)
		organization.RetentionDays, organization.LowBalanceMicros, organization.WaitingMinutes = 0, 0, DefaultWaitingMinutes
		organization.FirstPlan, organization.TimeZone, organization.BudgetVersion = organization.Plan, DefaultTimeZone, 0
		organizations.queueInsert(tx, &organization)
		audit(tx, actor, "organization.create", organization.ID, organization.ID, organization.Name)
	})
}

// All reads all organizations, oldest first.
func (o Organizations) All(ctx context.Context) ([]Organization, error) {
	return ReadRows(ctx, o.db, "list organizations", organizations.scan, organizations.selected+` ORDER BY created_at, id`)
}

// searchName returns a name as it is searched: in small letters without marks, so that "tiem" finds "Tiệm".
func searchName(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case unicode.Is(unicode.Mn, c):
			return -1
		case c == 'đ':
			return 'd'
		default:
			return c
		}
	}, norm.NFD.String(strings.ToLower(name)))
}

// OrganizationFilter selects organizations. The zero value selects all.
type OrganizationFilter struct {
	// Text is the beginning of a name, in any case and with or without marks, or an id, of the service or of the operator.
	Text string
	// ExternalID is an id of the operator. Plan is the name of a plan.
	ExternalID, Plan string
	// Suspended selects suspended organizations, or the others. Nil selects both.
	Suspended *bool
	// CreatedSince is the time of the oldest organization, in epoch milliseconds. 0 selects all.
	CreatedSince int64
}

// namedBy is the condition of organizations that a text names. Its parameters are the [searchName] of the text, the end of the names that begin
// with it, and the text.
const namedBy = `(o.search_name >= $1 AND o.search_name < $2 OR o.id = $3 OR o.external_id = $3)`

// naming returns the parameters of namedBy.
func naming(text string) []any {
	first := searchName(text)
	return []any{first, first + string(unicode.MaxRune), text}
}

// Search reads a page of the organizations that a filter selects, in the order of their ids.
func (o Organizations) Search(ctx context.Context, filter OrganizationFilter, page Page) ([]Organization, error) {
	text, arguments := organizations.selected+` WHERE o.id > ''`, []any(nil)
	if filter.Text != "" {
		text, arguments = text+` AND `+namedBy, naming(filter.Text)
	}
	where := func(given bool, condition string, value any) {
		if given {
			arguments = append(arguments, value)
			text += ` AND ` + condition + ` $` + strconv.Itoa(len(arguments))
		}
	}
	where(filter.ExternalID != "", `o.external_id =`, filter.ExternalID)
	where(filter.Plan != "", `o.plan =`, filter.Plan)
	where(filter.CreatedSince > 0, `o.created_at >=`, filter.CreatedSince)
	if filter.Suspended != nil {
		text += map[bool]string{true: ` AND o.suspended_at IS NOT NULL`, false: ` AND o.suspended_at IS NULL`}[*filter.Suspended]
	}
	return readPage(ctx, o.db, "search organizations", organizations.scan, text, "o.id", page, arguments...)
}

// Found is an organization, one of its keys, channels or calls, by the name of its table.
type Found struct{ Table, ID, OrgID, OrgName string }

// Find reads up to rows of the organizations, API keys, channels and calls that a text names: as [Organizations.Search] finds an organization,
// by the id of a key, by the characters of a key that its hint shows, or by the id of a channel or a call.
func (o Organizations) Find(ctx context.Context, text string, rows int) ([]Found, error) {
	hint, call := "", text
	if digits := len("ck_live_") + 4; strings.HasPrefix(text, "ck_") && len(text) >= digits {
		hint = text[:digits] + "…"
	}
	if answer, named := strings.CutPrefix(text, "chatcmpl-"); named {
		call = "call_" + answer
	}
	return ReadRows(ctx, o.db, "search", ScanFields[Found](),
		`SELECT 'organizations', id, org_id, name FROM (SELECT id, id AS org_id, name FROM organizations o
			WHERE `+namedBy+` ORDER BY search_name, id LIMIT $6) AS named
		UNION ALL SELECT 'api_keys', k.id, o.id, o.name FROM api_keys k JOIN organizations o ON o.id = k.org_id WHERE k.id = $3
		UNION ALL SELECT 'api_keys', id, org_id, name FROM (SELECT k.id, k.org_id, o.name FROM api_keys k JOIN organizations o ON o.id = k.org_id
			WHERE k.hint = $4 LIMIT $6) AS hinted
		UNION ALL SELECT 'channels', c.id, o.id, o.name FROM channels c JOIN organizations o ON o.id = c.org_id WHERE c.id = $3
		UNION ALL SELECT 'calls', c.id, o.id, o.name FROM calls c JOIN organizations o ON o.id = c.org_id WHERE c.id = $5`,
		append(naming(text), hint, call, rows)...)
}

// OrganizationCounts are numbers of organizations.
type OrganizationCounts struct{ All, New, Suspended int64 }

// Counts counts the organizations, the ones created since a moment, and the suspended ones.
func (o Organizations) Counts(ctx context.Context, since int64) (OrganizationCounts, error) {
	return ReadRow(ctx, o.db, "count organizations", ScanFields[OrganizationCounts](),
		`SELECT count(*), count(CASE WHEN created_at >= $1 THEN 1 END), count(suspended_at) FROM organizations`, since)
}

// ByID reads one organization. It returns [ErrNotFound] if there is none.
func (o Organizations) ByID(ctx context.Context, id string) (Organization, error) {
	return ReadRow(ctx, o.db, "read an organization", organizations.scan, organizations.selected+` WHERE id = $1`, id)
}

// ByExternalID reads the organization with the operator's own id. It returns [ErrNotFound] if there is none.
func (o Organizations) ByExternalID(ctx context.Context, id string) (Organization, error) {
	return ReadRow(ctx, o.db, "read an organization", organizations.scan, organizations.selected+` WHERE external_id = $1`, id)
}

// SetSuspended suspends or resumes an organization for a reason, which may be empty. It returns [ErrNotFound] if there is none. A repeated
// suspension keeps the time of the first.
func (o Organizations) SetSuspended(ctx context.Context, actor, id string, suspended bool, reason string) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		entry := AuditEntry{Actor: actor, Action: "organization.resume", Target: id, OrgID: id, Detail: reason}
		text, arguments := `UPDATE organizations SET suspended_at = NULL, suspension_reason = '' WHERE id = $1 RETURNING id`, []any{id}
		if suspended {
			entry.Action = "organization.suspend"
			text = `UPDATE organizations SET suspended_at = COALESCE(suspended_at, $2), suspension_reason = $3 WHERE id = $1 RETURNING id`
			arguments = append(arguments, tx.Now(), reason)
		}
		if err := change(ctx, tx, text, arguments...); err != nil {
			return err
		}
		QueueAudit(tx, entry)
		return nil
	})
}

// SetPlan puts an organization on a plan. It returns [ErrNotFound] for an unknown organization. It doesn't check that the plan exists.
func (o Organizations) SetPlan(ctx context.Context, actor, id, plan string) error {
	return execAudited(ctx, o.db, AuditEntry{Actor: actor, Action: "organization.set_plan", Target: id, OrgID: id, Detail: plan},
		`UPDATE organizations SET plan = $2 WHERE id = $1 RETURNING id`, id, plan)
}

// SetTimeZone sets the zone of an organization's days and months. It returns [ErrNotFound] for an unknown organization. It doesn't check that the
// zone exists.
func (o Organizations) SetTimeZone(ctx context.Context, actor, id, zone string) error {
	return execAudited(ctx, o.db, AuditEntry{Actor: actor, Action: "organization.set_time_zone", Target: id, OrgID: id, Detail: zone},
		`UPDATE organizations SET time_zone = $2 WHERE id = $1 RETURNING id`, id, zone)
}

// Models reads the organization's exceptions: the models it has switched on or off. A model without an entry is
// enabled. It costs what [APIKeys.ByHash] costs.
func (o Organizations) Models(ctx context.Context, orgID string) (map[string]bool, error) {
	return o.db.hot.Models(ctx, orgID)
}

// SetModel enables or disables a model for an organization. It returns [ErrNotFound] for an unknown organization. It doesn't check that the
// model exists: an exception may outlive its model.
func (o Organizations) SetModel(ctx context.Context, actor, orgID, model string, enabled bool) error {
	return o.db.ExecQueued(ctx, func(tx Tx) {
		tx.Queue(1, `INSERT INTO org_models (org_id, model, enabled) VALUES ($1, $2, $3)
			ON CONFLICT (org_id, model) DO UPDATE SET enabled = excluded.enabled`, orgID, model, enabled)
		audit(tx, actor, "org_model.set", model, orgID, "enabled="+strconv.FormatBool(enabled))
	})
}

// The bounds of an organization's retention in days. The least is for how long platforms repeat a delivery (7 days,
// at the longest): the ids by which repetitions are merged go with the messages.
const (
	MinRetentionDays = 7
	MaxRetentionDays = 3650
)

// ErrRetention is returned for a retention that is neither 0 nor within its bounds.
var ErrRetention = errors.New("the retention must be 0 days, or 7 to 3650")

// SetRetention sets the number of days for which an organization keeps its conversations and the records of calls without a charge; 0 means
// unlimited. It returns [ErrRetention] for a number out of bounds and [ErrNotFound] for an unknown organization. The same retention again
// changes nothing.
func (o Organizations) SetRetention(ctx context.Context, actor, id string, days int64) error {
	if days != 0 && (days < MinRetentionDays || days > MaxRetentionDays) {
		return fmt.Errorf("store: set a retention of %d days: %w", days, ErrRetention)
	}
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		var before int64
		err := queryRow(ctx, tx, []any{&before}, `SELECT retention_days FROM organizations WHERE id = $1`+tx.LockRows(), id)
		if err != nil || before == days {
			return err
		}
		tx.Queue(1, `UPDATE organizations SET retention_days = $2 WHERE id = $1`, id, days)
		audit(tx, actor, "organization.set_retention", id, id, fmt.Sprintf("%d days", days))
		return nil
	})
}

// EventBounds are an organization's bounds, beyond which people are told; nil leaves one as it is.
type EventBounds struct{ LowBalanceMicros, WaitingMinutes *int64 }

// SetEventBounds sets when people of an organization are told, or returns [ErrNotFound]. The bounds are not negative.
func (o Organizations) SetEventBounds(ctx context.Context, actor, id string, bounds EventBounds) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		var low, minutes int64
		err := queryRow(ctx, tx, []any{&low, &minutes},
			`SELECT low_balance_micros, waiting_minutes FROM organizations WHERE id = $1`+tx.LockRows(), id)
		if err != nil {
			return err
		}
		low, minutes = *cmp.Or(bounds.LowBalanceMicros, &low), *cmp.Or(bounds.WaitingMinutes, &minutes)
		tx.Queue(1, `UPDATE organizations SET low_balance_micros = $2, waiting_minutes = $3,
			low_balance_since = CASE WHEN low_balance_micros > 0 THEN low_balance_since ELSE 0 END WHERE id = $1`, id, low, minutes)
		audit(tx, actor, "organization.set_event_bounds", id, id, fmt.Sprintf("wallet below %d micros, waiting %d minutes", low, minutes))
		return nil
	})
}

// Retention is for how many days an organization keeps its conversations.
type Retention struct {
	OrgID string
	Days  int64
}

// Retentions reads a page of the organizations that don't keep their conversations for ever, in order of id.
func (o Organizations) Retentions(ctx context.Context, page Page) ([]Retention, error) {
	return readPage(ctx, o.db, "list retentions", ScanFields[Retention](),
		`SELECT id, retention_days FROM organizations WHERE retention_days > 0`, "id", page)
}

// AuditEntry records the actor, the action and its target. No field carries a secret.
type AuditEntry struct {
	ID     string // made when it is written, unless it is given
	At     int64  // epoch milliseconds; 0 when it is written: the transaction's clock
	Actor  string // cli:<account>, key_…, usr_… or a part of the service
	Action string // resource.verb: organization.create, api_key.revoke
	Target string // id or name of what was acted on
	OrgID  string // "" when no organization is concerned
	Detail string // free text for a human
}

var auditLog = newTable[AuditEntry]("audit_log", nil)

// QueueAudit writes an entry in the transaction of the recorded change, so that both are committed together.
func QueueAudit(tx Tx, entry AuditEntry) {
	entry.ID, entry.At = cmp.Or(entry.ID, NewID("aud")), orNow(tx, entry.At)
	auditLog.queueInsert(tx, &entry)
}

// audit is [QueueAudit] for an entry of the transaction's time.
func audit(tx Tx, actor, action, target, orgID, detail string) {
	QueueAudit(tx, AuditEntry{Actor: actor, Action: action, Target: target, OrgID: orgID, Detail: detail})
}

// AuditLog reads and writes the audit log.
type AuditLog struct{ db *DB }

// Add writes an entry about something that happened outside the database.
func (l AuditLog) Add(ctx context.Context, entry AuditEntry) error {
	return l.db.ExecQueued(ctx, func(tx Tx) { QueueAudit(tx, entry) })
}

// List reads a page of the entries about an organization, or of all entries if orgID is empty. The newest come first, and After is the id of the
// oldest entry of the page before.
func (l AuditLog) List(ctx context.Context, orgID string, page Page) ([]AuditEntry, error) {
	if orgID == "" {
		return ReadRows(ctx, l.db, "read the audit log", auditLog.scan,
			auditLog.selected+` WHERE id < $1 ORDER BY id DESC LIMIT $2`, cmp.Or(page.After, "b"), page.Rows()) // every id begins with aud
	}
	return ReadRows(ctx, l.db, "read the audit log", auditLog.scan,
		auditLog.selected+` WHERE org_id = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3`, orgID, page.After, page.Rows())
}
