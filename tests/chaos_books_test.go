package tests

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// chaosRow is a call in the database's book.
type chaosRow struct {
	callRow
	wallet billing.WalletID
	// numbered: it is a charge of its wallet's statement.
	numbered bool
}

// chaosBooks is the database's book and what joins it with the others.
type chaosBooks struct {
	rows      []*chaosRow
	byID      map[string]*chaosRow
	byRequest map[string][]*chaosRow
	// byKey are the calls that finished keys name.
	byKey map[[32]byte]*chaosRow
	// byUsage are the provider's requests by the usage they reported, which is different for each.
	byUsage map[[2]int64]*chaosRequest
	// byMark are the calls whose usage names a request.
	byMark map[string][]*chaosRow
	wanted map[string]*wanted
}

func (r *chaosRun) read(t *testing.T) *chaosBooks {
	t.Helper()
	b := &chaosBooks{
		byID: map[string]*chaosRow{}, byRequest: map[string][]*chaosRow{}, byKey: map[[32]byte]*chaosRow{},
		byUsage: map[[2]int64]*chaosRequest{}, byMark: map[string][]*chaosRow{}, wanted: map[string]*wanted{},
	}
	db := r.gateways[0].operator().db.Reader()
	rows, err := db.QueryContext(t.Context(), `SELECT c.id, c.request_id, c.org_id, c.env, c.model, c.outcome, c.usage_source,
			c.prompt_tokens, c.completion_tokens, c.reserved_micros, c.charged_micros, c.shortfall_micros, c.byok, c.stream, c.wallet_seq IS NOT NULL
		FROM calls c`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		row := &chaosRow{}
		require.NoError(t, rows.Scan(&row.ID, &row.RequestID, &row.wallet.OrgID, &row.wallet.Env, &row.Model, &row.Outcome, &row.Source,
			&row.Prompt, &row.Completion, &row.Reserved, &row.Charged, &row.Shortfall, &row.BYOK, &row.Stream, &row.numbered))
		b.rows = append(b.rows, row)
		b.byID[row.ID] = row
		b.byRequest[row.RequestID] = append(b.byRequest[row.RequestID], row)
	}
	require.NoError(t, rows.Err())

	keys, err := db.QueryContext(t.Context(), `SELECT key_hash, call_id FROM idempotency_keys`)
	require.NoError(t, err)
	defer keys.Close()
	for keys.Next() {
		var hash []byte
		var id string
		require.NoError(t, keys.Scan(&hash, &id))
		require.NotNil(t, b.byID[id], "L10: a finished key names no call") // Contains would look at every key of the map
		b.byKey[[32]byte(hash)] = b.byID[id]
	}
	require.NoError(t, keys.Err())

	for _, requests := range r.provider.byMark {
		for _, request := range requests {
			if request.reported {
				b.byUsage[[2]int64{request.prompt, request.completion}] = request
			}
		}
	}
	for _, row := range b.rows {
		if request := b.request(row); request != nil {
			b.byMark[request.mark] = append(b.byMark[request.mark], row)
		}
	}
	for _, c := range r.clients {
		for _, w := range c.book {
			b.wanted[w.mark] = w
		}
	}
	return b
}

// requireAgreement compares the three books.
func (r *chaosRun) requireAgreement(t *testing.T) {
	t.Helper()
	for _, p := range r.gateways {
		p.svc(t, "doctor") // its invariants, by the product itself
	}
	b := r.read(t)
	for _, w := range b.wanted {
		w.requireAnswers(t)
		w.requireEnd(t)
		b.requireCharges(t, w)
		b.requireOneCharge(t, w)
		r.requireRequests(t, w)
	}
	b.requireUsages(t)
	r.requireWallets(t, b)
	r.tell(t, b)
}

