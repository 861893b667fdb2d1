package billing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// OwnerKind is the kind of owner of the calls that a budget counts.
type OwnerKind string

// The kinds of owners.
const (
	OwnerOrganization OwnerKind = "organization"
	OwnerAPIKey       OwnerKind = "api_key"
	OwnerAssistant    OwnerKind = "assistant"
)

// Budget limits the spending of an organization, an API key or an assistant from a wallet in each period. Several budgets may count a call. It needs
// room in all of them.
type Budget struct {
	ID     string
	Wallet WalletID
	Owner  OwnerKind
	// OwnerID is the id of the API key or the assistant. It is empty for an organization.
	OwnerID string
	Name    string
	Period  Period
	// LimitMicros is the limit without temporary rises. 0 means that nothing may be spent.
	LimitMicros int64
	// Thresholds are the percentages of the limit of which an event is made, once in each period, in rising order.
	Thresholds []int64
	// CreatedAt and EndedAt are in epoch milliseconds. Only calls after the creation count. EndedAt is 0 while the budget is in use.
	CreatedAt, EndedAt int64
}

// DefaultThresholds returns the thresholds of a budget that names none.
func DefaultThresholds() []int64 { return []int64{50, 80, 100} }

// MaxBudgets is the largest number of open budgets of a wallet.
const MaxBudgets = 500

// maxBudgetName limits the name of a budget in bytes, and maxThresholds the number of its thresholds.
const (
	maxBudgetName = 200
	maxThresholds = 10
)

func (b *Budget) owner() budgetOwner { return budgetOwner{b.Wallet, b.Owner, b.OwnerID} }

func (b *Budget) validate() error {
	rising := slices.IsSorted(b.Thresholds) && len(slices.Compact(slices.Clone(b.Thresholds))) == len(b.Thresholds)
	switch {
	case !slices.Contains([]OwnerKind{OwnerOrganization, OwnerAPIKey, OwnerAssistant}, b.Owner):
		return invalidField("owner", "must be an organization, an api_key or an assistant")
	case !slices.Contains([]Period{PeriodDay, PeriodWeek, PeriodMonth, PeriodTotal}, b.Period):
		return invalidField("period", "must be day, week, month or total")
	case (b.Owner == OwnerOrganization) != (b.OwnerID == ""):
		return invalidField("owner", "needs its id, unless it is the organization")
	case !isLine(b.Name, maxBudgetName):
		return invalidField("name", "must be UTF-8 text of 1 to %d bytes", maxBudgetName)
	case b.LimitMicros < 0:
		return invalidField("limitMicros", "can't be negative; 0 means that nothing may be spent")
	case !rising || len(b.Thresholds) > maxThresholds || slices.ContainsFunc(b.Thresholds, func(t int64) bool { return t < 1 || t > 100 }):
		return invalidField("thresholds", "must be up to %d percentages from 1 to 100, in rising order", maxThresholds)
	}
	return b.Wallet.validate()
}

// FieldError is an [ErrInvalid] of one field of a budget or a rise, which has its name in the API.
type FieldError struct{ Field, Problem string }

func invalidField(field, problem string, arguments ...any) error {
	return &FieldError{field, fmt.Sprintf(problem, arguments...)}
}

// Error names the field and its fault.
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Unwrap returns [ErrInvalid].
func (*FieldError) Unwrap() error { return ErrInvalid }

