package media_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestDescribe: a file is what its content says, and its name harms nobody.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"plan.pdf": "plan.pdf", "": "image.png", "../../etc/passwd": "passwd.png", `C:\x\cat.png`: "cat.png", "a\x00b\r\nc\u202e.png": "abc.png",
		"...": "image.png", "kế hoạch.png": "kế hoạch.png", "bad\xff.png": "bad.png", "/": "image.png",
	} {
		require.Equal(t, want, media.Describe(name, picture(20)).Name, "%q", name)
	}
	require.LessOrEqual(t, len(media.Describe(strings.Repeat("ế", 300), picture(20)).Name), 512)
	for content, want := range map[string][2]string{
		string(picture(20)): {"image", "image/png"}, "%PDF-1.7\n": {"file", "application/pdf"}, "<html><script>": {"file", "application/octet-stream"},
		"OggS\x00": {"audio", "audio/ogg"}, "x": {"file", "application/octet-stream"},
	} {
		described := media.Describe("x", []byte(content))
		require.Equal(t, want, [2]string{described.Kind, described.MediaType}, "%q", content)
	}
}

// TestSentFiles: a person's file is stored sealed and whole, shown with its message only, counted against the organization's limit, and
// deleted with its message, whatever deletes it.
func TestSentFiles(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t, ctx := f.t, f.t.Context()
		f.channel("org_1", "chn_1", social.ChatApp)
		conversation := f.arrives("chn_1", "ann")
		other := f.arrives("chn_1", "bob")
		content := picture(media.PieceBytes + 7)
		file := media.Describe("plan.png", content)
		sent, _, err := f.queue.SendFile(ctx, "test", "org_1", conversation, &file, nil)
		require.NoError(t, err)
		all := f.files("org_1", conversation)
		require.Len(t, all, 1)
		require.Equal(t, content, f.content(&all[0]))
		found, err := f.queue.File(ctx, "org_1", conversation, all[0].ID)
		require.NoError(t, err)
		require.Equal(t, "plan.png", found.Name)
		for _, elsewhere := range [][2]string{{"org_1", other}, {"org_2", conversation}} {
			_, err = f.queue.File(ctx, elsewhere[0], elsewhere[1], all[0].ID)
			require.ErrorIs(t, err, store.ErrNotFound)
		}
		_, _, err = f.queue.SendFile(ctx, "test", "org_2", conversation, &file, nil)
		require.ErrorIs(t, err, store.ErrNotFound)
		for _, size := range []int{0, media.MaxBytes + 1} {
			_, _, err = f.queue.SendFile(ctx, "test", "org_1", conversation, &media.Upload{Name: "x", Kind: "file", MediaType: "x/y", Content: make([]byte, size)}, nil)
			require.ErrorIs(t, err, inbox.ErrInvalid)
		}
		require.EqualValues(t, 4, f.number(`SELECT count(*) FROM sent_file_pieces`), "those of the refused one are swept later")
		f.healthy()

		f.exec(`UPDATE sent_files SET bytes = bytes + $1 WHERE id = $2`, int64(media.OrgBytes)-2*int64(len(content))+1, all[0].ID)
		_, _, err = f.queue.SendFile(ctx, "test", "org_1", conversation, &file, nil)
		require.ErrorIs(t, err, media.ErrFull)
		findings, err := media.CheckSince(ctx, f.DB, 0)
		require.NoError(t, err)
		require.Len(t, findings, 1)
		require.Equal(t, all[0].ID, findings[0].Subject)
		f.exec(`UPDATE sent_files SET bytes = $1 WHERE id = $2`, int64(len(content)), all[0].ID)

		f.exec(`UPDATE sent_files SET expires_at = 1 WHERE outbound_id IS NULL`)
		swept, err := media.Sweep(ctx, f.DB)
		require.NoError(t, err)
		require.Equal(t, 1, swept)
		require.Equal(t, content, f.content(&all[0]))
		require.Equal(t, sent[0].ID, all[0].MessageID)
		require.NoError(t, f.queue.DeleteConversation(ctx, "test", "org_1", conversation))
		_, err = f.queue.File(ctx, "org_1", conversation, all[0].ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = media.Sweep(ctx, f.DB)
		require.NoError(t, err)
		require.Zero(t, f.number(`SELECT count(*) FROM sent_file_pieces`))
		require.Zero(t, f.number(`SELECT count(*) FROM sent_files`))
		f.healthy()
	})
}

// TestWithdrawnFiles: a file that was sent and then taken back at the platform is deleted here, too.
func TestWithdrawnFiles(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t, ctx := f.t, f.t.Context()
		f.channel("org_1", "chn_1", social.Messenger)
		conversation := f.arrives("chn_1", "ann")
		file := media.Describe("plan.png", picture(30))
		sent, _, err := f.queue.SendFile(ctx, "test", "org_1", conversation, &file, nil)
		require.NoError(t, err)
		leases, err := f.queue.Lease(ctx, inbox.Places{Free: 1}, time.Hour)
		require.NoError(t, err)
		require.NoError(t, f.queue.Sending(ctx, leases[0], sent[0].ID))
		require.NoError(t, f.queue.SentAndRelease(ctx, leases[0], sent[0].ID, "p1"))
		require.NoError(t, f.queue.Enqueue(ctx, []inbox.Arrival{{Route: f.channels["chn_1"], Items: []inbox.Item{{
			Kind: platforms.Unsent, CustomerRef: "ann", MessageID: "p1",
		}}}}))
		require.Empty(t, f.files("org_1", conversation))
		_, err = f.queue.File(ctx, "org_1", conversation, sent[0].Files[0].ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		swept, err := media.Sweep(ctx, f.DB)
		require.NoError(t, err)
		require.Equal(t, 1, swept)
		f.healthy()
	})
}

// TestStoringIsBounded: an organization that stores many files at once waits for itself, and no other does.
func TestStoringIsBounded(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t, ctx := f.t, f.t.Context()
		keeper := media.NewKeeper(f.DB, f.ring)
		file := media.Describe("x.png", picture(10))
		locked, ended := make(chan struct{}), make(chan error, 3)
		released, release := context.WithCancel(ctx)
		defer release()
		go func() {
			ended <- f.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
				if tx.LockRows() != "" {
					if err := tx.Query(ctx, func(store.Row) error { return nil }, `LOCK TABLE sent_files IN ACCESS EXCLUSIVE MODE`); err != nil {
						return err
					}
				}
				close(locked)
				<-released.Done()
				return nil
			})
		}()
		<-locked
		for range 2 {
			go func() {
				_, err := keeper.Keep(ctx, "org_1", &file)
				ended <- err
			}()
		}
		f.await("both to be in line", func() bool { return f.Queued() == 2 })
		_, err := keeper.Keep(ctx, "org_1", &file)
		require.ErrorIs(t, err, media.ErrBusy)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, err = keeper.Keep(gone, "org_2", &file)
		require.ErrorIs(t, err, context.Canceled, "another organization has a place")
		release()
		for range 3 {
			require.NoError(t, <-ended)
		}
		_, err = keeper.Keep(ctx, "org_1", &file)
		require.NoError(t, err, "the places are free again")
	})
}
