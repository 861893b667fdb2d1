package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// wreckPeople are the people of a business, and two lines on which they act: on drafts the assistant only proposes answers, to the
// customers of templates they send templates. They erase customers of both.
type wreckPeople struct {
	*business
	drafts, templates *line
	// random is what they do with drafts, decisions what they have done, by the draft's id.
	random    *rand.Rand
	decisions map[string]*wreckDecision
}

// wreckDecision is what a person does with a draft.
type wreckDecision struct {
	conversation string
	// text is what is sent, "" if the draft is thrown away.
	text    string
	changed bool
	// certain: the API has confirmed it.
	certain bool
}

func (r *wreck) preparePeople(t *testing.T) *wreckPeople {
	t.Helper()
	p := &wreckPeople{
		business:  r.connectedProduct.business(t, wreckFunds, r.up.script(r.answer), nil),
		random:    rand.New(rand.NewPCG(r.seed, 2<<32)), //nolint:gosec // the same for the same seed
		decisions: map[string]*wreckDecision{},
	}
	p.drafts = r.connect(t, p.business, social.PhotoDM, wreckWriters, p)
	p.call(t, http.MethodPatch, "/channels/"+p.drafts.ID, map[string]any{"answerMode": "draft"}, http.StatusOK)
	p.templates = r.connect(t, p.business, social.ChatApp, wreckWriters, p)
	r.platform.SetTemplates(p.templates.External, readyTemplates()...)
	return p
}

// demand makes a request as a person does: again until there is an answer that isn't a failure of the service. again: an earlier one may
// have been carried out.
func (r *wreck) demand(b *business, method, path string, body any, headers ...string) (a answer, again bool) {
	giveUp := time.Now().Add(2 * patience)
	for {
		var content io.Reader = http.NoBody
		if body != nil {
			text, err := json.Marshal(body)
			if !failOn(r.t, err) {
				return a, again
			}
			content = bytes.NewReader(text)
		}
		a, err := r.as(b.customer).try(context.Background(), method, path, content, append([]string{"Content-Type", "application/json"}, headers...)...)
		switch {
		case err == nil && a.Broken == nil && a.Status < 500:
			return a, again
		case time.Now().After(giveUp):
			r.t.Errorf("not answered: %s %s: %d %s %v", method, path, a.Status, a.Body, err)
			return a, again
		}
		again = true
		betweenLooks() // Caddy is down
	}
}

// conversationOf is the id of the conversation of the business's customer, "" if there is none.
func (b *business) conversationOf(r *wreck, c *wreckCustomer) (id string) {
	found, err := inbox.New(r.operator().db, r.operator().ring).ConversationOf(context.Background(), b.OrgID, c.ID, c.Customer)
	if !errors.Is(err, store.ErrNotFound) {
		failOn(r.t, err)
	}
	return found.ID
}

// sendTemplate lets a person send a template to a customer, once.
func (w *wreckWriter) sendTemplate(r *wreck, c *wreckCustomer) bool {
	conversation := w.people.conversationOf(r, c)
	if conversation == "" {
		return true
	}
	mark := c.mark()
	w.spoil(r, mark, wreckFaults)
	a, _ := r.demand(w.people.business, http.MethodPost, "/conversations/"+conversation+"/messages", map[string]any{"template": map[string]any{
		"name": "order_ready", "language": "en_US",
		"variables": []any{map[string]string{"name": "1", "value": "Lan"}, map[string]string{"name": "2", "value": mark}},
	}}, "Idempotency-Key", mark)
	if a.Status != http.StatusCreated {
		r.t.Errorf("the template %s: %d %s", mark, a.Status, a.Body)
		return false
	}
	c.templates = append(c.templates, templateWith(mark))
	return true
}

// templateWith is what a customer sees of a template with a mark.
func templateWith(mark string) string { return "Dear Lan, order " + mark + " is ready." }

// erase lets a person erase a customer. A delivery of the time before that is repeated brings nothing back.
func (w *wreckWriter) erase(r *wreck, c *wreckCustomer) bool {
	conversation := w.people.conversationOf(r, c)
	if conversation == "" {
		return true
	}
	a, again := r.demand(w.people.business, http.MethodDelete, "/conversations/"+conversation, nil)
	if a.Status != http.StatusNoContent && (a.Status != http.StatusNotFound || !again) {
		r.t.Errorf("the erasure of %s: %d %s", c.Customer, a.Status, a.Body)
		return false
	}
	c.forgotten = slices.Concat(c.forgotten, c.accepted)
	for _, template := range c.templates {
		c.forgotten = append(c.forgotten, wreckMark.FindString(template))
	}
	repeated := c.repeated
	c.accepted, c.templates, c.pictures, c.repeated = nil, nil, nil, delivery{}
	return repeated.Body == nil || w.random.IntN(2) == 0 || r.insist(repeated, 1, 0)
}

// decideDrafts lets a person send drafts, change them, or throw them away, until stop is set.
func (p *wreckPeople) decideDrafts(r *wreck, stop *atomic.Bool) {
	for !stop.Load() {
		var waiting struct{ Data []conversation }
		a, _ := r.demand(p.business, http.MethodGet, "/conversations?limit=100&waiting=true&channelId="+p.drafts.ID, nil)
		if !failOn(r.t, json.Unmarshal(a.Body, &waiting)) {
			return
		}
		for _, c := range waiting.Data {
			p.decideDraft(r, c.ID)
		}
		<-time.After(time.Duration(p.random.IntN(200)) * time.Millisecond) // people take their time
	}
}

