package tests

import (
	"bytes"
	"database/sql"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// pictureBodies say, for each platform, which part of a text delivery to replace by a picture. %[1]s is the picture's id, %[2]s its address.
var pictureBodies = map[platforms.Type][2]string{
	bot.Type:         {`"text":"x"`, `"photo":[{"file_id":"%[1]s","file_size":90,"width":90}]`},
	social.Messenger: {`"text":"x"`, `"attachments":[{"type":"image","payload":{"url":"%[2]s"}}]`},
	social.PhotoDM:   {`"text":"x"`, `"attachments":[{"type":"image","payload":{"url":"%[2]s"}}]`},
	social.ChatApp:   {`"type":"text","text":{"body":"x"}`, `"type":"image","image":{"mime_type":"image/png","id":"%[1]s"}`},
	localchat.Type:   {`"event_name":"user_send_text","message":{"text":"x"`, `"event_name":"user_send_image","message":{"attachments":[{"type":"image","payload":{"url":"%[2]s"}}]`},
	marketa.Type:     {`"message_type":"text","content":{"text":"x"}`, `"message_type":"image","content":{"url":"%[2]s","thumb_url":"t"}`},
	marketb.Type:     {`"content":"{\"txt\":\"x\"}"`, `"content":"{\"imgUrl\":\"%[2]s\"}"`},
}

// picture is the delivery of a picture without a text.
func (s sender) picture(t testing.TB, id, address string) delivery {
	t.Helper()
	body := string(s.says("x").Body)
	replace := pictureBodies[s.Type]
	require.Contains(t, body, replace[0], "%s", s.Type)
	body = strings.Replace(body, replace[0], fmt.Sprintf(replace[1], id, address), 1)
	return s.sign(strings.Replace(body, `"template_id":1,`, `"template_id":3,`, 1))
}

// pictureOf is a PNG of so many bytes, as far as anybody looks.
func pictureOf(size int) []byte {
	return append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte("customer's picture "), size/19+1)...)[:size]
}

// filesOf are the files of a conversation as the API shows them.
func (b *business) filesOf(t testing.TB, conversation string) (files []map[string]any) {
	t.Helper()
	for _, m := range b.call(t, http.MethodGet, "/conversations/"+conversation+"/messages", nil, http.StatusOK)["data"].([]any) {
		for _, f := range m.(map[string]any)["files"].([]any) {
			files = append(files, f.(map[string]any))
		}
	}
	return files
}

// TestFiles guarantees that pictures which customers send are stored and shown on every platform, never answered and never counted as
// queued; that the local chat platform's are events only; and that nothing of them is left when the customer is erased.
func TestFiles(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := prepareConnected(t, engine)
		c.worker = c.startWorker()
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		other := c.business(t, 0, c.up.script(replying), nil)
		content := pictureOf(600_000)
		id := c.platform.PutFile(content)
		for _, kind := range connected {
			l := b.line(t, kind)
			requireQueuedAs(t, string(kind), c.deliver(t, l.from(1).picture(t, id, c.platform.Link(id))), 0)
			conversation := b.conversation(t, l).ID
			by, to := written(b.messages(t, conversation))
			require.Empty(t, to)
			require.Len(t, by, 1)
			require.Equal(t, "event", by[0].Kind)
			require.Equal(t, "image", by[0].Text)
			if kind == localchat.Type {
				require.Empty(t, b.filesOf(t, conversation))
				continue
			}
			c.await("the picture on "+string(kind), patience, func() bool { return b.filesOf(t, conversation)[0]["state"] != "waiting" })
			file := b.filesOf(t, conversation)[0]
			path := "/conversations/" + conversation + "/files/" + file["id"].(string)
			require.Equal(t, map[string]any{
				"id": file["id"], "kind": "image", "state": "stored", "code": nil, "name": nil, "mediaType": "image/png", "bytes": 600000.0,
			}, file, "%s", kind)
			a := b.ask(t, http.MethodGet, path, nil)
			require.Equal(t, http.StatusOK, a.Status)
			require.Equal(t, content, a.Body)
			for name, value := range map[string]string{
				"Content-Type": "image/png", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox",
				"Content-Disposition": "attachment; filename=" + file["id"].(string), "Content-Length": "600000",
				"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "private, no-store",
			} {
				require.Equal(t, value, a.Header.Get(name))
			}
			requireError(t, other.ask(t, http.MethodGet, path, nil), "forbidden")
			requireError(t, b.ask(t, http.MethodGet, "/conversations/"+conversation+"/files/med_unknown", nil), "not_found")
			exported := string(b.ask(t, http.MethodGet, "/conversations/"+conversation+"/export", nil).Body)
			require.Contains(t, exported, file["id"].(string))
		}
		l := b.line(t, social.ChatApp)
		captioned := l.from(2).picture(t, id, "")
		requireQueued(t, c.deliver(t, l.sign(strings.Replace(string(captioned.Body), `"mime_type"`, `"caption":"This one?","mime_type"`, 1))), 1)
		require.Equal(t, []string{"Re: This one?"}, c.awaitSent(l.from(2), 1))
		require.Len(t, b.Model.Calls(), 1, "a picture without a text asks no model")
		c.svc(t, "doctor")

		tables := connect(t, c.location)
		for _, kind := range []platforms.Type{bot.Type, social.ChatApp, social.Messenger, social.PhotoDM, marketa.Type, marketb.Type} {
			for _, line := range b.linesOf(t, kind) {
				b.call(t, http.MethodDelete, "/conversations/"+line, nil, http.StatusNoContent)
			}
		}
		c.await("nothing to be left of the files", patience, func() bool { return countFiles(t, tables) == 0 })
		c.svc(t, "doctor")
	})
}

