package media_test

import (
	"encoding/json"
	"strings"
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
			f.arrives("chn_1", "c", media.Reference{Kind: "image", Reference: f.platform.Link(slow)})
		}
		f.start(nil)
		f.platform.WaitDownloads(t, slow, 2)
		for range 5 {
			quick := f.platform.PutFile(picture(100))
			conversation := f.arrives("chn_2", "c"+quick, media.Reference{Kind: "image", Reference: f.platform.Link(quick)})
			require.Equal(t, media.Stored, f.settled("org_2", conversation)[0].State)
		}
		require.Equal(t, 2, f.platform.Downloads(slow), "an organization has a quarter of the places")
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
		conversation := f.arrives("chn_1", "c", media.Reference{Kind: "image", Reference: id})
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
		f.settled("org_1", f.arrives("chn_1", "c", media.Reference{Kind: "image", Reference: id}))
		stop()
		f.healthy()
		for what, c := range map[string]struct{ spoil, mend string }{
			"is stored with 3 pieces":   {`UPDATE media SET pieces = 3, bytes = bytes + 1`, `UPDATE media SET bytes = bytes - 1`},
			"is stored with 4 pieces":   {`UPDATE media SET pieces = 4`, `UPDATE media SET pieces = 3`},
			"has failed, and has 3":     {`UPDATE media SET state = 'failed'`, `UPDATE media SET state = 'stored'`},
			"waits for more than eight": {`UPDATE media SET state = 'waiting', created_at = 1`, `UPDATE media SET state = 'stored'`},
			"another organization":      {`UPDATE media SET org_id = 'org_9'`, `UPDATE media SET org_id = 'org_1'`},
		} {
			f.exec(c.spoil)
			findings, err := media.Check(t.Context(), f.DB)
			require.NoError(t, err)
			require.Len(t, findings, 1, what)
			require.Contains(t, findings[0].Detail, what)
			require.True(t, strings.HasPrefix(findings[0].Subject, "med_"))
			f.exec(c.mend)
			f.healthy()
		}
	})
}
