package media_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/internal/egress"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

var local = egress.Policy{AllowPrivate: true}

// fixture is a database with a queue, scripted platforms, and a fetcher's configuration.
type fixture struct {
	*store.DB
	t        *testing.T
	ring     *vault.Ring
	queue    *inbox.Queue
	platform *platformfake.Server
	set      *messaging.Set
	log      bytes.Buffer
	logging  sync.Mutex
	channels map[string]store.Route
}

func each(t *testing.T, run func(f *fixture)) {
	t.Helper()
	ring, err := vault.ParseRing("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	require.NoError(t, err)
	storetest.Each(t, []store.Kind{inbox.Kind}, func(t *testing.T, db *store.DB) {
		f := &fixture{DB: db, t: t, ring: ring, queue: inbox.New(db, ring), platform: platformfake.Start(t), channels: map[string]store.Route{}}
		f.set = f.platform.Client(t)
		run(f)
		for _, secret := range []string{platformfake.Secret, "bot-token", "access-", "http://"} {
			require.NotContains(t, f.logged(), secret, "the log has a secret, or an address")
		}
	})
}

func (f *fixture) Write(p []byte) (int, error) {
	f.logging.Lock()
	defer f.logging.Unlock()
	return f.log.Write(p)
}

func (f *fixture) logged() string {
	f.logging.Lock()
	defer f.logging.Unlock()
	return f.log.String()
}

// channel makes a channel of an organization.
func (f *fixture) channel(org, id string, kind platforms.Type) {
	f.t.Helper()
	err := f.Organizations.Create(f.t.Context(), "test", store.Organization{ID: org, Name: org, Plan: "free"})
	if err != nil {
		require.ErrorIs(f.t, err, store.ErrConflict)
	}
	plain, err := json.Marshal(f.platform.Account(kind, "77"+id[len(id)-1:]))
	require.NoError(f.t, err)
	require.NoError(f.t, f.Channels.Create(f.t.Context(), "test", store.Channel{
		ID: id, OrgID: org, Type: string(kind), Name: id, ExternalID: "77" + id[len(id)-1:], State: store.ChannelActive,
		Credentials: f.ring.Seal(plain, vault.ChannelCredentials(org, id)),
	}, 0))
	f.channels[id] = store.Route{ChannelID: id, OrgID: org, Type: string(kind), State: store.ChannelActive}
}

// arrives enqueues a message of the customer with files, and returns the conversation.
func (f *fixture) arrives(channel, customer string, files ...platforms.Attachment) (conversation string) {
	f.t.Helper()
	route := f.channels[channel]
	require.NoError(f.t, f.queue.Enqueue(f.t.Context(), []inbox.Arrival{{Route: route, Items: []inbox.Item{{
		Kind: platforms.Event, CustomerRef: customer, Address: customer, MessageID: store.NewID("m"), Text: "image", Files: files,
	}}}}))
	found, err := f.queue.ConversationOf(f.t.Context(), route.OrgID, channel, customer)
	require.NoError(f.t, err)
	return found.ID
}

// files are those of a conversation, in the order of its messages.
func (f *fixture) files(org, conversation string) (all []media.File) {
	f.t.Helper()
	messages, err := f.queue.Messages(f.t.Context(), org, conversation, store.Page{})
	require.NoError(f.t, err)
	for i := range messages {
		all = append(all, messages[i].Files...)
	}
	return all
}

// start runs a fetcher until stop is called, or the test ends.
func (f *fixture) start(change func(*media.Config)) (stop func()) {
	config := media.Config{
		DB: f.DB, Ring: f.ring, Platforms: f.set, Policy: local, Logger: slog.New(slog.NewTextHandler(f, nil)),
		Pause: 20 * time.Millisecond,
	}
	if change != nil {
		change(&config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		media.New(config).Run(ctx)
	}()
	stop = func() { cancel(); <-ended }
	f.t.Cleanup(stop)
	return stop
}

func (f *fixture) await(what string, reached func() bool) {
	f.t.Helper()
	require.Eventually(f.t, reached, patience, 5*time.Millisecond, what)
}

// settled waits until no file of the conversation waits, and returns them.
func (f *fixture) settled(org, conversation string) []media.File {
	f.t.Helper()
	f.await("the files to be fetched", func() bool {
		for _, one := range f.files(org, conversation) {
			if one.State == media.Waiting {
				return false
			}
		}
		return true
	})
	return f.files(org, conversation)
}

func (f *fixture) content(one *media.File) []byte {
	f.t.Helper()
	var w bytes.Buffer
	require.NoError(f.t, f.queue.WriteFile(f.t.Context(), one, &w))
	return w.Bytes()
}

func (f *fixture) exec(text string, args ...any) {
	f.t.Helper()
	require.NoError(f.t, f.Exec(f.t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, text, args...)
		return nil
	}))
}

