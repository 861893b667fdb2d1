package inbox

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// status is the expected state of a text, independent of how the queue keeps it.
type status int

const (
	waits status = iota
	answered
	needsNone // a person has answered, or dismissed it; or the customer blocked the channel
)

// modelText is a text that was accepted.
type modelText struct {
	platformID, customer string
	arrival              int
	status               status
	closed               bool // it needs no answer, should the one that was being sent fail
}

// modelConversation is what decides whether the assistant may speak.
type modelConversation struct{ human, paused, closed bool }

func (c *modelConversation) silent() bool { return c.human || c.paused || c.closed }

// delivered is a part that the platform has got.
type delivered struct {
	customer, part, turn string
	platformID, text     string
	stalled              bool // its worker had lost the conversation, whose part is unknown then; nothing can stop it
}

// written is what a person has written through the API and the platform may still get.
type written struct {
	customer string
	arrivals int // so many texts were there before
	silenced bool
}

// modelWorker is a worker between two of its steps.
type modelWorker struct {
	lease   *Lease
	sending *Outbound // marked, the platform not yet asked
	sent    *delivered
}

// machine drives a queue at random and keeps what must be true of it in maps.
type machine struct {
	q *inboxTest

	texts         []*modelText
	conversations map[string]*modelConversation
	workers       []*modelWorker
	holder        map[string]int64 // the token that was given last, by conversation; 0 given back
	platform      []delivered
	everDead      map[string]bool
	arrivals      int
	written       map[string]written // by part
}

func (m *machine) conversation(customer string) *modelConversation {
	if m.conversations[customer] == nil {
		m.conversations[customer] = &modelConversation{}
	}
	return m.conversations[customer]
}

// drawKnown draws a conversation that exists.
func (m *machine) drawKnown(t *rapid.T) (c Conversation, ok bool) {
	list, err := m.q.Conversations(context.Background(), "org_1", ConversationFilter{}, pageAll)
	require.NoError(t, err)
	if len(list) == 0 {
		return c, false
	}
	return rapid.SampledFrom(list).Draw(t, "conversation"), true
}

// retract is a human or a block: no part of the assistant's that waits is sent, and texts are open again to whose answer nothing was sent.
// It is called before what silences the assistant, and returns what to check and to expect afterwards.
func (m *machine) retract(t *rapid.T, customer string) (after func()) {
	var open []*modelText
	turns, err := store.ReadRows(context.Background(), m.q.db, "", store.ScanValue[string], `SELECT o.turn_id FROM outbound_messages o
		JOIN conversations c ON c.id = o.conversation_id
		WHERE o.state = 'pending' AND o.author = 'assistant' AND o.part = 0 AND c.customer_ref = $1`, m.q.ref(customer))
	require.NoError(t, err)
	for _, turn := range turns {
		open = append(open, m.textsOf(t, turn)...)
	}
	return func() {
		require.Equal(t, "0", m.q.value(t, `SELECT count(*) FROM outbound_messages o JOIN conversations c ON c.id = o.conversation_id
			WHERE o.state = 'pending' AND o.author = 'assistant' AND c.customer_ref = $1`, m.q.ref(customer)))
		for _, text := range open {
			text.status = waits
		}
	}
}

// close is an end of all texts of a customer so far, or of those among the first arrivals.
func (m *machine) close(t *rapid.T, customer string, arrivals int) {
	for _, text := range m.texts {
		if text.customer == customer && text.status == waits && text.arrival <= arrivals {
			text.status = needsNone
		}
	}
	turns, err := store.ReadRows(context.Background(), m.q.db, "", store.ScanValue[string], `SELECT o.turn_id FROM outbound_messages o
		JOIN conversations c ON c.id = o.conversation_id
		WHERE o.state = 'sending' AND o.author = 'assistant' AND o.part = 0 AND c.customer_ref = $1`, m.q.ref(customer))
	require.NoError(t, err)
	for _, turn := range turns {
		for _, text := range m.textsOf(t, turn) {
			text.closed = text.closed || text.arrival <= arrivals
		}
	}
}

func (m *machine) enqueue(t *rapid.T, items ...Item) {
	require.NoError(t, m.q.Enqueue(context.Background(), []Arrival{{m.q.route, items}}))
}

