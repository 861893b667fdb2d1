package api

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func (f *fakeInbox) SendFile(
	ctx context.Context, actor, orgID, id string, file *media.Upload, _ *inbox.SendKey,
) ([]inbox.Message, bool, error) {
	sent, err := f.SendAsHuman(ctx, actor, orgID, id, []string{file.Kind})
	return sent, false, err
}

// fileBody is the body of a message with a file.
func fileBody(name string, content []byte) string {
	return `{"file":{"name":"` + name + `","content":"` + base64.StdEncoding.EncodeToString(content) + `"}}`
}

var smallPicture = []byte("\x89PNG\r\n\x1a\nand so on")

// A file is queued as a message, shown with it, and can be had again. Under one key it is one message.
func TestSendFile(t *testing.T) {
	t.Parallel()
	eachStaffed(t, func(t *testing.T, o *staffed) {
		id := o.write(t, "8490").ConversationID
		path, body := "/conversations/"+id, fileBody("cup.png", smallPicture)
		o.refused(t, errcode.Forbidden, "", http.MethodPost, path+"/messages", "stranger", body)
		o.refused(t, errcode.InsufficientScope, "", http.MethodPost, path+"/messages", "reader", body)
		send := func(body string) (sent handlertest.Answer, replayed string) {
			t.Helper()
			r := request(http.MethodPost, path+"/messages", "owner", body)
			r.Header.Set("Idempotency-Key", "k1")
			w := handlertest.Served(o.Serve, r)
			return handlertest.Answer{Text: w.Body.String()}, w.Header().Get("Idempotent-Replayed")
		}
		first, _ := send(body)
		require.Contains(t, first.Text, `"author":"human","kind":"event","text":"image","state":"pending"`)
		require.Contains(t, first.Text, `"kind":"image","state":"stored","code":null,"name":"cup.png","mediaType":"image/png","bytes":17`)
		again, replayed := send(body)
		require.Equal(t, "true", replayed)
		require.JSONEq(t, first.Text, again.Text)
		other, _ := send(fileBody("cup.png", append(smallPicture, 'x')))
		require.Contains(t, other.Text, "idempotency_key_reused")

		messages := o.ask(t, http.StatusOK, http.MethodGet, path+"/messages", "owner", "")["data"].([]any)
		require.Len(t, messages, 2)
		files := messages[1].(map[string]any)["files"].([]any)
		require.Len(t, files, 1)
		file := path + "/files/" + files[0].(map[string]any)["id"].(string)
		w := handlertest.Served(o.Serve, keyed(http.MethodGet, file, "owner"))
		require.Equal(t, string(smallPicture), w.Body.String())
		require.Equal(t, "image/png", w.Header().Get("Content-Type"))
		o.refused(t, errcode.Forbidden, "", http.MethodGet, file, "stranger", "")

		if o.DB.Engine() == store.Postgres && os.Getenv("SVC_SOAK") == "" {
			return // what a database holds of the largest file is package media's to test, on both engines
		}
		largest := append(append([]byte(nil), smallPicture...), make([]byte, media.MaxBytes-len(smallPicture))...)
		o.ask(t, http.StatusCreated, http.MethodPost, path+"/messages", "owner", fileBody("large.png", largest))
		a := o.refused(t, errcode.InvalidRequest, "file.content", http.MethodPost, path+"/messages", "owner", fileBody("x", append(largest, 1)))
		require.Contains(t, a.Text, "8388609")
	})
}

