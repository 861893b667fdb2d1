package tests

import (
	"crypto/sha256"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/media"
)

// wreckBooks compares what was delivered, what the platform received, and what the API shows.
type wreckBooks struct {
	*wreck
	// received is what the platform has and was found in no conversation yet, by text.
	received map[string]bool
	// turns are those that were answered.
	turns map[string]bool
	// What the API has shown.
	conversations, messages, parts, files, pieces int
	accepted, unknown                             int
}

// requireAgreement compares the three books.
func (r *wreck) requireAgreement(t *testing.T) {
	t.Helper()
	r.svc(t, "doctor")
	b := &wreckBooks{wreck: r, received: map[string]bool{}, turns: map[string]bool{}}
	for _, sent := range r.platform.Sent() {
		require.False(t, b.received[sent.Text], "the platform has %q twice", sent.Text)
		b.received[sent.Text] = true
	}
	for _, l := range r.lines {
		for _, c := range r.business.conversations(t, l) {
			customer, by, to := b.requireCustomer(t, r.business, l, c)
			b.requireOneReplyEach(t, by, to)
			b.requireOrder(t, customer)
		}
	}
	b.requireCharges(t)
	if r.people != nil {
		b.requirePeople(t)
	}
	require.Empty(t, b.received, "received by the platform, and not on record as sent or unclear")
	b.requireNothingElse(t)
	t.Logf("%d messages, %d files, %d replies of the assistant, %d parts flagged; the model was asked %d times",
		b.accepted, b.files, len(b.turns), b.unknown, r.asked.Load())
}

// requireCustomer requires of a conversation that each text and each file that was acknowledged is there, once. It returns the texts of
// both directions.
func (b *wreckBooks) requireCustomer(t *testing.T, owner *business, l *line, c conversation) (customer *wreckCustomer, by, to []message) {
	t.Helper()
	customer = b.customerOf(t, l, c.CustomerID)
	all, to := written(owner.messages(t, c.ID))
	var files []messageFile
	var texts []string
	for _, m := range all {
		files = append(files, m.Files...)
		if m.Kind == "text" {
			by, texts = append(by, m), append(texts, m.Text)
			continue
		}
		require.Equal(t, []string{"event", "image"}, []string{m.Kind, m.Text})
		require.Len(t, m.Files, 1)
		require.True(t, m.Handled || m.TurnID != "", "a picture met silence")
	}
	// What was stored and not acknowledged, because Caddy died in between, was delivered again and merged.
	require.ElementsMatch(t, customer.accepted, texts, "the messages of %s on %s", customer.Customer, customer.Type)
	b.requireFiles(t, owner, c.ID, customer, files)
	b.conversations++
	b.messages += len(all)
	b.parts += len(to)
	b.accepted += len(texts)
	return customer, by, to
}

// requireFiles requires that each picture of a customer is stored as the platform has it, and that one that is no picture has failed for
// that reason.
func (b *wreckBooks) requireFiles(t *testing.T, owner *business, conversation string, customer *wreckCustomer, files []messageFile) {
	t.Helper()
	broken, whole := 0, map[[sha256.Size]byte]bool{} // by the hash of the content, which is long
	for _, picture := range customer.pictures {
		if picture.broken {
			broken++
		} else {
			whole[sha256.Sum256(picture.content)] = true
		}
	}
	for _, file := range files {
		if file.State == "failed" {
			require.Equal(t, "media_type", file.Code)
			broken--
			continue
		}
		require.Equal(t, "stored", file.State)
		a := owner.ask(t, http.MethodGet, "/conversations/"+conversation+"/files/"+file.ID, nil)
		require.Equal(t, http.StatusOK, a.Status)
		content := sha256.Sum256(a.Body)
		require.True(t, whole[content], "the platform has no such file of %s, or it is stored twice", customer.Customer)
		delete(whole, content)
		b.pieces += (len(a.Body) + media.PieceBytes - 1) / media.PieceBytes
	}
	require.Empty(t, whole, "files of %s that are not stored", customer.Customer)
	require.Zero(t, broken, "files that are no pictures")
	b.files += len(files)
}

// settle requires that a message is on record as the platform has it, and takes it off the platform's book.
func (b *wreckBooks) settle(t *testing.T, m message) {
	t.Helper()
	require.Contains(t, []string{"sent", "delivery_unknown"}, m.State, "every fault here passes: %+v", m)
	if m.State == "sent" {
		require.True(t, b.received[m.Text], "%q is said to be sent", m.Text)
	}
	b.unknown += count(m.State == "delivery_unknown")
	delete(b.received, m.Text)
}