func (f *fixture) number(text string, args ...any) (n int64) {
	f.t.Helper()
	n, err := store.ReadRow(f.t.Context(), f.DB, "count", store.ScanValue[int64], text, args...)
	require.NoError(f.t, err)
	return n
}

// hurry makes all waiting files due.
func (f *fixture) hurry() { f.exec(`UPDATE media SET run_at = 0 WHERE state = 'waiting'`) }

func (f *fixture) healthy() {
	f.t.Helper()
	findings, err := media.CheckSince(f.t.Context(), f.DB, 0)
	require.NoError(f.t, err)
	require.Empty(f.t, findings)
}

// picture is a PNG of so many bytes, as far as anybody looks.
func picture(size int) []byte {
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = random.Read(content)
	copy(content, "\x89PNG\r\n\x1a\n")
	return content
}

// TestFilesAreStored guarantees that files are fetched the way their platform serves them, and stored whole and sealed.
func TestFilesAreStored(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", bot.Type)
		f.channel("org_1", "chn_2", social.ChatApp)
		f.channel("org_1", "chn_3", social.Messenger)
		f.start(nil)
		for _, size := range []int{40, media.PieceBytes - 1, media.PieceBytes, media.PieceBytes + 1, 3*media.PieceBytes + 7} {
			content := picture(size)
			id := f.platform.PutFile(content)
			for channel, reference := range map[string]string{"chn_1": id, "chn_2": id, "chn_3": f.platform.Link(id)} {
				conversation := f.arrives(channel, "c"+id, platforms.Attachment{Kind: "image", Reference: reference, Name: "Ảnh.png"})
				files := f.settled("org_1", conversation)
				require.Len(t, files, 1)
				one := files[0]
				require.Equal(t, media.Stored, one.State, "%s: %s", channel, one.Code)
				require.Equal(t, "Ảnh.png", one.Name)
				require.Equal(t, "image/png", one.MediaType)
				require.EqualValues(t, size, one.Bytes)
				require.Equal(t, content, f.content(&one))
				found, err := f.queue.File(t.Context(), "org_1", conversation, one.ID)
				require.NoError(t, err)
				require.Equal(t, one, found)
				for _, other := range [][2]string{{"org_2", conversation}, {"org_1", "cnv_other"}} {
					_, err = f.queue.File(t.Context(), other[0], other[1], one.ID)
					require.ErrorIs(t, err, store.ErrNotFound)
				}
				pieces, err := store.ReadRows(t.Context(), f.DB, "read pieces", store.ScanValue[[]byte],
					`SELECT body FROM media_pieces WHERE media_id = $1 ORDER BY position`, one.ID)
				require.NoError(t, err)
				require.Len(t, pieces, (size+media.PieceBytes-1)/media.PieceBytes)
				for _, piece := range pieces {
					require.NotContains(t, string(piece), string(content[20:40]), "it is sealed")
				}
				require.Zero(t, f.number(`SELECT count(*) FROM conversations WHERE run_at IS NOT NULL`), "a file makes no conversation due")
			}
		}
		f.healthy()
	})
}

// A piece that was exchanged with another one doesn't open.
func TestPiecesAreBoundToTheirPlace(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", bot.Type)
		f.start(nil)
		id := f.platform.PutFile(picture(2 * media.PieceBytes))
		files := f.settled("org_1", f.arrives("chn_1", "c", platforms.Attachment{Kind: "image", Reference: id}))
		f.exec(`UPDATE media_pieces SET position = 7 WHERE position = 0`)
		f.exec(`UPDATE media_pieces SET position = 0 WHERE position = 1`)
		f.exec(`UPDATE media_pieces SET position = 1 WHERE position = 7`)
		require.ErrorIs(t, f.queue.WriteFile(t.Context(), &files[0], &bytes.Buffer{}), vault.ErrCorrupt)
	})
}