// newText makes a new text and the model's expectation of it.
func (m *machine) newText(t *rapid.T) Item {
	customer := rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "customer")
	m.arrivals++
	item := textOf(customer, "m"+number(m.arrivals), "text "+number(m.arrivals))
	c := m.conversation(customer)
	c.closed = false
	m.texts = append(m.texts, &modelText{platformID: item.MessageID, customer: customer, arrival: m.arrivals})
	return item
}

// Deliver brings new texts, several at once, and some that were brought before.
func (m *machine) Deliver(t *rapid.T) {
	var items []Item
	for range rapid.IntRange(1, 3).Draw(t, "texts") {
		items = append(items, m.newText(t))
	}
	if rapid.Bool().Draw(t, "again") {
		old := rapid.SampledFrom(m.texts).Draw(t, "old")
		items = slices.Insert(items, rapid.IntRange(0, len(items)).Draw(t, "place"), textOf(old.customer, old.platformID, "again"))
		// The repeated one may stand before its first: they are the same.
	}
	m.enqueue(t, items...)
}

// DeliverAgain brings what was brought before.
func (m *machine) DeliverAgain(t *rapid.T) {
	if len(m.texts) == 0 {
		t.Skip("nothing yet")
	}
	old := rapid.SampledFrom(m.texts).Draw(t, "old")
	m.enqueue(t, textOf(old.customer, old.platformID, "again"), textOf(old.customer, old.platformID, "again"))
}

// Echo is the platform repeating what it got, or a human writing.
func (m *machine) Echo(t *rapid.T) {
	if len(m.platform) > 0 && rapid.Bool().Draw(t, "ours") {
		ours := rapid.SampledFrom(m.platform).Draw(t, "sent")
		known := m.q.value(t, `SELECT count(*) FROM outbound_messages WHERE id = $1 AND state IN ('sending', 'sent', 'delivery_unknown')`, ours.part)
		if known == "1" {
			m.enqueue(t, Item{Kind: platforms.HumanEcho, CustomerRef: ours.customer, MessageID: ours.platformID, Text: ours.text})
		}
		return
	}
	if rapid.IntRange(0, 3).Draw(t, "by a human") != 2 {
		t.Skip("too often it would be silent")
	}
	customer := rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "customer")
	after, before := m.retract(t, customer), m.arrivals
	m.arrivals++
	m.enqueue(t, echoOf(customer, "h"+number(m.arrivals)))
	m.conversation(customer).paused = true
	after()
	m.close(t, customer, before)
}

// Block is the customer blocking the channel.
func (m *machine) Block(t *rapid.T) {
	c, ok := m.drawKnown(t)
	if !ok || rapid.IntRange(0, 3).Draw(t, "block") != 2 {
		t.Skip("no conversation, or too often")
	}
	after := m.retract(t, c.CustomerRef)
	m.enqueue(t, Item{Kind: platforms.Blocked, CustomerRef: c.CustomerRef})
	model := m.conversation(c.CustomerRef)
	*model = modelConversation{closed: true, paused: model.paused}
	after()
	m.close(t, c.CustomerRef, m.arrivals)
}

// Hand gives a conversation to a human, or back.
func (m *machine) Hand(t *rapid.T) {
	c, ok := m.drawKnown(t)
	if !ok {
		t.Skip("no conversation yet")
	}
	model := m.conversation(c.CustomerRef)
	if rapid.IntRange(0, 3).Draw(t, "over") == 2 {
		after := m.retract(t, c.CustomerRef)
		err := m.q.HandOver(context.Background(), "usr_1", "org_1", c.ID)
		if model.closed {
			require.ErrorIs(t, err, ErrConversationClosed)
			return
		}
		require.NoError(t, err)
		if !model.human {
			after()
		}
		model.human = true
		return
	}
	m.back(t, c)
}

// back gives a conversation back to the assistant. What a person has on its way answers what came before.
func (m *machine) back(t *rapid.T, c Conversation) {
	model := m.conversation(c.CustomerRef)
	err := m.q.HandBack(context.Background(), "usr_1", "org_1", c.ID)
	if model.closed {
		require.ErrorIs(t, err, ErrConversationClosed)
		return
	}
	require.NoError(t, err)
	if !model.silent() {
		return
	}
	*model = modelConversation{}
	for part, by := range m.written {
		if by.customer == c.CustomerRef && m.q.value(t, `SELECT count(*) FROM outbound_messages WHERE id = $1 AND state IN ('pending', 'sending')`, part) == "1" {
			m.close(t, c.CustomerRef, by.arrivals)
		}
	}
}

