package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// picture is a PNG of so many bytes, as far as anybody looks.
func picture(size int) []byte {
	content := make([]byte, size)
	copy(content, "\x89PNG\r\n\x1a\n")
	for i := 8; i < size; i++ {
		content[i] = byte(i * 7)
	}
	return content
}

// sendFile queues a file for a customer.
func (h *fixture) sendFile(t *testing.T, customer, name string, content []byte) {
	t.Helper()
	file := media.Describe(name, content)
	sent, replayed, err := h.queue.SendFile(t.Context(), "test", acme, h.conversation(t, acme, customer).ID, &file, nil)
	require.NoError(t, err)
	require.False(t, replayed)
	require.Equal(t, inbox.KindEvent, sent[0].Kind)
	require.EqualValues(t, len(content), sent[0].Files[0].Bytes)
}

// TestFiles: a person's file arrives as it is, in the form that suits the platform, and in the order in which it was written.
func TestFiles(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		pdf := append([]byte("%PDF-1.7\n"), picture(1000)...)
		large := picture(media.PieceBytes*2 + 5)
		for i, c := range []struct {
			kind    platforms.Type
			content []byte
			as      string
		}{
			{botType, large, "photo"},
			{botType, pdf, "document"},
			{social.ChatApp, large, "image"},
			{social.ChatApp, pdf, "document"},
			{social.ChatApp, picture(5<<20 + 1), "document"},
			{social.Messenger, large, "image"},
			{social.Messenger, pdf, "file"},
			{social.PhotoDM, large, "image"},
		} {
			channel, customer := fmt.Sprintf("chn_files%d", i), fmt.Sprint("lan", i)
			account := h.channel(t, acme, channel, c.kind, helper)
			h.say(t, channel, customer, "hello")
			w := h.worker()
			h.drain(t, w)
			id := h.conversation(t, acme, customer).ID
			_, err := h.queue.SendAsHuman(t.Context(), "test", acme, id, []string{"Look:"})
			require.NoError(t, err)
			h.sendFile(t, customer, "to/a plan.x", c.content)
			_, err = h.queue.SendAsHuman(t.Context(), "test", acme, id, []string{"Nice?"})
			require.NoError(t, err)
			h.drain(t, w)
			sent := h.platform.SentTo("to-" + customer)
			require.Len(t, sent, 4, "%s", c.kind)
			require.Equal(t, []string{"Look:", "", "Nice?"}, []string{sent[1].Text, sent[2].Text, sent[3].Text})
			file := sent[2].File
			require.Equal(t, c.as, file.As, "%s", c.kind)
			require.Equal(t, "a plan.x", file.Name)
			require.Equal(t, c.content, file.Content)
			require.Contains(t, []string{account["accessToken"], account["botToken"]}, sent[2].Token)
			require.Contains(t, []string{"human: image (sent)", "human: file (sent)"}, h.lines(t, acme, customer)[3])
		}
		findings, err := media.CheckSince(t.Context(), h.db, 0)
		require.NoError(t, err)
		require.Empty(t, findings)
		h.leaseless(t)
	})
}

// unclear is a part that perhaps arrived.
const unclear = "delivery_unknown " + codes.DeliveryUnknown

// TestFilesThatFail: a file is tried again while certainly nothing was sent, which the upload before a message never is; a broken send of it
// is unknown, and never repeated by itself.
func TestFilesThatFail(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		for i, c := range []struct {
			kind   platforms.Type
			match  string
			fault  platformfake.Fault
			first  string // the state after the first try
			states string // and after the second
		}{
			{botType, "to-%s", platformfake.TooMany, "pending", "sent"},
			{botType, "to-%s", platformfake.DropAfter, unclear, unclear},
			{botType, "to-%s", platformfake.Rejected, "failed send_refused", "failed send_refused"},
			{social.ChatApp, platformfake.Upload + "%s.png", platformfake.DropAfter, "pending", "sent"},
			{social.ChatApp, platformfake.Upload + "%s.png", platformfake.Garbage, "pending", "sent"},
			{social.ChatApp, "to-%s", platformfake.DropAfter, unclear, unclear},
			{social.Messenger, platformfake.Upload + "%s.png", platformfake.ServerError, "pending", "sent"},
			{social.Messenger, platformfake.Upload + "%s.png", platformfake.Rejected, "failed send_refused", "failed send_refused"},
		} {
			channel, customer := fmt.Sprintf("chn_fails%d", i), fmt.Sprint("mai", i)
			h.channel(t, acme, channel, c.kind, helper)
			h.say(t, channel, customer, "hello")
			h.drain(t, h.worker())
			h.platform.Script(fmt.Sprintf(c.match, customer), c.fault)
			h.sendFile(t, customer, customer+".png", picture(100))
			h.drain(t, h.worker())
			require.Equal(t, "human: image ("+c.first+")", h.lines(t, acme, customer)[2], "%s %s", c.kind, c.match)
			h.hurry(t)
			h.drain(t, h.worker())
			require.Equal(t, "human: image ("+c.states+")", h.lines(t, acme, customer)[2], "%s %s", c.kind, c.match)
			files := 0
			for _, sent := range h.platform.SentTo("to-" + customer) {
				if sent.File != nil {
					files++
				}
			}
			require.LessOrEqual(t, files, 1, "twice")
		}
	})
}

// TestAFileThatIsGone fails, and holds up nothing behind it.
func TestAFileThatIsGone(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	h.sendFile(t, "lan", "x.png", picture(10))
	_, err := h.queue.SendAsHuman(t.Context(), "test", acme, h.conversation(t, acme, "lan").ID, []string{"Nice?"})
	require.NoError(t, err)
	h.exec(t, `DELETE FROM sent_file_pieces`)
	h.drain(t, h.worker())
	require.Equal(t, []string{"human: image (failed send_refused)", "human: Nice? (sent)"}, h.lines(t, acme, "lan")[2:])
	require.WithinDuration(t, time.Now(), h.platform.Sent()[1].At, time.Minute)
}