// TestLinksExpire guarantees that a file named by its address is given up when the address has ended, and that one named by an id gets a
// new address.
func TestLinksExpire(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", social.Messenger)
		f.channel("org_1", "chn_2", social.ChatApp)
		id := f.platform.PutFile(picture(100))
		expired := f.arrives("chn_1", "c", platforms.Attachment{Kind: "image", Reference: f.platform.Link(id), Name: "a.png"})
		f.platform.ExpireLinks()
		f.platform.Script(platformfake.Download+id, platformfake.ServerError, platformfake.DropBefore, platformfake.Truncated)
		renewed := f.arrives("chn_2", "c", platforms.Attachment{Kind: "image", Reference: id})
		f.start(func(c *media.Config) { c.Lease = time.Hour })
		files := f.settled("org_1", expired)
		require.Equal(t, media.Failed, files[0].State)
		require.Equal(t, media.CodeExpired, files[0].Code)
		require.Equal(t, "a.png", files[0].Name)
		for n := range 3 {
			f.platform.WaitDownloads(t, id, n+1)
			f.await("the failure to be stored", func() bool {
				return f.number(`SELECT count(*) FROM media WHERE state = 'waiting' AND attempts = $1 AND run_at - updated_at < 1000000`, n+1) == 1
			})
			f.platform.ExpireLinks()
			f.hurry()
		}
		require.Equal(t, media.Stored, f.settled("org_1", renewed)[0].State)
		f.platform.RemoveFile(id)
		gone := f.arrives("chn_2", "c2", platforms.Attachment{Kind: "image", Reference: id})
		f.await("the first try", func() bool {
			return f.number(`SELECT count(*) FROM media WHERE attempts > 0 AND state = 'waiting'`) > 0
		})
		f.exec(`UPDATE media SET attempts = 6, run_at = 0 WHERE state = 'waiting'`)
		f.await("the last try", func() bool { f.hurry(); return f.files("org_1", gone)[0].State == media.Failed })
		f.healthy()
	})
}