// isLine reports whether a text isn't blank, not longer than a number of bytes, and storable.
func isLine(text string, most int) bool {
	return strings.TrimSpace(text) != "" && len(text) <= most && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// writeThresholds and readThresholds convert thresholds to and from their column.
func writeThresholds(thresholds []int64) string {
	words := store.Column(thresholds, func(t int64) string { return strconv.FormatInt(t, 10) })
	return strings.Join(words, " ")
}

// Budgeted is a call's part in the budgets of its organization. Its hold and its settlement have the same one.
type Budgeted struct {
	// KeyID and AgentID are the API key and the assistant of the call. They may be empty.
	KeyID, AgentID string
	// Version is the organization's budget_version when the call began. It is above 0.
	Version int64

	// periods are the names of the periods in which the hold has reserved its amount.
	periods string
}

// BudgetError is the refusal of a hold for which a budget has too little room. Clients get 402 plan_limit_exceeded.
type BudgetError struct {
	Budget Budget
	// LimitMicros is the limit with the present rises.
	LimitMicros                 int64
	SpentMicros, ReservedMicros int64
	// RoomMicros is the largest hold that would fit. It may be negative.
	RoomMicros int64
	// EndsAt is the end of the period in epoch milliseconds. It is 0 if the period has no end.
	EndsAt int64
}

// Error describes the budget and what helps, for people of the organization.
func (e *BudgetError) Error() string {
	text := fmt.Sprintf("The budget %q has too little left for this call: %s of %s micros are spent and %s are reserved for running calls.",
		e.Budget.Name, FormatMicros(e.SpentMicros), FormatMicros(e.LimitMicros), FormatMicros(e.ReservedMicros))
	if e.EndsAt == 0 {
		return text + " It does not end by itself; raise its limit."
	}
	return text + " It ends at " + time.UnixMilli(e.EndsAt).UTC().Format(time.RFC3339) + "; wait, or raise its limit."
}

// Errors of changes of budgets.
var (
	// ErrBudgetExists is returned for a second open budget of an owner with the same period.
	ErrBudgetExists = errors.New("the owner has a budget with this period")
	// ErrRiseEnded is returned for a rise with an end in the past.
	ErrRiseEnded = errors.New("the end of a rise must be in the future")
)

// selectOwner finds the owner of a budget. An assistant has no environment.
var selectOwner = map[OwnerKind]string{
	OwnerAPIKey:    `SELECT id FROM api_keys WHERE id = $1 AND org_id = $2 AND env = $3 AND revoked_at IS NULL`,
	OwnerAssistant: `SELECT id FROM agents WHERE id = $1 AND org_id = $2 AND $3 <> ''`,
}

const (
	selectBudget = `SELECT ` + budgetColumns + `, 0 FROM budgets b` + risesOfBudget + newestPeriod + `
		WHERE b.id = $1 AND b.org_id = $2 AND b.ended_at IS NULL`
	selectBudgetsOf = `SELECT ` + budgetColumns + `, 0 FROM budgets b` + risesOfBudget + newestPeriod + `
		WHERE b.org_id = $1 AND b.env = $2 AND b.ended_at IS NULL AND (b.owner_id = '' OR b.owner_kind = 'api_key' AND b.owner_id = $3
			OR b.owner_kind = 'assistant' AND b.owner_id = $4)`
	selectFull        = `SELECT id FROM budgets WHERE org_id = $1 AND env = $2 AND ended_at IS NULL ORDER BY id LIMIT 1 OFFSET $3`
	selectOpenBudgets = `SELECT ` + budgetColumns + `, 0 FROM budgets b` + risesOfBudget + newestPeriod + `
		WHERE b.org_id = $1 AND b.env = $2 AND b.ended_at IS NULL ORDER BY b.id`
)

// CreateBudget makes a budget, with [DefaultThresholds] if it has none, and returns it with its id. It counts the calls that begin after it. It
// returns [ErrBudgetExists], [store.ErrLimit] if the wallet has [MaxBudgets], [store.ErrNotFound] for an unknown organization, API key or assistant,
// [ErrInvalid], or a wrapped error of the store.
func (b *Book) CreateBudget(ctx context.Context, actor string, budget Budget) (Budget, error) {
	if budget.Thresholds == nil {
		budget.Thresholds = DefaultThresholds()
	}
	if err := budget.validate(); err != nil {
		return Budget{}, err
	}
	err := b.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		wallet := budget.Wallet
		if err := lockBudgets(ctx, tx, wallet); err != nil {
			return err
		}
		if selected := selectOwner[budget.Owner]; selected != "" {
			known, err := store.Changed(ctx, tx, selected, budget.OwnerID, wallet.OrgID, string(wallet.Env))
			if err != nil || !known {
				return cmp.Or(err, fmt.Errorf("%s %q: %w", budget.Owner, budget.OwnerID, store.ErrNotFound))
			}
		}
		exists, err := store.Changed(ctx, tx, `SELECT id FROM budgets WHERE org_id = $1 AND env = $2 AND owner_kind = $3 AND owner_id = $4
			AND period = $5 AND ended_at IS NULL`, wallet.OrgID, string(wallet.Env), string(budget.Owner), budget.OwnerID, string(budget.Period))
		if err != nil || exists {
			return cmp.Or(err, ErrBudgetExists)
		}
		full, err := store.Changed(ctx, tx, selectFull, wallet.OrgID, string(wallet.Env), MaxBudgets-1)
		if err != nil || full {
			return cmp.Or(err, store.ErrLimit)
		}
		budget.ID, budget.CreatedAt, budget.EndedAt = store.NewID("bud"), tx.Now(), 0
		tx.Queue(1, `INSERT INTO budgets (id, org_id, env, owner_kind, owner_id, name, period, limit_micros, thresholds, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, budget.ID, wallet.OrgID, string(wallet.Env), string(budget.Owner), budget.OwnerID,
			budget.Name, string(budget.Period), budget.LimitMicros, writeThresholds(budget.Thresholds), budget.CreatedAt)
		budget.audit(tx, actor, "create", budget.terms())
		return nil
	})
	if err != nil {
		return Budget{}, fmt.Errorf("create a budget: %w", err)
	}
	return budget, nil
}

// BudgetChange changes a budget. Nil leaves a field as it is.
type BudgetChange struct {
	Name        *string
	LimitMicros *int64
	Thresholds  []int64
}

// ChangeBudget changes an open budget from the next call on, and returns it. The limit may be lower than the spent amount: then nothing more is
// spent in the period. It returns [store.ErrNotFound], [ErrInvalid], [ErrOverflow] for a limit that is too large with the present rises, or a wrapped
// error of the store.
func (b *Book) ChangeBudget(ctx context.Context, actor, orgID, id string, change BudgetChange) (changed Budget, err error) {
	err = b.changeBudget(ctx, orgID, id, func(_ context.Context, tx store.Tx, budget *budgetRow) error {
		budget.Name, budget.LimitMicros = *cmp.Or(change.Name, &budget.Name), *cmp.Or(change.LimitMicros, &budget.LimitMicros)
		if change.Thresholds != nil {
			budget.Thresholds = change.Thresholds
		}
		if err := budget.validate(); err != nil {
			return err
		}
		if err := budget.raise(tx.Now(), 0); err != nil {
			return err
		}
		tx.Queue(1, `UPDATE budgets SET name = $3, limit_micros = $4, thresholds = $5 WHERE id = $1 AND org_id = $2`, id, orgID, budget.Name,
			budget.LimitMicros, writeThresholds(budget.Thresholds))
		changed = budget.Budget
		budget.audit(tx, actor, "change", budget.terms())
		return nil
	})
	return changed, err
}

// EndBudget ends an open budget from the next call on. It returns [store.ErrNotFound] if there is none, or a wrapped error of the store.
func (b *Book) EndBudget(ctx context.Context, actor, orgID, id string) error {
	return b.changeBudget(ctx, orgID, id, func(_ context.Context, tx store.Tx, budget *budgetRow) error {
		tx.Queue(1, `UPDATE budgets SET ended_at = $3 WHERE id = $1 AND org_id = $2`, id, orgID, tx.Now())
		budget.audit(tx, actor, "end", "")
		return nil
	})
}

// BudgetRise is a temporary rise of a budget's limit.
type BudgetRise struct {
	ID           string
	AmountMicros int64
	// EndsAt and CreatedAt are in epoch milliseconds.
	EndsAt    int64
	Reason    string
	CreatedBy string
	CreatedAt int64
}

// RaiseBudget raises the limit of an open budget until a moment, for a reason, and returns the rise with its id. It returns [store.ErrNotFound],
// [ErrInvalid], [ErrRiseEnded], [ErrOverflow], or a wrapped error of the store.
func (b *Book) RaiseBudget(ctx context.Context, actor, orgID, id string, rise BudgetRise) (BudgetRise, error) {
	switch {
	case rise.AmountMicros <= 0:
		return BudgetRise{}, invalidField("amountMicros", "must be above 0")
	case !isLine(rise.Reason, maxTextBytes):
		return BudgetRise{}, invalidField("reason", "must be UTF-8 text of 1 to %d bytes", maxTextBytes)
	}
	err := b.changeBudget(ctx, orgID, id, func(_ context.Context, tx store.Tx, budget *budgetRow) error {
		if rise.EndsAt <= tx.Now() {
			return ErrRiseEnded
		}
		if err := budget.raise(tx.Now(), rise.AmountMicros); err != nil {
			return err
		}
		rise.ID, rise.CreatedBy, rise.CreatedAt = store.NewID("rise"), actor, tx.Now()
		tx.Queue(store.AnyRows, `UPDATE budget_rises SET past = TRUE WHERE org_id = $1 AND budget_id = $2 AND NOT past AND ends_at <= $3`,
			orgID, id, tx.Now())
		tx.Queue(1, `INSERT INTO budget_rises (id, org_id, budget_id, amount_micros, ends_at, reason, created_by, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, rise.ID, orgID, id, rise.AmountMicros, rise.EndsAt, rise.Reason, actor, rise.CreatedAt)
		budget.audit(tx, actor, "raise", fmt.Sprintf("%s micros until %s: %s", FormatMicros(rise.AmountMicros),
			time.UnixMilli(rise.EndsAt).UTC().Format(time.RFC3339), rise.Reason))
		return nil
	})
	return rise, err
}