// linesOf are the conversations of a business on channels of a type.
func (b *business) linesOf(t testing.TB, kind platforms.Type) (conversations []string) {
	t.Helper()
	for _, one := range b.call(t, http.MethodGet, "/channels?limit=100", nil, http.StatusOK)["data"].([]any) {
		if channel := one.(map[string]any); channel["type"] == string(kind) {
			for _, found := range b.call(t, http.MethodGet, "/conversations?channelId="+channel["id"].(string), nil, http.StatusOK)["data"].([]any) {
				conversations = append(conversations, found.(map[string]any)["id"].(string))
			}
		}
	}
	return conversations
}

func countFiles(t testing.TB, tables *sql.Conn) (n int) {
	t.Helper()
	require.NoError(t, tables.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM media) + (SELECT count(*) FROM media_pieces)`).Scan(&n))
	return n
}

// TestFilesOutliveWorkers guarantees that a file of which a worker has stored some pieces, when it is killed, can't be had until the next
// worker has fetched all of it anew; and that it doesn't delay an answer.
func TestFilesOutliveWorkers(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := prepareConnectedWith(t, engine, func(d *deployment) { d.Lease = "2s" })
		c.worker = c.startWorker()
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, social.ChatApp)
		content := pictureOf(3*(256<<10) + 5)
		id := c.platform.PutFile(content)
		c.platform.HoldFile(id, 256<<10+5)
		requireQueued(t, c.deliver(t, l.from(1).picture(t, id, "")), 0)
		conversation := b.conversation(t, l).ID
		tables := connect(t, c.location)
		c.await("a piece", patience, func() bool { return countFiles(t, tables) == 2 })
		requireQueued(t, c.deliver(t, l.from(1).says("Did you get it?")), 1)
		require.Equal(t, []string{"Re: Did you get it?"}, c.awaitSent(l.from(1), 1))
		c.worker.kill()
		path := "/conversations/" + conversation + "/files/" + b.filesOf(t, conversation)[0]["id"].(string)
		requireError(t, b.ask(t, http.MethodGet, path, nil), "not_found")
		c.svc(t, "doctor")
		c.platform.HoldFile(id, 0)
		c.worker = c.startWorker()
		c.await("the file", patience, func() bool { return b.filesOf(t, conversation)[0]["state"] == "stored" })
		require.Equal(t, content, b.ask(t, http.MethodGet, path, nil).Body)
		c.svc(t, "doctor")
	})
}

// TestMessagesWithoutText guarantees that a picture without a text never meets silence, and never counts as queued: the customer gets the
// channel's notice, once, without a charge; without one people are told until one of them answers or the customer writes. The local chat
// platform's are only shown.
func TestMessagesWithoutText(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		id := c.platform.PutFile(pictureOf(100))
		shown, noticed, told := b.line(t, localchat.Type), b.line(t, bot.Type), b.line(t, social.ChatApp)
		requireError(t, b.ask(t, http.MethodPatch, "/channels/"+noticed.ID, map[string]any{"mediaNotice": ""}), "invalid_request")
		const notice = "Please write what you need."
		for _, l := range []*line{shown, noticed} {
			changed := b.call(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"mediaNotice": notice}, http.StatusOK)
			require.Equal(t, notice, changed["mediaNotice"])
		}
		for _, l := range []*line{shown, noticed, told} {
			requireQueued(t, c.deliver(t, l.from(1).picture(t, id, c.platform.Link(id))), 0)
		}
		require.Equal(t, []string{notice}, c.awaitSent(noticed.from(1), 1))
		c.await("people to be told", patience, func() bool { return b.conversation(t, told).Attention == "media_message" })
		waiting := b.call(t, http.MethodGet, "/conversations?waiting=true&code=media_message", nil, http.StatusOK)["data"].([]any)
		require.Len(t, waiting, 1)
		require.NotNil(t, waiting[0].(map[string]any)["unansweredSince"])

		requireQueued(t, c.deliver(t, noticed.from(1).picture(t, id, "")), 0)
		c.await("people to be told of the second picture, which so soon gets no notice", patience, func() bool {
			return b.conversation(t, noticed).Attention == "media_message"
		})
		b.post(t, "/conversations/"+b.conversation(t, told).ID+"/messages", map[string]any{"text": "A cup."}, http.StatusCreated)
		require.Equal(t, []string{"A cup."}, c.awaitSent(told.from(1), 1))
		require.Empty(t, b.conversation(t, told).Attention)
		require.Empty(t, b.Model.Calls())
		requireQueued(t, c.deliver(t, told.from(1).picture(t, id, "")), 0)
		requireQueued(t, c.deliver(t, told.from(1).says("what is this?")), 1)
		require.Contains(t, c.awaitSent(told.from(1), 2)[1], "what is this?")
		require.Contains(t, b.Model.Calls()[0].Raw, "[image]")
		b.awaitCalls(t, 1)
		require.Empty(t, b.conversation(t, shown).Attention)
		require.Empty(t, c.sentTo(shown.from(1)))
		require.Len(t, c.sentTo(noticed.from(1)), 1, "once")
		c.svc(t, "doctor")
	})
}

// TestPeopleSendFiles guarantees that a file which a person sends arrives whole on every platform that takes some, once for a key, is shown
// in the conversation, and is deleted with it; the others refuse it at once.
func TestPeopleSendFiles(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		content := pictureOf(600_000)
		file := map[string]any{"file": map[string]any{"name": "cup.png", "content": base64.StdEncoding.EncodeToString(content)}}
		var conversations []string
		for _, kind := range connected {
			l := b.line(t, kind)
			customer := l.from(1)
			requireQueuedAs(t, string(kind), c.deliver(t, customer.says("one?")), 1)
			require.Len(t, c.awaitSent(customer, 1), 1)
			conversation := b.conversation(t, l).ID
			path := "/conversations/" + conversation + "/messages"
			if kind == localchat.Type || kind == marketa.Type || kind == marketb.Type {
				refused := b.ask(t, http.MethodPost, path, file)
				requireError(t, refused, "invalid_request")
				require.Contains(t, string(refused.Body), "take no files")
				continue
			}
			sent := b.call(t, http.MethodPost, path, file, http.StatusCreated)
			require.Equal(t, []any{"event", "image"}, []any{sent["kind"], sent["text"]})
			conversations = append(conversations, conversation)
			c.awaitSent(customer, 2)
			arrived := c.platform.Sent()[len(c.platform.Sent())-1]
			require.NotNil(t, arrived.File, "%s", kind)
			require.Equal(t, content, arrived.File.Content)
			c.await("the message to be sent", patience, func() bool {
				_, to := written(b.messages(t, conversation))
				return len(to) == 2 && to[1].State == "sent"
			})
			files := b.filesOf(t, conversation)
			require.Len(t, files, 1)
			require.Equal(t, map[string]any{
				"id": files[0]["id"], "kind": "image", "state": "stored", "code": nil, "name": "cup.png", "mediaType": "image/png", "bytes": 600000.0,
			}, files[0])
			a := b.ask(t, http.MethodGet, "/conversations/"+conversation+"/files/"+files[0]["id"].(string), nil)
			require.Equal(t, content, a.Body)
			require.Contains(t, string(b.ask(t, http.MethodGet, "/conversations/"+conversation+"/export", nil).Body), files[0]["id"].(string))
		}
		require.Len(t, conversations, 4)
		c.svc(t, "doctor")
		for _, conversation := range conversations {
			b.call(t, http.MethodDelete, "/conversations/"+conversation, nil, http.StatusNoContent)
		}
		tables := connect(t, c.location)
		c.await("nothing to be left of the files", patience, func() bool {
			var left int
			require.NoError(t, tables.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM sent_files) + (SELECT count(*) FROM sent_file_pieces)`).Scan(&left))
			return left == 0
		})
		c.svc(t, "doctor")
	})
}