// Human writes through the API.
func (m *machine) Human(t *rapid.T) {
	c, ok := m.drawKnown(t)
	if !ok {
		t.Skip("no conversation yet")
	}
	sent, err := m.q.SendAsHuman(context.Background(), "usr_1", "org_1", c.ID, []string{"by a human"})
	model := m.conversation(c.CustomerRef)
	if model.closed {
		require.ErrorIs(t, err, ErrConversationClosed)
		return
	}
	require.NoError(t, err)
	m.written[sent[0].ID] = written{c.CustomerRef, m.arrivals, model.silent()}
}

// arrived is the end of a person's part that the platform has got, or may have: it answers what was there before, unless the assistant could
// speak then.
func (m *machine) arrived(t *rapid.T, part string) {
	by, human := m.written[part]
	if c := m.conversation(by.customer); human && (c.human || c.paused) {
		m.close(t, by.customer, by.arrivals)
	}
}

// Revive takes up what stands still.
func (m *machine) Revive(t *rapid.T) {
	turns, err := m.q.StandingTurns(context.Background(), time.UnixMilli(0), 100)
	require.NoError(t, err)
	for _, turn := range turns {
		require.NoError(t, m.q.Resume(context.Background(), turn.TurnID, 0))
	}
	dead, err := m.q.DeadTurns(context.Background(), 100)
	require.NoError(t, err)
	for _, turn := range dead {
		if rapid.Bool().Draw(t, "retry") {
			require.NoError(t, m.q.Retry(context.Background(), "cli", turn.TurnID))
		}
	}
}

// Care is a person who retries or dismisses all that stands in a conversation.
func (m *machine) Care(t *rapid.T) {
	c, ok := m.drawKnown(t)
	if !ok {
		t.Skip("no conversation yet")
	}
	standing, err := store.ReadRows(context.Background(), m.q.db, "", store.ScanValue[string],
		`SELECT id FROM turns WHERE conversation_id = $1 AND state IN ('needs_attention', 'dead')`, c.ID)
	require.NoError(t, err)
	if len(standing) == 0 {
		t.Skip("nothing stands")
	}
	if rapid.Bool().Draw(t, "retry") {
		require.NoError(t, m.q.RetryStanding(context.Background(), "usr_1", "org_1", c.ID, ""))
		return
	}
	var texts []*modelText
	for _, turn := range standing {
		texts = append(texts, m.textsOf(t, turn)...)
	}
	require.NoError(t, m.q.Dismiss(context.Background(), "usr_1", "org_1", c.ID, ""))
	for _, text := range texts {
		text.status = needsNone
	}
}

// Expire lets all leases run out. Their workers don't know.
func (m *machine) Expire(t *rapid.T) {
	m.q.crash(t)
}

// Crash loses a worker where it stands.
func (m *machine) Crash(t *rapid.T) {
	*m.draw(t) = modelWorker{}
}

func (m *machine) draw(t *rapid.T) *modelWorker {
	return rapid.SampledFrom(m.workers).Draw(t, "worker")
}

// Work lets a worker take some steps. rapid likes small numbers, so that a rare fault is not the smallest.
func (m *machine) Work(t *rapid.T) {
	w := m.draw(t)
	for range rapid.SampledFrom([]int{8, 5, 3, 2, 1}).Draw(t, "steps") {
		m.step(t, w, func(name string) bool { return rapid.IntRange(0, 9).Draw(t, name) == 7 })
	}
}

// ended checks how an operation of a worker ended, and reports whether it went well. A worker that lost its conversation,
// or to a human what it was doing there, looks for other work or looks again.
func (m *machine) ended(t *rapid.T, w *modelWorker, err error) bool {
	if m.holder[w.lease.ConversationID] != w.lease.Token {
		require.ErrorIs(t, err, ErrLeaseLost, "another worker has it")
		*w = modelWorker{}
		return false
	}
	if err != nil {
		require.ErrorIs(t, err, ErrHandedOver)
	}
	return err == nil
}

