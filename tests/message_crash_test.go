package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// crashingShop is a business whose processes die on demand: a line of drafts, and one of the chat app on which only people write.
type crashingShop struct {
	*connectedProduct
	binary string
	*business
	drafts, chats *line
	passed        map[failpoint.Point]bool
}

// eachCrashingShop runs a test on both engines, and requires that it passes all points but those of others.
func eachCrashingShop(t *testing.T, points []failpoint.Point, test func(t *testing.T, s *crashingShop)) {
	t.Helper()
	binary, err := crashBinary()
	require.NoError(t, err)
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		s := &crashingShop{binary: binary, passed: map[failpoint.Point]bool{}}
		s.connectedProduct = prepareConnectedWith(t, engine, func(d *deployment) {
			d.Lease, d.HoldTTL, d.Sweep = "2s", "1s", "200ms"
		})
		s.worker = s.prepareWorker()
		s.business = s.connectedProduct.business(t, 1_000_000, s.up.script(replying), nil)
		s.drafts, s.chats = s.line(t, social.PhotoDM), s.lineTo(t, social.ChatApp, "")
		s.call(t, http.MethodPatch, "/channels/"+s.drafts.ID, map[string]any{"answerMode": "draft"}, http.StatusOK)
		s.platform.SetTemplates(s.chats.External, readyTemplates()...)
		test(t, s)
		for _, point := range points {
			require.True(t, s.passed[point], point)
		}
	})
}

// conversationWith is the id of the conversation with a customer.
func (s *crashingShop) conversationWith(t *testing.T, customer sender) string {
	t.Helper()
	for _, c := range s.conversations(t, customer.line) {
		if c.CustomerID == customer.Customer {
			return c.ID
		}
	}
	t.Fatalf("there is no conversation with %s", customer.Customer)
	return ""
}

// draftsOf are the drafts that wait in the only conversation of the line of drafts.
func (s *crashingShop) draftsOf(t *testing.T) (ids []string) {
	t.Helper()
	for _, draft := range s.call(t, http.MethodGet, "/conversations/"+s.conversation(t, s.drafts).ID+"/drafts", nil, http.StatusOK)["data"].([]any) {
		ids = append(ids, draft.(map[string]any)["id"].(string))
	}
	return ids
}

// act is what a person does, once and again.
type act struct {
	method, path, key string
	body              any
}

// dieOf starts Caddy to die at a point, and lets a person act.
func (s *crashingShop) dieOf(t *testing.T, point failpoint.Point, a act) {
	t.Helper()
	s.startArmed(t, point)
	got, err := s.try(t, a)
	require.True(t, err != nil || got.Broken != nil, "%d %s", got.Status, got.Body)
	s.awaitDeath()
	s.passed[point] = true
}

// startArmed starts Caddy to die at a point.
func (s *crashingShop) startArmed(t *testing.T, point failpoint.Point) {
	t.Helper()
	s.startBinary(s.binary, failpoint.Variable+"="+string(point))
	s.awaitReady()
}