// A file that is empty, too large, or of a kind that the channel does not take is refused before it is stored. The error names the field.
func TestSendFileIsRefused(t *testing.T) {
	t.Parallel()
	eachStaffed(t, func(t *testing.T, o *staffed) {
		id := o.write(t, "8490").ConversationID
		path := "/conversations/" + id + "/messages"
		for body, field := range map[string]string{
			`{"file":{}}`: "file.content", `{"file":{"content":""}}`: "file.content", `{"file":{"content":"no base64!"}}`: "file.content",
			`{"file":{"content":"aGk"}}`: "file.content", `{"file":"aGk="}`: "file", `{"text":"x","file":{"content":"aGk="}}`: "file",
			`{"template":{"name":"a","language":"en_US"},"file":{"content":"aGk="}}`: "file",
			`{"file":{"name":"` + strings.Repeat("x", 256) + `","content":"aGk="}}`:  "file.name",
			`{"file":{"name":7,"content":"aGk="}}`:                                   "file.name",
			`{"file":{"content":"` + strings.Repeat("A", 11_600_004) + `"}}`:         "file.content",
		} {
			o.refused(t, errcode.InvalidRequest, field, http.MethodPost, path, "owner", body)
		}
		for kind, want := range map[string]string{
			string(localchat.Type): "take no files", string(social.PhotoDM): "image, audio, video", "market_a": "take no files", "market_b": "take no files",
			"widget": "take no files",
		} {
			o.exec(t, `UPDATE channels SET type = $1`, kind)
			a := o.refused(t, errcode.InvalidRequest, "file", http.MethodPost, path, "owner", fileBody("x.pdf", []byte("%PDF-1.7\n")))
			require.Contains(t, a.Text, want)
		}
		o.exec(t, `UPDATE channels SET type = 'chat_app'`)
		o.exec(t, `INSERT INTO sent_files VALUES ('fil_x', 'org_1', NULL, 'file', $1, 'x/y', $2, 1, $2, 1)`, []byte{}, int64(media.OrgBytes))
		o.refused(t, errcode.PlanLimitExceeded, "", http.MethodPost, path, "owner", fileBody("x", smallPicture))
		o.exec(t, `UPDATE conversations SET last_customer_at = 1`)
		o.refused(t, errcode.TemplateRequired, "", http.MethodPost, path, "owner", fileBody("x", smallPicture))
		o.exec(t, `UPDATE channels SET state = 'needs_reauth'`)
		o.refused(t, errcode.ChannelNeedsReauth, "", http.MethodPost, path, "owner", fileBody("x", smallPicture))
		var stored int
		require.NoError(t, o.DB.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM sent_file_pieces`).Scan(&stored))
		require.Zero(t, stored)
	})
}

// exec writes by hand.
func (o *staffed) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	require.NoError(t, o.DB.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, text, args...)
		return nil
	}))
}

// storedFile is an inbox with one file of one conversation.
type storedFile struct {
	*fakeInbox

	file    media.File
	content []byte
}

func (s *storedFile) Conversation(context.Context, string, string) (inbox.Conversation, error) {
	return inbox.Conversation{}, nil
}

func (s *storedFile) File(context.Context, string, string, string) (media.File, error) {
	return s.file, nil
}

func (s *storedFile) WriteFile(_ context.Context, _ *media.File, w io.Writer) error {
	_, err := w.Write(s.content)
	return err
}

// A download that isn't read is charged two pieces of its file; beyond its share an organization waits, and others don't.
func TestDownloadsAreCharged(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	content := make([]byte, 3*media.PieceBytes)
	o.Conversations = &storedFile{o.inbox, media.File{ID: "file_1", State: media.Stored, MediaType: "image/png", Bytes: int64(len(content))}, content}
	o.Bodies = handlers.NewByteBudget(16 * media.PieceBytes) // four pieces for one organization alone
	o.Server = serve(o.Deps)
	const path = "/conversations/con_1/files/file_1"
	client := handlertest.OpenNoWindow(t, handlertest.Serve(t, handlertest.Handler(o.Serve)))
	for i := range 2 {
		require.Equal(t, "200", client.Status(client.Send(http.MethodGet, path, "", "X-Api-Key", "owner")))
		require.Equal(t, int64(i+1)*2*media.PieceBytes, o.Bodies.Used())
	}
	o.refused(t, errcode.RateLimited, "", http.MethodGet, path, "owner", "")
	w := handlertest.Served(o.Serve, keyed(http.MethodGet, path, "stranger"))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, len(content), w.Body.Len())
	client.Close()
	require.Eventually(t, func() bool { return o.Bodies.Used() == 0 }, 10*time.Second, time.Millisecond)
}