// requireAnswers checks the client's own book: which requests may be answered at all, that an answer belongs to its request,
// that replays are equal, and that other content never gets an answer.
func (w *wanted) requireAnswers(t *testing.T) {
	t.Helper()
	var first *attempt
	for _, a := range w.attempts {
		if a.status == 0 {
			continue
		}
		if a.status != http.StatusOK && a.fault == nil && !a.left {
			require.Equal(t, statusOf[a.code], a.status, "%s", a.code)
			switch a.code {
			case "internal_error", "provider_error", "provider_overloaded", "provider_timeout", "conflict":
			case "insufficient_credits":
				require.True(t, w.customer.poor, "a wallet that is full")
			case "idempotency_key_reused":
				require.True(t, a.altered, "the same content")
			default:
				t.Fatalf("%s: an answer that nothing here deserves: %d %s", w.mark, a.status, a.code)
			}
		}
		require.Equal(t, a.begun, w.stream && a.status == http.StatusOK, w.mark)
		require.False(t, a.complete && a.code != "", "%s: an answer that is whole and broken", w.mark)
		if a.altered {
			// It is only sent when the first content has its answer.
			require.NotEqual(t, http.StatusOK, a.status, "%s: other content under a finished key", w.mark)
			continue
		}
		whole := "to " + w.mark + " as "
		require.True(t, strings.HasPrefix(a.text, whole) || strings.HasPrefix(whole, a.text), "%s got the text %q", w.mark, a.text)
		require.False(t, a.replayed && w.key == "", w.mark)
		if a.kept != nil {
			requireAnswered(t, *a.kept, w.model, w.stream)
		}
		if !a.complete {
			continue
		}
		if first == nil {
			first = a
		}
		require.Equal(t, first.id, a.id, "%s: one key, two answers", w.mark)
		require.Equal(t, first.text, a.text, w.mark)
		require.Equal(t, first.told, a.told, w.mark)
		require.Equal(t, w.byok, a.told.SVC.BYOK, w.mark)
	}
	var fresh int
	for _, a := range w.attempts {
		if a.complete && !a.replayed {
			fresh++
		}
	}
	require.LessOrEqual(t, fresh, 1, "%s: an answer was made twice", w.mark)
}

// requireEnd checks the promise of a key: a request that was repeated after the faults got the answer, or the failure that
// was charged; or the wallet has no credits.
func (w *wanted) requireEnd(t *testing.T) {
	t.Helper()
	if w.key == "" || w.answered() {
		return
	}
	last := w.attempts[len(w.attempts)-1]
	require.NoError(t, last.fault, w.mark)
	require.True(t, last.code == "insufficient_credits" || last.replayed && last.code != "",
		"%s: asked with its key when all was well and got %d %s", w.mark, last.status, last.code)
}

// requireCharges compares the client's book with the database's: L9 and L11.
func (b *chaosBooks) requireCharges(t *testing.T, w *wanted) {
	t.Helper()
	for _, a := range w.attempts {
		rows := b.byRequest[a.requestID]
		if a.requestID == "" {
			continue
		}
		require.LessOrEqual(t, len(rows), 1, "L9: a request with two calls")
		if a.settled {
			charged := a.told.charged(t)
			row := b.byID["call_"+strings.TrimPrefix(a.id, "chatcmpl-")]
			if row == nil && charged == 0 && w.key == "" {
				continue // nobody waits for the row of a call without money; a kill may lose it
			}
			require.NotNil(t, row, "L9: %s was answered and is not on record", w.mark)
			require.Equal(t, charged, row.Charged, "L9: %s", w.mark)
			require.Equal(t, a.told.Usage.Prompt, row.Prompt, w.mark)
			require.Equal(t, a.told.Usage.Completion, row.Completion, w.mark)
			require.Equal(t, billing.WalletID{OrgID: w.customer.OrgID, Env: w.customer.Env}, row.wallet)
			require.Equal(t, w.model, row.Model)
			require.Equal(t, w.byok, row.BYOK)
			require.Equal(t, w.stream, row.Stream)
			if a.replayed {
				require.Empty(t, rows, "%s: a replay is no call", w.mark)
			} else {
				require.Equal(t, a.requestID, row.RequestID)
			}
		}
		if len(rows) == 1 && rows[0].Charged > 0 && a.status != http.StatusOK {
			require.True(t, w.key != "" && b.byKey[sha256.Sum256([]byte(w.key))] == rows[0],
				"L11: %s was told %d %s and paid %d", w.mark, a.status, a.code, rows[0].Charged)
		}
	}
}

// requireOneCharge is L10: of all calls that were made with a key, however they are found, at most one was charged, and
// it is the one that the key names.
func (b *chaosBooks) requireOneCharge(t *testing.T, w *wanted) {
	t.Helper()
	if w.key == "" {
		return
	}
	calls := map[*chaosRow]bool{}
	for _, a := range w.attempts {
		for _, row := range b.byRequest[a.requestID] {
			calls[row] = true
		}
	}
	for _, row := range b.byMark[w.mark] {
		calls[row] = true
	}
	named := b.byKey[sha256.Sum256([]byte(w.key))]
	if named != nil {
		calls[named] = true
	}
	charged := 0
	for row := range calls {
		if row.Charged > 0 {
			charged++
			require.Same(t, named, row, "L10: %s: the charged call isn't the one that the key names", w.mark)
		}
	}
	require.LessOrEqual(t, charged, 1, "L10: %s", w.mark)
}

// request is the provider's request that a call's usage names, nil when it names none.
func (b *chaosBooks) request(row *chaosRow) *chaosRequest {
	if row.Source != "provider" {
		return nil
	}
	return b.byUsage[[2]int64{row.Prompt, row.Completion}]
}