// requireOneReplyEach requires of one conversation that each text names one reply of the assistant, and each reply one turn.
func (b *wreckBooks) requireOneReplyEach(t *testing.T, by, to []message) {
	t.Helper()
	last := map[string]string{} // turn → the text of its last message
	for _, m := range by {
		require.NotEmpty(t, m.TurnID, "%s is not answered", m.Text)
		last[m.TurnID] = m.Text
	}
	for _, reply := range to {
		asked, ok := last[reply.TurnID]
		require.True(t, ok, "a second reply of one turn, or one to nobody: %+v", reply)
		delete(last, reply.TurnID)
		b.turns[reply.TurnID] = true
		require.Equal(t, asked, wreckMark.FindString(reply.Text), "the reply answers the turn's last message")
		b.settle(t, reply)
	}
	require.Empty(t, last, "turns without a reply")
}

// requireOrder requires that the platform got the assistant's replies to a customer in the order of what they answer, each message
// at most once. After an erasure it is another customer.
func (b *wreckBooks) requireOrder(t *testing.T, customer *wreckCustomer) {
	t.Helper()
	before := map[bool]int{}
	texts := b.sentTo(customer.sender)
	for _, text := range texts {
		if !strings.HasPrefix(text, "Re: ") {
			continue
		}
		mark := wreckMark.FindStringSubmatch(text)
		require.NotNil(t, mark, text)
		n, err := strconv.Atoi(mark[3])
		require.NoError(t, err)
		forgotten := slices.Contains(customer.forgotten, mark[0])
		require.Greater(t, n, before[forgotten], "replies to %s out of order, or twice: %q", customer.Customer, texts)
		before[forgotten] = n
	}
}

// customerOf is the customer of a conversation.
func (b *wreckBooks) customerOf(t *testing.T, l *line, id string) *wreckCustomer {
	t.Helper()
	for _, w := range b.writers {
		for _, c := range w.customers {
			if w.line == l && c.Customer == id {
				return c
			}
		}
	}
	t.Fatalf("there is no customer %q of %s", id, l.Type)
	return nil
}

// requireCharges requires one charge for each answer, and none else: calls that were cut, because a worker was too slow to
// keep its lease, are on record and cost nothing.
func (b *wreckBooks) requireCharges(t *testing.T) {
	t.Helper()
	require.Equal(t, len(b.turns), b.charged(t, b.business), "charges")
}

// charged counts a business's charges, whose sum is off its wallet.
func (b *wreckBooks) charged(t *testing.T, owner *business) (charges int) {
	t.Helper()
	for _, call := range owner.calls(t) {
		if call.Charged != 0 {
			require.EqualValues(t, usualCharge, call.Charged)
			require.Equal(t, "completed", call.Outcome)
			charges++
		}
	}
	wallet := owner.wallet(t)
	require.Zero(t, wallet.HeldMicros)
	require.EqualValues(t, wreckFunds-charges*usualCharge, wallet.BalanceMicros)
	return charges
}

// answerNumber is the part of an answer that no other answer has.
var answerNumber = regexp.MustCompile(` as [0-9]+\.`)

// requirePeopleCharges requires one charge at least for each answer that anybody has seen, and at most one for each request. Answers that
// a customer's next message or an erasure overtook are charged, too.
func (b *wreckBooks) requirePeopleCharges(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, sent := range b.platform.Sent() {
		if sent.Type == b.people.drafts.Type || sent.Type == b.people.templates.Type {
			seen[answerNumber.FindString(sent.Text)] = true
		}
	}
	for _, d := range b.people.decisions {
		seen[answerNumber.FindString(d.text)] = true
	}
	delete(seen, "")
	charges := b.charged(t, b.people.business)
	require.GreaterOrEqual(t, charges, len(seen))
	require.LessOrEqual(t, charges, len(b.people.Model.Calls()))
}

// requireNothingElse requires that the store has no rows of customers but those that the API has shown.
func (b *wreckBooks) requireNothingElse(t *testing.T) {
	t.Helper()
	wrote := 0
	for _, w := range b.writers {
		for _, c := range w.customers {
			wrote += count(len(c.accepted)+len(c.pictures) > 0)
		}
	}
	require.Equal(t, wrote, b.conversations, "conversations")
	var conversations, messages, parts, files, pieces, turns int
	require.NoError(t, b.operator().db.Reader().QueryRowContext(t.Context(), `SELECT
		(SELECT count(*) FROM conversations), (SELECT count(*) FROM messages), (SELECT count(*) FROM outbound_messages),
		(SELECT count(*) FROM media), (SELECT count(*) FROM media_pieces),
		(SELECT count(*) FROM turns WHERE conversation_id NOT IN (SELECT id FROM conversations))`).
		Scan(&conversations, &messages, &parts, &files, &pieces, &turns))
	require.Equal(t, []int{b.conversations, b.messages, b.parts, b.files, b.pieces, 0},
		[]int{conversations, messages, parts, files, pieces, turns}, "conversations, messages, parts, files, pieces, turns of no conversation")
}
