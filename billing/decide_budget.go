package billing

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// budgetRow is a budget under the lock of its wallet.
type budgetRow struct {
	Budget

	zone  string
	rises []riseRow
	last  *periodRow // the newest period that was read or made; nil if there is none
}

type riseRow struct {
	id     string
	micros int64
	endsAt int64
}

// limitAt returns the limit with the rises that have not ended.
func (r *budgetRow) limitAt(now int64) int64 {
	limit := r.LimitMicros
	for _, rise := range r.rises {
		if rise.endsAt > now {
			limit += min(rise.micros, math.MaxInt64-limit)
		}
	}
	return limit
}

// periodRow is a period of a budget: as read, and as the batch leaves it.
type periodRow struct {
	periodKey

	budget       *budgetRow
	begin, endAt int64 // endAt is 0 for a period without an end
	firstSeq     int64
	periodState

	read   periodState
	stored bool // the row was read
}

// periodKey names a period: the number of its row within the wallet.
type periodKey struct {
	wallet WalletID
	number int64
}

func (k periodKey) compare(other periodKey) int {
	return cmp.Or(k.wallet.compare(other.wallet), cmp.Compare(k.number, other.number))
}

type periodState struct {
	reserved, spent int64
	most            int64 // the highest limit by which an amount was admitted
	told            int64 // the highest threshold of which an event was made, in percent
	lastSeq         int64 // of the last charge that is counted
	refusedAt       int64 // of the first refused call since the last change of the amounts or of the budget; 0 for none
}

// room returns the amount that can still be reserved or spent. It is negative after the limit was lowered below the sum of both.
func (p *periodRow) room(now int64) int64 { return p.budget.limitAt(now) - p.spent - p.reserved }

// budgetOwner names the calls that a budget counts.
type budgetOwner struct {
	wallet WalletID
	kind   OwnerKind
	id     string
}

// owners returns the owners of all budgets that count a call of a wallet.
func (c *Budgeted) owners(wallet WalletID) []budgetOwner {
	if c == nil {
		return nil
	}
	owners := []budgetOwner{{wallet, OwnerOrganization, ""}}
	if c.KeyID != "" {
		owners = append(owners, budgetOwner{wallet, OwnerAPIKey, c.KeyID})
	}
	if c.AgentID != "" {
		owners = append(owners, budgetOwner{wallet, OwnerAssistant, c.AgentID})
	}
	return owners
}

// admit returns the periods in which a hold's amount must be reserved, one of each open budget that counts the call. If one has too little room,
// it returns the [BudgetError] of the budget with the least.
func (b *books) admit(h Hold) (periods []*periodRow, err error) {
	var refusal *BudgetError
	for _, owner := range h.Budgets.owners(h.Wallet) {
		for _, budget := range b.open[owner] {
			period := b.present(budget)
			periods = append(periods, period)
			room := period.room(b.now)
			if room < h.AmountMicros && period.number > 0 && period.refusedAt == 0 {
				period.refusedAt = b.now
			}
			if room < h.AmountMicros && (refusal == nil || room < refusal.RoomMicros) {
				refusal = &BudgetError{
					Budget: budget.Budget, LimitMicros: budget.limitAt(b.now), SpentMicros: period.spent, ReservedMicros: period.reserved,
					RoomMicros: room, EndsAt: period.endAt,
				}
			}
		}
	}
	if refusal != nil {
		return nil, refusal
	}
	return periods, nil
}

// present returns the period of a budget at the time of the batch. A new one has no number until an amount is reserved in it.
func (b *books) present(budget *budgetRow) *periodRow {
	begins := budget.CreatedAt
	if last := budget.last; last != nil {
		if last.endAt == 0 || b.now < last.endAt {
			return last
		}
		begins = last.endAt
	}
	begin, end := budget.Period.follow(begins, b.now, budget.zone)
	return &periodRow{periodKey: periodKey{wallet: budget.Wallet}, budget: budget, begin: begin, endAt: end}
}

// reserveIn reserves an amount in periods that have admitted it, and returns their names.
func (b *books) reserveIn(periods []*periodRow, micros int64) (names string) {
	if len(periods) == 0 {
		return ""
	}
	var text []byte
	for _, period := range periods {
		if period.number == 0 {
			wallet := b.wallets[period.wallet]
			wallet.periods++
			period.number, period.firstSeq, period.lastSeq = wallet.periods, wallet.seq, wallet.seq
			b.periods[period.periodKey], period.budget.last = period, period
		}
		period.reserved += micros
		period.refusedAt = 0
		period.most = max(period.most, period.budget.limitAt(b.now))
		text = strconv.AppendInt(append(text, ' '), period.number, 10)
	}
	return string(text[1:])
}

// reservedIn returns the names of the periods in which a hold's amount is reserved.
func (b *books) reservedIn(h Hold) string {
	if h.Budgets == nil {
		return ""
	}
	if h.Claim != nil {
		if claim := b.claims[claimKey{h.Wallet, h.Claim.KeyHash}]; claim != nil && claim.callID == h.CallID {
			return claim.budgets
		}
		return ""
	}
	if hold := b.holds[h.CallID]; hold != nil && hold.open {
		return hold.budgets
	}
	return ""
}

// namedPeriods are periods of a wallet by their names.
type namedPeriods struct {
	wallet  WalletID
	names   string
	periods []*periodRow
}

// named returns the periods of a wallet that a reservation or a call names.
func (b *books) named(wallet WalletID, names string) []*periodRow {
	if names == "" {
		return nil
	}
	if last := &b.lastNamed; names != last.names || wallet != last.wallet {
		*last = namedPeriods{wallet: wallet, names: names}
		for key := range periodKeys(wallet, names) {
			if period := b.periods[key]; period != nil {
				last.periods = append(last.periods, period)
			}
		}
	}
	return b.lastNamed.periods
}