// step is a worker's next step; chance decides what goes wrong.
func (m *machine) step(t *rapid.T, w *modelWorker, chance func(string) bool) {
	ctx := context.Background()
	switch {
	case w.lease == nil:
		leases, err := m.q.Lease(ctx, Places{Free: 1}, life)
		require.NoError(t, err)
		if len(leases) == 1 {
			w.lease = &leases[0]
			require.Greater(t, w.lease.Token, m.holder[w.lease.ConversationID])
			m.holder[w.lease.ConversationID] = w.lease.Token
		}
		return
	case w.sending != nil:
		m.platformCall(t, w, chance)
		return
	case w.sent != nil:
		sent := w.sent
		w.sent = nil
		if m.ended(t, w, m.q.Sent(ctx, *w.lease, sent.part, sent.platformID, "")) {
			m.arrived(t, sent.part)
		}
		return
	}
	work, err := m.q.Open(ctx, *w.lease, 10)
	if !m.ended(t, w, err) {
		return
	}
	switch {
	case len(work.Outbound) > 0:
		m.send(t, w, work.Outbound[0])
	case work.Turn != nil:
		m.answer(t, w, work, chance)
	case len(work.Waiting) > 0:
		m.begin(t, w, work, chance)
	default:
		if m.ended(t, w, m.q.Release(ctx, *w.lease)) {
			m.holder[w.lease.ConversationID] = 0
			*w = modelWorker{}
		}
	}
}

func (m *machine) send(t *rapid.T, w *modelWorker, part Outbound) {
	if part.State == OutboundSending { // a dead worker's
		if m.ended(t, w, m.q.SendFailed(context.Background(), *w.lease, part.ID, OutboundDeliveryUnknown, "", SendFailure{})) {
			m.arrived(t, part.ID)
		}
		return
	}
	texts := m.textsOf(t, part.TurnID)
	held := m.holder[w.lease.ConversationID] == w.lease.Token
	err := m.q.Sending(context.Background(), *w.lease, part.ID)
	switch {
	case held && errors.Is(err, ErrLeaseLost):
		require.True(t, m.ranOut(t, w))
		*w = modelWorker{}
	case m.ended(t, w, err):
		require.False(t, m.ranOut(t, w))
		w.sending = &part
	case held:
		m.discarded(w.lease.CustomerRef, part, texts)
	}
}

// ranOut reports whether the lease of a worker has run out, though no other has taken its conversation.
func (m *machine) ranOut(t *rapid.T, w *modelWorker) bool {
	until, err := store.ReadRow(context.Background(), m.q.db, "", store.ScanValue[int64],
		`SELECT lease_until FROM conversations WHERE id = $1`, w.lease.ConversationID)
	require.NoError(t, err)
	return until == 1
}

// discarded is the end of a part that the assistant may not send any longer, and of its answer, if nothing of that was sent.
func (m *machine) discarded(customer string, part Outbound, texts []*modelText) {
	if part.Part > 0 {
		return
	}
	for _, text := range texts {
		text.status = waits
		if text.closed || m.conversation(customer).closed {
			text.status = needsNone
		}
	}
}

// platformCall is what the queue can't see.
func (m *machine) platformCall(t *rapid.T, w *modelWorker, chance func(string) bool) {
	part := w.sending
	w.sending = nil
	if chance("refused") {
		state := OutboundPending
		if chance("for good") {
			state = OutboundFailed
		}
		customer, texts := w.lease.CustomerRef, m.textsOf(t, part.TurnID)
		if m.ended(t, w, m.q.SendFailed(context.Background(), *w.lease, part.ID, state, "refused", SendFailure{})) &&
			state == OutboundPending && m.conversation(customer).silent() {
			m.discarded(customer, *part, texts)
		}
		return
	}
	w.sent = &delivered{
		customer: w.lease.CustomerRef, part: part.ID, turn: part.TurnID, platformID: "p" + part.ID, text: part.Text,
		stalled: m.holder[w.lease.ConversationID] != w.lease.Token,
	}
	m.platform = append(m.platform, *w.sent)
}

func (m *machine) begin(t *rapid.T, w *modelWorker, work Work, chance func(string) bool) {
	ids := idsOf(work.Waiting)
	if chance("without an agent") {
		m.ended(t, w, m.q.Stand(context.Background(), *w.lease, Standing{MessageIDs: ids, Code: "no_agent"}))
		return
	}
	_, err := m.q.BeginTurn(context.Background(), *w.lease, "agt_chn_1", ids, []byte("request"))
	m.ended(t, w, err)
}