// decideDraft decides on the draft of a conversation, if one waits.
func (p *wreckPeople) decideDraft(r *wreck, conversation string) {
	path := "/conversations/" + conversation + "/drafts"
	a, _ := r.demand(p.business, http.MethodGet, path, nil)
	var drafts struct{ Data []struct{ ID, Text string } }
	if a.Status == http.StatusNotFound || !failOn(r.t, json.Unmarshal(a.Body, &drafts)) || len(drafts.Data) == 0 {
		return // erased, or answered
	}
	draft := drafts.Data[0]
	d := &wreckDecision{conversation: conversation, text: draft.Text}
	method, body, done := http.MethodPost, map[string]any{}, http.StatusCreated
	path += "/" + draft.ID
	switch p.random.IntN(4) {
	case 0:
		d.text, method, body, done = "", http.MethodDelete, nil, http.StatusNoContent
	case 1:
		d.text, d.changed = "By hand: "+draft.Text, true
		body["text"] = d.text
		fallthrough
	default:
		path += "/send"
	}
	if before := p.decisions[draft.ID]; before != nil {
		r.t.Errorf("the draft %s waits again after %+v", draft.ID, before)
	}
	p.decisions[draft.ID] = d
	a, again := r.demand(p.business, method, path, body)
	switch {
	case a.Status == done:
		d.certain = true
	case a.Status != http.StatusConflict && a.Status != http.StatusNotFound:
		r.t.Errorf("the draft %s: %d %s", draft.ID, a.Status, a.Body)
	case !again: // the customer has written again, or was erased
		delete(p.decisions, draft.ID)
	}
}

// requirePeople compares the books of the two lines.
func (b *wreckBooks) requirePeople(t *testing.T) {
	t.Helper()
	p := b.people
	decided, sent := map[string]bool{}, 0
	for _, d := range p.decisions {
		decided[d.text] = true
		sent += count(d.certain && d.text != "")
	}
	for _, message := range b.platform.Sent() {
		if message.Type == p.drafts.Type {
			require.True(t, decided[message.Text], "sent by nobody: %q", message.Text)
		}
	}
	for _, c := range p.conversations(t, p.drafts) {
		b.requireDrafts(t, c)
	}
	templates := 0
	for _, c := range p.conversations(t, p.templates) {
		customer, by, to := b.requireCustomer(t, p.business, p.templates, c)
		var replies []message
		wanted := slices.Clone(customer.templates)
		for _, m := range to {
			if m.Kind != "template" {
				replies = append(replies, m)
				continue
			}
			at := slices.Index(wanted, m.Text)
			require.GreaterOrEqual(t, at, 0, "a template that nobody sent, or twice: %q", m.Text)
			wanted = slices.Delete(wanted, at, at+1)
			require.Equal(t, "human", m.Author)
			b.settle(t, m)
			templates++
		}
		require.Empty(t, wanted, "templates that are not in the conversation")
		b.requireOneReplyEach(t, by, replies)
		b.requireOrder(t, customer)
	}
	b.requireForgotten(t)
	b.requirePeopleCharges(t)
	t.Logf("%d drafts were decided on, %d of them sent; %d templates", len(p.decisions), sent, templates)
}

// requireDrafts requires of a conversation on the line of drafts that it has what people sent, and nothing else.
func (b *wreckBooks) requireDrafts(t *testing.T, c conversation) {
	t.Helper()
	_, by, to := b.requireCustomer(t, b.people.business, b.people.drafts, c)
	for _, m := range by {
		require.NotEmpty(t, m.TurnID, "no answer to %s was proposed", m.Text)
	}
	wanted := map[string]bool{} // by text: the API has confirmed it
	for _, d := range b.people.decisions {
		if d.conversation == c.ID && d.text != "" {
			wanted[d.text] = d.certain
		}
	}
	for _, m := range to {
		require.Contains(t, wanted, m.Text, "a draft that nobody sent, or twice")
		delete(wanted, m.Text)
		require.Equal(t, "human", m.Author)
		b.settle(t, m)
	}
	for text, certain := range wanted {
		require.False(t, certain, "a draft was sent and is not in the conversation: %q", text)
	}

	var exported struct {
		Turns []struct{ ID, State, Code string }
	}
	a := b.people.ask(t, http.MethodGet, "/conversations/"+c.ID+"/export", nil)
	require.NoError(t, json.Unmarshal(a.Body, &exported))
	for _, turn := range exported.Turns {
		d := b.people.decisions[turn.ID]
		if turn.State == "superseded" || turn.Code == "media_message" || turn.Code == "handed_over" { // pictures without a text
			require.False(t, d != nil && d.certain, "%+v of %+v", d, turn)
			continue
		}
		require.Equal(t, "discarded", turn.State)
		require.NotNil(t, d, "nobody has decided on the draft of %+v", turn)
		want := "draft_sent"
		switch {
		case d.text == "":
			want = "dismissed"
		case d.changed:
			want = "draft_changed"
		}
		require.Equal(t, want, turn.Code)
	}
}

// requireForgotten requires that whatever the platform has besides is from before an erasure, and that no model was told of that time
// afterwards.
func (b *wreckBooks) requireForgotten(t *testing.T) {
	t.Helper()
	forgotten := map[string]bool{}
	for _, w := range b.writers {
		for _, c := range w.customers {
			for _, mark := range c.forgotten {
				forgotten[mark] = true
			}
		}
	}
	for text := range b.received {
		for _, mark := range wreckMark.FindAllString(text, -1) {
			require.True(t, forgotten[mark], "received by the platform, and not on record as sent or unclear: %q", text)
		}
		delete(b.received, text)
	}
	for _, call := range b.people.Model.Calls() {
		old := map[bool]bool{}
		for _, mark := range wreckMark.FindAllString(call.Raw, -1) {
			old[forgotten[mark]] = true
		}
		require.Len(t, old, 1, "a model was told of an erased customer, who wrote again: %s", call.Raw)
	}
}