// periodKeys returns the keys of periods by their names: their numbers, with spaces between.
func periodKeys(wallet WalletID, names string) iter.Seq[periodKey] {
	return func(yield func(periodKey) bool) {
		for word := range strings.FieldsSeq(names) {
			number, _ := strconv.ParseInt(word, 10, 64) // no row has the number 0
			if !yield(periodKey{wallet, number}) {
				return
			}
		}
	}
}

// change adds an amount to the held amount of a wallet and to the reserved amounts of periods of its budgets. A negative amount is released.
func (b *books) change(wallet WalletID, names string, micros int64) {
	b.wallets[wallet].held += micros
	for _, period := range b.named(wallet, names) {
		period.reserved += micros
		period.refusedAt = 0
	}
}

// payable returns the largest charge of a call that the periods of its hold allow, after an amount that was reserved for the call was released. A
// call has at least this amount, whatever the limits are now. More than it, such as the charge of a call that has lost its reservation, must
// fit under the present limits beside all that is reserved. So no charge is ever above the limit that admitted it.
func (b *books) payable(wallet WalletID, names string, released int64) int64 {
	most := int64(math.MaxInt64)
	for _, period := range b.named(wallet, names) {
		most = min(most, max(released, period.room(b.now)))
	}
	return most
}

// count counts a charge in the periods of its call's hold.
func (b *books) count(wallet WalletID, names string, micros, seq int64) {
	for _, period := range b.named(wallet, names) {
		if period.spent+period.reserved+micros > period.most {
			period.most = max(period.most, period.budget.limitAt(b.now))
		}
		period.spent += micros
		period.lastSeq = seq
		b.tell(period)
	}
}

// tell makes an event of each threshold that a period has reached, once. A budget that has ended makes none.
func (b *books) tell(period *periodRow) {
	budget := period.budget
	limit := budget.limitAt(b.now)
	for _, percent := range budget.Thresholds {
		if budget.EndedAt > 0 || percent <= period.told || !reaches(period.spent, limit, percent) {
			continue
		}
		period.told = percent
		event := &store.Event{
			OrgID: budget.Wallet.OrgID, Type: store.EventBudget, BudgetID: budget.ID, Percent: strconv.FormatInt(percent, 10),
			SpentMicros: FormatMicros(period.spent), LimitMicros: FormatMicros(limit),
		}
		if period.endAt > 0 {
			event.ExpiresAt = store.EventTime(period.endAt)
		}
		b.events = append(b.events, event)
	}
}

// reaches reports whether spending has reached a threshold of a limit.
func reaches(spent, limit, percent int64) bool {
	high, low := bits.Mul64(uint64(limit), uint64(percent)) //nolint:gosec // neither is negative
	quotient, rest := bits.Div64(high, low, 100)
	return uint64(spent) > quotient || uint64(spent) == quotient && rest == 0 //nolint:gosec // nor is this
}

// Period is how often the spending of a budget begins again. Periods follow the calendar in the organization's time zone. A week
// begins on Monday.
type Period string

// The periods.
const (
	PeriodDay   Period = "day"
	PeriodWeek  Period = "week"
	PeriodMonth Period = "month"
	PeriodTotal Period = "total" // it never ends
)

// bounds returns the beginning and the end of the period that contains a moment, in epoch milliseconds: begin <= now < end.
func (p Period) bounds(now int64, zone *time.Location) (begin, end int64) {
	local := time.UnixMilli(now).In(zone)
	year, month, day := local.Date()
	weekday := (int(local.Weekday()) + 6) % 7 // since Monday
	// The period before is among the candidates, because a clock that is set back may show the day before again.
	for i := -1; end <= now; i++ {
		begin = end
		switch p {
		case PeriodMonth:
			end = beginOfDay(year, month+time.Month(i), 1, zone)
		case PeriodWeek:
			end = beginOfDay(year, month, day-weekday+7*i, zone)
		default:
			end = beginOfDay(year, month, day+i, zone)
		}
	}
	return begin, end
}

// beginOfDay returns the first moment at which clocks of a zone show a day, or a later one if they skip the day.
func beginOfDay(year int, month time.Month, day int, zone *time.Location) int64 {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	year, month, day = midnight.Date()
	// Offsets are from -12 to 14 hours, so a change of the clock that could matter is between these moments.
	_, before := midnight.Add(-15 * time.Hour).In(zone).Zone()
	_, after := midnight.Add(13 * time.Hour).In(zone).Zone()
	first := midnight.Add(-time.Duration(max(before, after)) * time.Second).In(zone)
	for _, candidate := range []time.Time{first, midnight.Add(-time.Duration(min(before, after)) * time.Second).In(zone)} {
		y, m, d := candidate.Date()
		if y == year && m == month && d == day && candidate.Hour() == 0 && candidate.Minute() == 0 && candidate.Second() == 0 {
			return candidate.UnixMilli()
		}
	}
	_, change := first.ZoneBounds() // which skips midnight
	return change.UnixMilli()
}

// follow returns the period of a budget at a moment. begins is the end of the budget's last period, or the creation of the budget. A change of
// the zone counts from the next period on, which may be shorter or longer than a calendar's.
func (p Period) follow(begins, now int64, zoneName string) (begin, end int64) {
	if p == PeriodTotal {
		return begins, 0
	}
	zone, err := time.LoadLocation(zoneName)
	if err != nil {
		zone = time.UTC // of a newer program
	}
	begin, end = p.bounds(max(begins, now), zone)
	return max(begin, begins), end
}