// openTexts are the ids of the texts that wait for a turn in a worker's conversation.
func (m *machine) openTexts(t *rapid.T, w *modelWorker) []string {
	ids, err := store.ReadRows(context.Background(), m.q.db, "", store.ScanValue[string],
		`SELECT id FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled`, w.lease.ConversationID)
	require.NoError(t, err)
	return ids
}

func (m *machine) answer(t *rapid.T, w *modelWorker, work Work, chance func(string) bool) {
	ctx, turnID := context.Background(), work.Turn.ID
	switch {
	case len(m.openTexts(t, w)) > 0 && chance("superseded"):
		lease := *w.lease
		lease.Call = &Call{Supersede: true}
		_, err := m.q.Answer(ctx, lease, turnID, []string{"too late"}, true)
		if errors.Is(err, ErrSuperseded) {
			err = nil
		}
		m.ended(t, w, err)
	case chance("out of funds"):
		m.ended(t, w, m.q.Stand(ctx, *w.lease, Standing{TurnID: turnID, Code: "insufficient_credits"}))
	case chance("dead"):
		if m.ended(t, w, m.q.Stand(ctx, *w.lease, Standing{TurnID: turnID, Code: "provider_error", Final: true})) {
			for _, text := range m.textsOf(t, turnID) {
				m.everDead[text.platformID] = true
			}
		}
	case chance("backoff"):
		if m.ended(t, w, m.q.Backoff(ctx, *w.lease, 0)) {
			m.holder[w.lease.ConversationID] = 0
			*w = modelWorker{}
		}
	default:
		texts := m.textsOf(t, turnID)
		parts, err := m.q.Answer(ctx, *w.lease, turnID, []string{"first", "second"}, true)
		if !m.ended(t, w, err) {
			return
		}
		require.False(t, m.conversation(w.lease.CustomerRef).silent(), "it answered while a human had the conversation")
		require.NotEmpty(t, texts)
		for _, text := range texts {
			require.Equal(t, waits, text.status, "text %s", text.platformID)
			text.status = answered
		}
		if parts[0].State == OutboundSending { // else its lease ran out
			w.sending = &parts[0]
		}
	}
}

// textsOf are the texts that a turn answers.
func (m *machine) textsOf(t *rapid.T, turnID string) (texts []*modelText) {
	ids, err := store.ReadRows(context.Background(), m.q.db, "", store.ScanValue[string],
		`SELECT platform_message_id FROM messages WHERE turn_id = $1`, turnID)
	require.NoError(t, err)
	for _, text := range m.texts {
		if slices.Contains(ids, m.q.messageID(text.platformID)) {
			texts = append(texts, text)
		}
	}
	return texts
}

// Check compares the queue with the model after every step.
func (m *machine) check(t *rapid.T) {
	m.q.healthy(t)
	type row struct {
		platformID, state string
		handled           bool
	}
	rows, err := store.ReadRows(context.Background(), m.q.db, "", func(r store.Row) (line row, err error) {
		err = r.Scan(&line.platformID, &line.handled, &line.state)
		return line, err
	}, `SELECT m.platform_message_id, m.handled, coalesce(t.state, '') FROM messages m LEFT JOIN turns t ON t.id = m.turn_id
		WHERE m.author = 'customer' ORDER BY m.id`)
	require.NoError(t, err)
	require.Len(t, rows, len(m.texts), "every text is stored once")
	for _, row := range rows {
		text := m.texts[slices.IndexFunc(m.texts, func(text *modelText) bool { return m.q.messageID(text.platformID) == row.platformID })]
		require.Equal(t, text.status == answered, row.state == TurnAnswered, "text %s is %d, its turn %s", text.platformID, text.status, row.state)
		require.Equal(t, text.status == needsNone || text.closed, row.handled, "text %s is %d, its turn %s", text.platformID, text.status, row.state)
	}
	m.checkWaits(t)
	m.checkPlatform(t)
}

// checkWaits looks at who waits: whoever has an open text that came after all that people wrote here, and was never given up.
func (m *machine) checkWaits(t *rapid.T) {
	list, err := m.q.Conversations(context.Background(), "org_1", ConversationFilter{}, pageAll)
	require.NoError(t, err)
	for _, c := range list {
		answered := 0 // so many texts came before the last of a person's messages
		for _, by := range m.written {
			if by.customer == c.CustomerRef {
				answered = max(answered, by.arrivals)
			}
		}
		open := slices.ContainsFunc(m.texts, func(text *modelText) bool {
			return text.customer == c.CustomerRef && text.status == waits && text.arrival > answered && !m.everDead[text.platformID]
		})
		if open {
			require.Positive(t, c.UnansweredSince, "%s waits", c.CustomerRef)
		}
	}
}