// raise returns [ErrOverflow] if the limit with the rises that have not ended and one more is too large.
func (r *budgetRow) raise(now, more int64) error {
	limit, err := addMicros(r.LimitMicros, more)
	for _, rise := range r.rises {
		if rise.endsAt > now && err == nil {
			limit, err = addMicros(limit, rise.micros)
		}
	}
	return err
}

// terms describes a budget for the audit log.
func (b *Budget) terms() string {
	return fmt.Sprintf("%s, %s %s: %s micros, period %s, thresholds %s", b.Name, b.Owner, b.OwnerID, FormatMicros(b.LimitMicros), b.Period,
		writeThresholds(b.Thresholds))
}

func (b *Budget) audit(tx store.Tx, actor, verb, detail string) {
	store.QueueAudit(tx, store.AuditEntry{Actor: actor, Action: "budget." + verb, Target: b.ID, OrgID: b.Wallet.OrgID, Detail: detail})
}

// lockBudgets locks a wallet, which it makes if it is missing, for a change of its budgets, and counts the change. The organization is locked
// first, without a conflict with transactions that make a wallet of it.
func lockBudgets(ctx context.Context, tx store.Tx, wallet WalletID) error {
	known, err := store.Changed(ctx, tx, `UPDATE organizations SET budget_version = budget_version + 1 WHERE id = $1 RETURNING id`, wallet.OrgID)
	if err != nil || !known {
		return cmp.Or(err, fmt.Errorf("organization %q: %w", wallet.OrgID, store.ErrNotFound))
	}
	tx.Queue(store.AnyRows, insertWallet, wallet.OrgID, string(wallet.Env))
	return tx.Query(ctx, func(store.Row) error { return nil },
		`SELECT org_id FROM wallets WHERE org_id = $1 AND env = $2`+tx.LockRows(), wallet.OrgID, string(wallet.Env))
}