// TestBounds guarantees that what isn't a file of the kind, is too large, lies in a private network or exceeds the organization's space,
// isn't stored, and says so.
func TestBounds(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", social.Messenger)
		endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/again" {
				http.Redirect(w, r, "/again", http.StatusFound)
				return
			}
			_, _ = w.Write(picture(media.MaxBytes))
			_, _ = w.Write([]byte("x"))
		}))
		t.Cleanup(endless.Close)
		stop := f.start(nil)
		largest := f.platform.PutFile(picture(media.MaxBytes))
		for what, c := range map[string]struct{ kind, reference, code string }{
			"the largest":          {"image", f.platform.Link(largest), ""},
			"stated too large":     {"image", f.platform.Link(f.platform.PutFile(picture(media.MaxBytes + 1))), media.CodeTooLarge},
			"too large":            {"image", endless.URL + "/", media.CodeTooLarge},
			"redirects":            {"image", endless.URL + "/again", media.CodeRefused},
			"a page":               {"image", f.platform.Link(f.platform.PutFile([]byte("<html><body>Sign in"))), media.CodeType},
			"a page as a voice":    {"audio", f.platform.Link(f.platform.PutFile([]byte("<html><body>Sign in"))), media.CodeType},
			"a drawing":            {"image", f.platform.Link(f.platform.PutFile([]byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`))), media.CodeType},
			"another scheme":       {"image", "ftp://example.com/a", media.CodeRefused},
			"a page as a document": {"file", f.platform.Link(f.platform.PutFile([]byte("<html><body>Invoice"))), ""},
		} {
			one := f.settled("org_1", f.arrives("chn_1", what, platforms.Attachment{Kind: c.kind, Reference: c.reference}))[0]
			require.Equal(t, c.code, one.Code, what)
			if c.kind == "file" {
				require.Equal(t, "application/octet-stream", one.MediaType)
			}
		}
		require.Zero(t, f.number(`SELECT count(*) FROM media_pieces p JOIN media m ON m.id = p.media_id WHERE m.state <> 'stored'`))
		stop()
		stop = f.start(func(c *media.Config) { c.Policy = egress.Policy{} })
		one := f.settled("org_1", f.arrives("chn_1", "private", platforms.Attachment{Kind: "image", Reference: f.platform.Link(largest)}))[0]
		require.Equal(t, media.CodeRefused, one.Code)
		require.Equal(t, 1, f.platform.Downloads(largest))
		stop()
		f.start(func(c *media.Config) { c.OrgBytes = media.MaxBytes + 2*media.LeastBytes }) // one small file is there
		small := f.platform.PutFile(picture(150))
		one = f.settled("org_1", f.arrives("chn_1", "fits", platforms.Attachment{Kind: "image", Reference: f.platform.Link(small)}))[0]
		require.Empty(t, one.Code)
		f.full("org_1", f.arrives("chn_1", "does not", platforms.Attachment{Kind: "image", Reference: f.platform.Link(small)}))
		f.healthy()
	})
}

// full waits until the only file of a conversation waits for room.
func (f *fixture) full(org, conversation string) {
	f.t.Helper()
	f.await("the file to wait for room", func() bool { return f.files(org, conversation)[0].Code == media.CodeStorageFull })
	require.Equal(f.t, media.Waiting, f.files(org, conversation)[0].State)
}

// TestFilesWaitForRoom guarantees that a file which finds no room is had as soon as others are deleted, those of customers or of people, is
// looked at each hour, and is given up after a week.
func TestFilesWaitForRoom(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", bot.Type)
		small := f.platform.PutFile(picture(150))
		arrives := func(customer string) string {
			return f.arrives("chn_1", customer, platforms.Attachment{Kind: "image", Reference: small})
		}
		sent, err := media.NewKeeper(f.DB, f.ring).Keep(t.Context(), "org_1", &media.Upload{Kind: "image", MediaType: "image/png", Content: picture(9)})
		require.NoError(t, err)
		f.start(func(c *media.Config) { c.OrgBytes = 2 * media.LeastBytes })
		first := arrives("first")
		require.Equal(t, media.Stored, f.settled("org_1", first)[0].State, "exactly the space that there is")
		second := arrives("second")
		f.full("org_1", second)
		third := arrives("third")
		f.full("org_1", third)
		require.Equal(t, 1, f.platform.Downloads(small))
		f.healthy()
		hour := f.number(`SELECT min(run_at - updated_at) FROM media WHERE state = 'waiting'`)
		require.InDelta(t, time.Hour.Milliseconds(), hour, float64(20*time.Minute.Milliseconds()))

		require.NoError(t, f.queue.DeleteConversation(t.Context(), "test", "org_1", first))
		_, err = media.Sweep(t.Context(), f.DB)
		require.NoError(t, err)
		f.await("one of them to be stored", func() bool {
			return f.files("org_1", second)[0].State == media.Stored || f.files("org_1", third)[0].State == media.Stored
		})
		f.await("the other to wait again", func() bool {
			return f.number(`SELECT count(*) FROM media WHERE state = 'waiting' AND code <> ''`) == 1
		})
		f.exec(`UPDATE sent_files SET expires_at = 1 WHERE id = $1`, sent.ID)
		_, err = media.Sweep(t.Context(), f.DB)
		require.NoError(t, err)
		f.settled("org_1", second)
		f.settled("org_1", third)

		last := arrives("last")
		f.full("org_1", last)
		f.exec(`UPDATE media SET created_at = created_at - $1, run_at = 0 WHERE state = 'waiting'`, (7*24*time.Hour + time.Minute).Milliseconds())
		one := f.settled("org_1", last)[0]
		require.Equal(t, []string{media.Failed, media.CodeStorageFull}, []string{one.State, one.Code})
		f.healthy()
	})
}

// TestACustomersOldestFilesGoFirst guarantees that one customer has at most an eighth of the organization's space, exactly that, and that their
// newest files are those that are kept. The conversation says what became of the others, which keep their names.
func TestACustomersOldestFilesGoFirst(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		const share = 3
		f.channel("org_1", "chn_1", bot.Type)
		small := f.platform.PutFile(picture(150))
		f.start(func(c *media.Config) { c.OrgBytes = 8 * share * media.LeastBytes })
		sends := func(customer string, n int) []string {
			var conversation string
			for i := range n {
				conversation = f.arrives("chn_1", customer, platforms.Attachment{Kind: "image", Reference: small, Name: fmt.Sprint(i)})
				f.settled("org_1", conversation)
			}
			var became []string
			for _, one := range f.files("org_1", conversation) {
				became = append(became, one.Name+" "+cmp.Or(one.Code, one.State))
			}
			return became
		}
		require.Equal(t, []string{"0 stored", "1 stored", "2 stored"}, sends("other", share), "exactly the share")
		require.Equal(t, []string{"0 media_replaced", "1 media_replaced", "2 stored", "3 stored", "4 stored"}, sends("greedy", share+2))
		require.EqualValues(t, 2, f.number(`SELECT count(*) FROM media WHERE state <> 'stored'`), "nobody else's")
		_, err := media.Sweep(t.Context(), f.DB)
		require.NoError(t, err)
		require.EqualValues(t, 2*share, f.number(`SELECT count(*) FROM media_pieces`))
		f.healthy()
	})
}

// TestNothingIsHalfStored guarantees that a file of which a fetcher has stored some pieces, when it stops or dies, is nowhere to be had
// until another one has fetched all of it.
func TestNothingIsHalfStored(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", bot.Type)
		content := picture(4*media.PieceBytes + 9)
		id := f.platform.PutFile(content)
		f.platform.HoldFile(id, 2*media.PieceBytes+5)
		stop := f.start(func(c *media.Config) { c.Lease = 300 * time.Millisecond })
		conversation := f.arrives("chn_1", "c", platforms.Attachment{Kind: "image", Reference: id})
		f.await("two pieces", func() bool { return f.number(`SELECT count(*) FROM media_pieces`) == 2 })
		until := f.number(`SELECT run_at FROM media`)
		f.await("the lease to be renewed", func() bool { return f.number(`SELECT run_at FROM media`) > until })
		require.Equal(t, media.Waiting, f.files("org_1", conversation)[0].State)
		f.healthy()
		stop()
		require.Zero(t, f.number(`SELECT attempts FROM media`), "a try that was stopped doesn't count")
		require.EqualValues(t, 2, f.number(`SELECT count(*) FROM media_pieces`))
		f.exec(`UPDATE media SET attempts = 1, run_at = 0`) // as a process leaves it that was killed
		f.platform.HoldFile(id, 0)
		f.start(nil)
		files := f.settled("org_1", conversation)
		require.Equal(t, media.Stored, files[0].State)
		require.Equal(t, content, f.content(&files[0]))
		f.healthy()
	})
}

// Two fetchers that both believe to have a file store it once.
func TestLostLease(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", bot.Type)
		content := picture(3 * media.PieceBytes)
		id := f.platform.PutFile(content)
		f.platform.HoldFile(id, media.PieceBytes+1)
		f.start(func(c *media.Config) { c.Lease = time.Hour })
		conversation := f.arrives("chn_1", "c", platforms.Attachment{Kind: "image", Reference: id})
		f.await("a piece", func() bool { return f.number(`SELECT count(*) FROM media_pieces`) == 1 })
		f.platform.HoldFile(id, 0)
		f.hurry()
		f.start(nil)
		files := f.settled("org_1", conversation)
		f.platform.Release()
		require.Equal(t, content, f.content(&files[0]))
		require.EqualValues(t, 2, f.number(`SELECT attempts FROM media`))
		f.healthy()
	})
}

// A try that stands still while another worker has the file, and stops, stores nothing of it any more: the other one has deleted what
// was stored.
func TestATryThatWasOvertaken(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", social.Messenger)
		content := picture(3 * media.PieceBytes)
		var requests atomic.Int64
		goOn := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begin := func(bytes int) {
				_, _ = w.Write(content[:bytes])
				_ = http.NewResponseController(w).Flush()
			}
			n := int64(2)
			if r.URL.Path != "/hang" {
				n = requests.Add(1)
			}
			switch n {
			case 1:
				begin(media.PieceBytes + 1)
				select {
				case <-goOn:
					_, _ = w.Write(content[media.PieceBytes+1:])
				case <-r.Context().Done():
				}
			case 2:
				begin(10)
				<-r.Context().Done()
			default:
				begin(len(content))
			}
		}))
		t.Cleanup(server.Close)
		patient := func(c *media.Config) { c.Lease = time.Hour }
		f.start(patient)
		conversation := f.arrives("chn_1", "c", platforms.Attachment{Kind: "image", Reference: server.URL + "/file"})
		f.await("a piece", func() bool { return f.number(`SELECT count(*) FROM media_pieces`) == 1 })
		f.arrives("chn_1", "other", platforms.Attachment{Kind: "image", Reference: server.URL + "/hang"})
		f.await("the organization to have no place left", func() bool { return f.number(`SELECT count(*) FROM media WHERE attempts = 1`) == 2 })

		stop := f.start(patient)
		f.exec(`UPDATE media SET run_at = 0 WHERE message_id IN (SELECT id FROM messages WHERE conversation_id = $1)`, conversation)
		f.await("the other worker's request", func() bool { return requests.Load() == 2 })
		require.Zero(t, f.number(`SELECT count(*) FROM media_pieces`))
		stop()
		close(goOn)
		files := f.settled("org_1", conversation)
		require.Equal(t, media.Stored, files[0].State)
		require.Equal(t, content, f.content(&files[0]))
		f.healthy()
	})
}

// TestFilesGoWithTheirMessages guarantees that nothing of a file outlives the message: erased, swept by retention, or deleted by a program
// that knows of no files, also while it is fetched.
func TestFilesGoWithTheirMessages(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", bot.Type)
		stop := f.start(nil)
		id := f.platform.PutFile(picture(20 * media.PieceBytes))
		held := f.platform.PutFile(picture(3 * media.PieceBytes))
		f.platform.HoldFile(held, media.PieceBytes)
		left := func() int64 {
			return f.number(`SELECT (SELECT count(*) FROM media) + (SELECT count(*) FROM media_pieces)`)
		}
		for what, remove := range map[string]func(conversation string){
			"erased": func(c string) { require.NoError(t, f.queue.DeleteConversation(t.Context(), "me", "org_1", c)) },
			"taken back": func(c string) {
				messages, err := f.queue.Messages(t.Context(), "org_1", c, store.Page{})
				require.NoError(t, err)
				for i := range messages {
					require.NoError(t, f.queue.Enqueue(t.Context(), []inbox.Arrival{{Route: f.channels["chn_1"], Items: []inbox.Item{{
						Kind: platforms.Unsent, CustomerRef: "taken back", MessageID: messages[i].PlatformMessageID,
					}}}}))
				}
			},
			"deleted": func(c string) { f.exec(`DELETE FROM messages WHERE conversation_id = $1`, c) },
			"swept": func(string) {
				require.NoError(t, f.Organizations.SetRetention(t.Context(), "me", "org_1", store.MinRetentionDays))
				f.exec(`UPDATE messages SET received_at = 1`)
				_, err := inbox.SweepRetention(t.Context(), f.DB)
				require.NoError(t, err)
			},
		} {
			conversation := f.arrives("chn_1", what, platforms.Attachment{Kind: "image", Reference: id})
			one := f.settled("org_1", conversation)[0]
			require.Equal(t, media.Stored, one.State)
			f.arrives("chn_1", what, platforms.Attachment{Kind: "image", Reference: held})
			f.await("a piece of the file that is held", func() bool { return f.number(`SELECT count(*) FROM media_pieces`) == 21 })
			remove(conversation)
			_, err := f.queue.File(t.Context(), "org_1", conversation, one.ID)
			require.ErrorIs(t, err, store.ErrNotFound, what)
			f.await(what+": nothing to be left", func() bool { return left() == 0 })
			f.platform.Release()
		}
		stop()
		conversation := f.arrives("chn_1", "without a worker", platforms.Attachment{Kind: "image", Reference: id})
		require.NoError(t, f.queue.DeleteConversation(t.Context(), "me", "org_1", conversation))
		deleted, err := media.Sweep(t.Context(), f.DB)
		require.NoError(t, err)
		require.Equal(t, 1, deleted)
		require.Zero(t, left())
		f.healthy()
	})
}

// TestOutcomesAreCounted: every try is counted once, by how it ended.
func TestOutcomesAreCounted(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", bot.Type)
		outcomes := make(chan string, 10)
		next := func() string {
			t.Helper()
			select {
			case outcome := <-outcomes:
				return outcome
			case <-time.After(patience):
				require.FailNow(t, "no try ended")
				return ""
			}
		}
		f.start(func(c *media.Config) { c.Fetched = func(outcome string) { outcomes <- outcome } })
		id := f.platform.PutFile(picture(10))
		f.platform.Script(platformfake.Download+id, platformfake.ServerError)
		conversation := f.arrives("chn_1", "ann", platforms.Attachment{Kind: "image", Reference: id})
		require.Equal(t, media.OutcomeRetried, next())
		f.await("the try to be given back", func() bool {
			return f.number(`SELECT count(*) FROM media WHERE run_at > $1`, time.Now().UnixMilli()) == 1
		})
		f.hurry()
		require.Equal(t, media.Stored, next())
		f.arrives("chn_1", "bob", platforms.Attachment{Kind: "image", Reference: "gone"})
		require.Equal(t, media.CodeExpired, next())
		f.settled("org_1", conversation)
		require.Empty(t, outcomes)
	})
}