// checkPlatform looks at what the customers saw.
func (m *machine) checkPlatform(t *rapid.T) {
	parts := map[string]bool{}
	turns := map[string]string{} // that answered a text
	last := map[string]int{}     // the latest text that was answered, by customer
	begun := map[string]bool{}
	for _, sent := range m.platform {
		require.False(t, parts[sent.part], "a part was sent twice")
		parts[sent.part] = true
		if sent.turn == "" || begun[sent.turn] {
			continue
		}
		begun[sent.turn] = true
		texts := m.textsOf(t, sent.turn)
		for _, text := range texts {
			require.Empty(t, turns[text.platformID], "text %s was answered twice", text.platformID)
			turns[text.platformID] = sent.turn
			if m.everDead[text.platformID] || sent.stalled {
				continue // an operator decides when it is answered, or nobody
			}
			require.Greater(t, text.arrival, last[sent.customer], "text %s was answered late", text.platformID)
		}
		for _, text := range texts {
			if !m.everDead[text.platformID] && !sent.stalled {
				last[sent.customer] = max(last[sent.customer], text.arrival)
			}
		}
	}
}

// settle lets everything come to an end, without faults: then nothing is lost, and what is unclear is flagged.
func (m *machine) settle(t *rapid.T) {
	m.q.crash(t)
	list, err := m.q.Conversations(context.Background(), "org_1", ConversationFilter{}, pageAll)
	require.NoError(t, err)
	for _, c := range list {
		m.back(t, c)
	}
	dead, err := m.q.DeadTurns(context.Background(), 100)
	require.NoError(t, err)
	for _, turn := range dead {
		require.NoError(t, m.q.Retry(context.Background(), "cli", turn.TurnID))
	}
	turns, err := m.q.StandingTurns(context.Background(), time.UnixMilli(0), 100)
	require.NoError(t, err)
	for _, turn := range turns {
		require.NoError(t, m.q.Resume(context.Background(), turn.TurnID, 0))
	}
	w := &modelWorker{}
	for steps := 0; ; steps++ {
		require.Less(t, steps, 1000, "it doesn't come to an end")
		m.step(t, w, func(string) bool { return false })
		now, err := m.q.db.Now(context.Background())
		require.NoError(t, err)
		// A conversation in which nothing is open any longer is looked at once more at the end of its pause.
		if w.lease == nil && m.q.value(t, `SELECT count(*) FROM conversations WHERE run_at <= $1`, now) == "0" {
			break
		}
	}
	m.check(t)
	for _, text := range m.texts {
		require.NotEqual(t, waits, text.status, "text %s was lost", text.platformID)
	}
	require.Equal(t, "0", m.q.value(t, `SELECT count(*) FROM outbound_messages WHERE state IN ('pending', 'sending')`))
	for _, sent := range m.platform {
		state := m.q.value(t, `SELECT state FROM outbound_messages WHERE id = $1`, sent.part)
		require.Contains(t, []string{OutboundSent, OutboundDeliveryUnknown}, state, "part %s", sent.part)
	}
}

// TestMachine runs deliveries, workers that crash and stall anywhere, humans, echoes and blocks in any order: no text is
// lost, none is answered twice or out of order, and the customer sees each part once.
func TestMachine(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		rapid.Check(t, func(t *rapid.T) {
			for _, table := range []string{"outbound_messages", "messages", "turns", "conversations"} {
				q.exec(t, `DELETE FROM `+table)
			}
			m := &machine{
				q: q, conversations: map[string]*modelConversation{}, holder: map[string]int64{}, everDead: map[string]bool{},
				written: map[string]written{},
				workers: []*modelWorker{{}, {}},
			}
			t.Repeat(map[string]func(*rapid.T){
				"deliver": m.Deliver, "deliver again": m.DeliverAgain, "echo": m.Echo, "block": m.Block, "hand": m.Hand,
				"human": m.Human, "revive": m.Revive, "care": m.Care, "expire": m.Expire, "crash": m.Crash,
				"work": m.Work, "work 2": m.Work, "work 3": m.Work, "work 4": m.Work, "": m.check,
			})
			m.settle(t)
		})
	})
}