// requireRequests compares the provider's book with the client's: L12, and whose key paid the provider.
func (r *chaosRun) requireRequests(t *testing.T, w *wanted) {
	t.Helper()
	requests := r.provider.byMark[w.mark]
	require.LessOrEqual(t, len(requests), len(w.attempts), "L12: %s", w.mark)
	want := "Bearer " + operatorKey
	if w.byok {
		want = "Bearer " + chaosOwnKey(w.customer.OrgID)
	}
	for _, request := range requests {
		require.Equal(t, want, request.authorization, w.mark)
	}
}

// requireUsages compares the provider's book with the database's: a call that says the provider reported its usage has
// the usage of one request of its own organization, no other call has the same, and it cost the price of a moment.
func (b *chaosBooks) requireUsages(t *testing.T) {
	t.Helper()
	used := map[*chaosRequest]*chaosRow{}
	for _, row := range b.rows {
		require.Equal(t, row.Charged > 0, row.numbered, "L9: call %s", row.ID)
		require.LessOrEqual(t, row.Charged, row.Reserved, "P2: call %s", row.ID)
		if row.Source != "provider" || row.Prompt+row.Completion == 0 {
			continue
		}
		request := b.request(row)
		require.NotNil(t, request, "call %s has a usage that the provider never reported", row.ID)
		require.Nil(t, used[request], "the calls %s and %v have the usage of one request", row.ID, used[request])
		used[request] = row
		w := b.wanted[request.mark]
		require.NotNil(t, w, request.mark)
		require.Equal(t, w.customer.OrgID, row.wallet.OrgID, request.mark)
		require.Equal(t, w.customer.Env, row.wallet.Env, request.mark)
		cost := row.Charged + row.Shortfall
		switch {
		case row.BYOK || row.Model == modelFree:
			require.Zero(t, cost, request.mark)
		default:
			require.Contains(t, []int64{row.Prompt + 2*row.Completion, dearFactor*row.Prompt + 2*row.Completion}, cost, request.mark)
		}
	}
}

// requireWallets is L13, and P4 by another way than doctor's: a wallet has what was paid in less what its calls
// were charged, and each confirmed payment is in the ledger once.
func (r *chaosRun) requireWallets(t *testing.T, b *chaosBooks) {
	t.Helper()
	charged := map[billing.WalletID]int64{}
	for _, row := range b.rows {
		charged[row.wallet] += row.Charged
	}
	paid := map[billing.WalletID]int64{}
	for p, micros := range r.payments {
		paid[p.wallet] += micros
	}
	db := r.gateways[0].operator().db.Reader()
	for _, c := range r.customers {
		id := billing.WalletID{OrgID: c.OrgID, Env: c.Env}
		wallet := c.wallet(t)
		require.Zero(t, wallet.HeldMicros, "L4")
		require.Equal(t, paid[id]-charged[id], wallet.BalanceMicros, "P4, L13: %v", id)
		if c.onlyBYOK {
			require.Zero(t, wallet.BalanceMicros)
		}
		var topUps int
		require.NoError(t, db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM ledger_tx WHERE kind = 'topup' AND org_id = $1 AND env = $2`, id.OrgID, string(id.Env)).Scan(&topUps))
		want := 0
		for p := range r.payments {
			if p.wallet == id {
				want++
			}
		}
		require.Equal(t, want, topUps, "L13: %v", id)
	}
	live := billing.WalletID{OrgID: r.customers[0].OrgID, Env: store.Live}
	require.Positive(t, charged[live], "the hot wallet was used")
}

// tell says what the run was made of.
func (r *chaosRun) tell(t *testing.T, b *chaosBooks) {
	t.Helper()
	faults, outcomes, codes := map[string]int{}, map[string]int{}, map[string]int{}
	for _, requests := range r.provider.byMark {
		for _, request := range requests {
			faults[request.fault]++
		}
	}
	for _, row := range b.rows {
		outcomes[row.Outcome+" "+row.Source]++
	}
	attempts, complete, replays, left, disconnected := 0, 0, 0, 0, 0
	for _, w := range b.wanted {
		for _, a := range w.attempts {
			attempts++
			switch {
			case a.complete && a.replayed:
				replays++
			case a.complete:
				complete++
			case a.left:
				left++
			case a.code != "":
				codes[a.code]++
			default:
				disconnected++
			}
		}
	}
	t.Logf("%d wishes, %d attempts: %d complete, %d replayed, %d left, %d disconnected, refused or failed %v",
		len(b.wanted), attempts, complete, replays, left, disconnected, codes)
	t.Logf("%d requests at the provider: %v; %d calls on record: %v", r.provider.requests, faults, len(b.rows), outcomes)
	t.Logf("%d kills, %d restarts, %d reloads, %d payments", r.kills, r.restarts, r.reloads, len(r.payments))
}