// changeBudget calls change with an open budget, under the lock of its wallet.
func (b *Book) changeBudget(ctx context.Context, orgID, id string, change func(context.Context, store.Tx, *budgetRow) error) error {
	err := b.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		read := func() (*budgetRow, error) {
			books := &books{}
			if err := tx.Query(ctx, books.scanBudget, selectBudget, id, orgID); err != nil {
				return nil, err
			}
			if books.budgets[id] == nil {
				return nil, fmt.Errorf("budget %q: %w", id, store.ErrNotFound)
			}
			return books.budgets[id], nil
		}
		budget, err := read()
		if err != nil {
			return err
		}
		if err := lockBudgets(ctx, tx, budget.Wallet); err != nil {
			return err
		}
		if budget, err = read(); err != nil { // it may have changed before the lock
			return err
		}
		tx.Queue(store.AnyRows, `UPDATE budget_spend SET refused_at = 0 WHERE org_id = $1 AND budget_id = $2 AND refused_at > 0`, orgID, id)
		return change(ctx, tx, budget)
	})
	return store.Wrap("change a budget", err)
}

// BudgetState is a budget with its present period.
type BudgetState struct {
	Budget
	// RisenMicros is the sum of the rises that have not ended. They add to the limit.
	RisenMicros                 int64
	SpentMicros, ReservedMicros int64
	// BeginsAt and EndsAt are the bounds of the period in epoch milliseconds. EndsAt is 0 if the period has no end.
	BeginsAt, EndsAt int64
	// RefusedAt is the time of the first call that was refused since the last change of these amounts or of the budget. It is 0 if there is none, or
	// if nothing was reserved in the period.
	RefusedAt int64
}