func (s *crashingShop) try(t *testing.T, a act) (answer, error) {
	t.Helper()
	var body io.Reader = http.NoBody
	if a.body != nil {
		text, err := json.Marshal(a.body)
		require.NoError(t, err)
		body = bytes.NewReader(text)
	}
	headers := []string{"Content-Type", "application/json"}
	if a.key != "" {
		headers = append(headers, "Idempotency-Key", a.key)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.as(s.customer).try(ctx, a.method, a.path, body, headers...)
}

// again requires that what a person does again is answered with a status.
func (s *crashingShop) again(t *testing.T, a act, status int) answer {
	t.Helper()
	got, err := s.try(t, a)
	require.NoError(t, err)
	require.NoError(t, got.Broken)
	require.Equal(t, status, got.Status, "%s", got.Body)
	return got
}

// orderTemplate is the act of sending a template to the conversation.
func orderTemplate(conversation, mark string) act {
	return act{http.MethodPost, "/conversations/" + conversation + "/messages", mark, map[string]any{"template": map[string]any{
		"name": "order_ready", "language": "en_US",
		"variables": []any{map[string]string{"name": "1", "value": "Lan"}, map[string]string{"name": "2", "value": mark}},
	}}}
}

// TestCaddyDiesOfPeople guarantees that what a person does in a conversation is done wholly or not at all when Caddy dies of it, and that
// doing it again does it once: a draft is sent, a template is sent under an Idempotency-Key, a customer with a file is erased.
func TestCaddyDiesOfPeople(t *testing.T) {
	t.Parallel()
	before, after := failpoint.BeforePersonCommit, failpoint.AfterPersonCommit
	eachCrashingShop(t, []failpoint.Point{before, after}, func(t *testing.T, s *crashingShop) {
		s.worker.start()
		asks, buys, goes := s.drafts.from(1), s.chats.from(1), s.chats.from(2)
		requireQueued(t, s.deliver(t, asks.says("one?")), 1)
		requireQueued(t, s.deliver(t, buys.says("hello")), 1)
		content := pictureOf(600_000)
		id := s.platform.PutFile(content)
		requireQueued(t, s.deliver(t, goes.picture(t, id, "")), 0)
		forget := goes.says("forget me")
		requireQueued(t, s.deliver(t, forget), 1)
		s.await("the draft", patience, func() bool { return len(s.draftsOf(t)) == 1 })
		bought, gone := s.conversationWith(t, buys), s.conversationWith(t, goes)
		s.await("the file", patience, func() bool { return s.filesOf(t, gone)[0]["state"] == "stored" })
		send := act{
			method: http.MethodPost, path: "/conversations/" + s.conversation(t, s.drafts).ID + "/drafts/" + s.draftsOf(t)[0] + "/send",
			body: map[string]string{"text": "One."}, // else the API looks first whether the draft waits
		}
		order, erase := orderTemplate(bought, "7"), act{method: http.MethodDelete, path: "/conversations/" + gone}
		s.stop()
		sent := func(to sender) {
			t.Helper()
			s.worker.await("one message", patience, func() bool { return len(s.sentTo(to)) == 1 })
		}

		s.dieOf(t, before, send)
		require.Empty(t, s.sentTo(asks))
		s.dieOf(t, after, send)
		sent(asks)
		s.startArmed(t, before)
		requireError(t, s.again(t, send, http.StatusConflict), "conflict")
		_, err := s.try(t, order)
		require.Error(t, err)
		s.awaitDeath()
		require.Empty(t, s.sentTo(buys))
		s.dieOf(t, after, order)
		sent(buys)
		s.dieOf(t, before, erase)
		s.startArmed(t, after)
		require.Equal(t, content, s.ask(t, http.MethodGet, "/conversations/"+gone+"/files/"+s.filesOf(t, gone)[0]["id"].(string), nil).Body)
		_, err = s.try(t, erase)
		require.Error(t, err)
		s.awaitDeath()
		s.start()
		s.awaitReady()

		s.again(t, erase, http.StatusNotFound)
		require.Equal(t, "true", s.again(t, order, http.StatusCreated).Header.Get("Idempotent-Replayed"))
		requireQueued(t, s.deliver(t, forget), 1)
		require.Len(t, s.conversations(t, s.chats), 1, "a delivery from before the erasure brings nothing back")
		tables := connect(t, s.location)
		s.await("nothing to be left of the file", patience, func() bool { return countFiles(t, tables) == 0 })
		requireQueued(t, s.deliver(t, goes.says("hello again")), 1)
		by, to := written(s.messages(t, s.conversationWith(t, goes)))
		require.Len(t, by, 1)
		require.Empty(t, to)
		require.Equal(t, []string{"One."}, s.sentTo(asks))
		require.Equal(t, []string{templateWith("7")}, s.sentTo(buys))
		s.svc(t, "doctor")
	})
}

// dieAt starts the worker to die at a point, lets something happen, and waits for its death.
func (s *crashingShop) dieAt(t *testing.T, point failpoint.Point, happens func()) {
	t.Helper()
	s.worker.run(s.Dir, append(s.environment(), failpoint.Variable+"="+string(point)), s.worker.stop,
		s.binary, "svc-worker", "--config", s.configFile())
	happens()
	s.worker.awaitDeath()
	s.passed[point] = true
}

// TestWorkerDies guarantees that a worker which dies around a commit leaves nothing half done: a draft is proposed once, for one charge,
// and sent by nobody; a template that was under way is flagged and not sent again; a customer's file can be had when all of it is there;
// and nothing of an erased customer's file is left.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	eachCrashingShop(t, failpoint.MessagePoints()[2:], func(t *testing.T, s *crashingShop) {
		nothing := func() {}
		asks, first, second, sends := s.drafts.from(1), s.chats.from(1), s.chats.from(2), s.chats.from(3)
		for _, customer := range []sender{first, second} {
			requireQueued(t, s.deliver(t, customer.says("hello")), 1)
		}
		s.dieAt(t, failpoint.BeforeDraftCommit, func() { requireQueued(t, s.deliver(t, asks.says("one?")), 1) })
		require.Empty(t, s.draftsOf(t))
		s.dieAt(t, failpoint.AfterDraftCommit, nothing)
		require.Len(t, s.draftsOf(t), 1)

		post := func(to sender, mark string) {
			s.again(t, orderTemplate(s.conversationWith(t, to), mark), http.StatusCreated)
		}
		s.dieAt(t, failpoint.BeforeSend, func() { post(first, "1") })
		require.Empty(t, s.sentTo(first))
		s.dieAt(t, failpoint.AfterSend, func() { post(second, "2") })
		require.Equal(t, []string{templateWith("2")}, s.sentTo(second))

		tables := connect(t, s.location)
		pieces := func() (n int) {
			require.NoError(t, tables.QueryRowContext(t.Context(), `SELECT count(*) FROM media_pieces`).Scan(&n))
			return n
		}
		content := pictureOf(9*media.PieceBytes + 5)
		id := s.platform.PutFile(content)
		s.dieAt(t, failpoint.AfterPiece, func() { requireQueued(t, s.deliver(t, sends.picture(t, id, "")), 0) })
		conversation := s.conversationWith(t, sends)
		file := func(state string) answer {
			t.Helper()
			shown := s.filesOf(t, conversation)[0]
			require.Equal(t, state, shown["state"])
			return s.ask(t, http.MethodGet, "/conversations/"+conversation+"/files/"+shown["id"].(string), nil)
		}
		require.Equal(t, 1, pieces())
		requireError(t, file("waiting"), "not_found")
		s.dieAt(t, failpoint.BeforeFileCommit, nothing)
		require.Equal(t, 10, pieces())
		requireError(t, file("waiting"), "not_found")
		s.dieAt(t, failpoint.AfterFileCommit, nothing)
		require.Equal(t, content, file("stored").Body)
		s.dieAt(t, failpoint.AfterSweptPieces, func() {
			s.call(t, http.MethodDelete, "/conversations/"+conversation, nil, http.StatusNoContent)
		})
		require.Equal(t, 2, pieces())

		s.worker.start()
		s.await("nothing to be left of the file", patience, func() bool { return countFiles(t, tables) == 0 })
		for _, customer := range []sender{first, second} {
			s.await("the template to be flagged", patience, func() bool {
				_, to := written(s.messages(t, s.conversationWith(t, customer)))
				return len(to) == 1 && to[0].State == "delivery_unknown"
			})
		}
		require.Empty(t, s.sentTo(first))
		require.Equal(t, []string{templateWith("2")}, s.sentTo(second))
		require.Empty(t, s.sentTo(asks), "nobody has sent the draft")
		require.Len(t, s.draftsOf(t), 1)
		require.Len(t, s.Model.Calls(), 2, "the answer that was lost with its worker was made again")
		s.awaitCalls(t, 1)
		require.EqualValues(t, 1_000_000-usualCharge, s.wallet(t).BalanceMicros)
		s.svc(t, "doctor")
	})
}
