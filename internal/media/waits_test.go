package media_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestHangingFilesTakeNoOthersPlace guarantees that files which hang hold up those of their own organization only.
func TestHangingFilesTakeNoOthersPlace(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", social.Messenger)
		f.channel("org_2", "chn_2", social.Messenger)
		slow := f.platform.PutFile(picture(media.PieceBytes))
		f.platform.HoldFile(slow, 100)
		for range 20 {
			f.arrives("chn_1", "c", platforms.Attachment{Kind: "image", Reference: f.platform.Link(slow)})
		}
		f.start(nil)
		f.platform.WaitDownloads(t, slow, 2)
		for range 5 {
			quick := f.platform.PutFile(picture(100))
			conversation := f.arrives("chn_2", "c"+quick, platforms.Attachment{Kind: "image", Reference: f.platform.Link(quick)})
			require.Equal(t, media.Stored, f.settled("org_2", conversation)[0].State)
		}
		require.Equal(t, 2, f.platform.Downloads(slow), "an organization has a quarter of the places")
	})
}

// located answers every reference with one location.
type located struct {
	media.Platforms

	where platforms.Location
}

func (l located) Locate(context.Context, *platforms.Channel, string) (platforms.Location, error) {
	return l.where, nil
}

// TestRedirects guarantees that an address which refers to another one opens nothing that the first could not, and that the platform's
// token doesn't go there.
func TestRedirects(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", bot.Type)
		var tokens sync.Map
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tokens.Store(r.URL.Path, r.Header.Get("Authorization"))
			if to, moved := strings.CutPrefix(r.URL.Path, "/to/"); moved {
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusFound)
				return
			}
			_, _ = w.Write(picture(100))
		}))
		t.Cleanup(server.Close)
		for to, c := range map[string]struct {
			own  bool
			code string
		}{
			"/file":              {code: ""},
			"http://10.0.0.1/":   {code: media.CodeRefused}, // the policy of the test allows http to this host only
			"ftp://example.com/": {code: media.CodeRefused},
			"/other":             {own: true, code: media.CodeRefused},
		} {
			where := platforms.Location{Address: server.URL + "/to/" + to, Own: c.own, Authorization: "Bearer secret"}
			stop := f.start(func(config *media.Config) { config.Platforms = located{f.set, where} })
			one := f.settled("org_1", f.arrives("chn_1", to, platforms.Attachment{Kind: "image", Reference: "1"}))[0]
			require.Equal(t, c.code, one.Code, to)
			stop()
		}
		token, _ := tokens.Load("/file")
		require.Empty(t, token)
		token, _ = tokens.Load("/to//file")
		require.Equal(t, "Bearer secret", token)
		_, asked := tokens.Load("/other")
		require.False(t, asked)
	})
}

// While a channel needs new credentials, its files wait.
func TestFilesWaitForNewCredentials(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", social.ChatApp)
		channel, err := f.Channels.ByID(t.Context(), "org_1", "chn_1")
		require.NoError(t, err)
		plain, err := f.ring.Open(channel.Credentials, vault.ChannelCredentials("org_1", "chn_1"))
		require.NoError(t, err)
		var credentials platforms.Credentials
		require.NoError(t, json.Unmarshal(plain, &credentials))
		f.platform.Expire(credentials[platforms.AccessToken])
		id := f.platform.PutFile(picture(100))
		conversation := f.arrives("chn_1", "c", platforms.Attachment{Kind: "image", Reference: id})
		f.start(nil)
		for range 10 { // more than a file is tried otherwise
			f.await("a try to fail", func() bool {
				return f.number(`SELECT count(*) FROM media WHERE attempts = 0 AND run_at > updated_at`) == 1
			})
			f.hurry()
		}
		require.Equal(t, media.Waiting, f.files("org_1", conversation)[0].State)
		fresh, err := json.Marshal(f.platform.Account(social.ChatApp, "771"))
		require.NoError(t, err)
		_, err = f.ChannelCredentials.Replace(t.Context(), "org_1", "chn_1", channel.CredentialsVersion,
			f.ring.Seal(fresh, vault.ChannelCredentials("org_1", "chn_1")))
		require.NoError(t, err)
		f.await("the file", func() bool { f.hurry(); return f.files("org_1", conversation)[0].State == media.Stored })
	})
}

// TestCheck guarantees that the doctor sees each way in which a file is broken.
func TestCheck(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.channel("org_1", "chn_1", bot.Type)
		stop := f.start(nil)
		id := f.platform.PutFile(picture(2*media.PieceBytes + 3))
		f.settled("org_1", f.arrives("chn_1", "c", platforms.Attachment{Kind: "image", Reference: id}))
		stop()
		f.healthy()
		for what, c := range map[string]struct{ spoil, mend string }{
			"is stored with 3 pieces":   {`UPDATE media SET pieces = 3, bytes = bytes + 1`, `UPDATE media SET bytes = bytes - 1`},
			"is stored with 4 pieces":   {`UPDATE media SET pieces = 4`, `UPDATE media SET pieces = 3`},
			"has failed, and has 3":     {`UPDATE media SET state = 'failed'`, `UPDATE media SET state = 'stored'`},
			"waits for more than eight": {`UPDATE media SET state = 'waiting', created_at = 1`, `UPDATE media SET state = 'stored'`},
			"another organization":      {`UPDATE messages SET org_id = 'org_9'`, `UPDATE messages SET org_id = 'org_1'`},
		} {
			f.exec(c.spoil)
			findings, err := media.CheckSince(t.Context(), f.DB, 0)
			require.NoError(t, err)
			require.Len(t, findings, 1, what)
			require.Contains(t, findings[0].Detail, what)
			require.True(t, strings.HasPrefix(findings[0].Subject, "med_"))
			f.exec(c.mend)
			f.healthy()
		}
	})
}