// Budgets reads the open budgets of a wallet in the order of their creation. It returns [ErrInvalid] or an error of reading.
func (b *Book) Budgets(ctx context.Context, wallet WalletID) ([]BudgetState, error) {
	if err := wallet.validate(); err != nil {
		return nil, err
	}
	return b.budgetStates(ctx, selectOpenBudgets, wallet.OrgID, string(wallet.Env))
}

// Budget reads an open budget. It returns [store.ErrNotFound] if there is none, or an error of reading.
func (b *Book) Budget(ctx context.Context, orgID, id string) (BudgetState, error) {
	states, err := b.budgetStates(ctx, selectBudget, id, orgID)
	if err != nil || len(states) == 0 {
		return BudgetState{}, cmp.Or(err, fmt.Errorf("budget %q: %w", id, store.ErrNotFound))
	}
	return states[0], nil
}

func (b *Book) budgetStates(ctx context.Context, query string, arguments ...any) ([]BudgetState, error) {
	books, err := b.readBudgets(ctx, query, arguments...)
	if err != nil {
		return nil, err
	}
	return store.Column(slices.Sorted(maps.Keys(books.budgets)), func(id string) BudgetState {
		budget := books.budgets[id]
		period := books.present(budget)
		return BudgetState{
			Budget: budget.Budget, RisenMicros: budget.limitAt(books.now) - budget.LimitMicros, SpentMicros: period.spent,
			ReservedMicros: period.reserved, BeginsAt: period.begin, EndsAt: period.endAt, RefusedAt: period.refusedAt,
		}
	}), nil
}

// readBudgets reads open budgets without locks, as of now.
func (b *Book) readBudgets(ctx context.Context, query string, arguments ...any) (*books, error) {
	now, err := b.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	books := &books{now: now}
	return books, store.EachRow(ctx, b.db, "list budgets", books.scanBudget, query, arguments...)
}

// BudgetRoom returns the largest hold of a call that the open budgets of a wallet allow, with the amounts of tranches, which may be in use. Without a
// budget it is the largest number. The error is an error of reading.
func (b *Book) BudgetRoom(ctx context.Context, wallet WalletID, call *Budgeted) (micros int64, err error) {
	// Tranches are read first: credits that are returned in between count twice, and are not missed.
	tranches, err := store.ReadRows(ctx, b.db, "read tranches", func(row store.Row) (*trancheRow, error) {
		t := &trancheRow{}
		return t, row.Scan(&t.left, &t.budgets)
	}, `SELECT left_micros, budgets FROM tranches WHERE org_id = $1 AND env = $2 AND budgets <> ''`, wallet.OrgID, string(wallet.Env))
	if err != nil {
		return 0, err
	}
	of := walletRow{tranches: tranches}
	books, err := b.readBudgets(ctx, selectBudgetsOf, wallet.OrgID, string(wallet.Env), call.KeyID, call.AgentID)
	if err != nil {
		return 0, err
	}
	micros = math.MaxInt64
	for _, budget := range books.budgets {
		period := books.present(budget)
		micros = min(micros, max(0, period.room(books.now)+of.leftIn(period.number)))
	}
	return micros, nil
}

// EndBudgetRise ends a rise from the next call on. It returns [store.ErrNotFound] if the budget is not open or has no rise with the id that has not
// ended, or a wrapped error of the store.
func (b *Book) EndBudgetRise(ctx context.Context, actor, orgID, id, riseID string) error {
	return b.changeBudget(ctx, orgID, id, func(ctx context.Context, tx store.Tx, budget *budgetRow) error {
		ended, err := store.Changed(ctx, tx, `UPDATE budget_rises SET ends_at = $4, past = TRUE WHERE org_id = $1 AND budget_id = $2 AND id = $3
			AND ends_at > $4 RETURNING id`, orgID, id, riseID, tx.Now())
		if err != nil || !ended {
			return cmp.Or(err, fmt.Errorf("rise %q: %w", riseID, store.ErrNotFound))
		}
		budget.audit(tx, actor, "end_rise", riseID)
		return nil
	})
}

// BudgetRises reads the newest 100 temporary rises of a budget, with ended ones, newest first.
func (b *Book) BudgetRises(ctx context.Context, orgID, id string) ([]BudgetRise, error) {
	return store.ReadRows(ctx, b.db, "list the rises of a budget", store.ScanFields[BudgetRise](),
		`SELECT id, amount_micros, ends_at, reason, created_by, created_at FROM budget_rises WHERE org_id = $1 AND budget_id = $2 ORDER BY id DESC
			LIMIT 100`, orgID, id)
}
