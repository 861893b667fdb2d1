package store_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// createChannel adds a channel; what must be set and isn't gets a value.
func createChannel(t *testing.T, db *store.DB, channel store.Channel) {
	t.Helper()
	channel.Type, channel.Name = cmp.Or(channel.Type, "bot"), cmp.Or(channel.Name, "name of "+channel.ID)
	channel.State = cmp.Or(channel.State, store.ChannelActive)
	require.NoError(t, db.Channels.Create(t.Context(), "cli", channel, 0))
}

func TestChannels(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		createAgent(t, db, "org_1", "agt_1")
		createAgent(t, db, "org_2", "agt_2")
		channel := store.Channel{
			ID: "chn_1", OrgID: "org_1", Type: "photo_dm", Name: "Tiệm bánh", ExternalID: "1784", AgentID: "agt_1",
			State: store.ChannelPending, Credentials: []byte{0, 1}, CredentialsVersion: 7, CreatedAt: 5, UpdatedAt: 99,
		}
		require.NoError(t, db.Channels.Create(ctx, "key_1", channel, 0))
		channel.CredentialsVersion, channel.UpdatedAt = 1, 5
		read, err := db.Channels.ByID(ctx, "org_1", "chn_1")
		require.NoError(t, err)
		require.Equal(t, channel, read)
		_, err = db.Channels.ByID(ctx, "org_2", "chn_1")
		require.ErrorIs(t, err, store.ErrNotFound, "another organization's channel")

		other := store.Channel{ID: "chn_2", OrgID: "org_2", Type: "photo_dm", Name: "two", ExternalID: "1784", State: store.ChannelActive}
		require.ErrorIs(t, db.Channels.Create(ctx, "cli", other, 0), store.ErrConflict, "the external id is taken, by whomever")
		other.Type = "social_messenger"
		require.NoError(t, db.Channels.Create(ctx, "cli", other, 0), "on another platform it isn't")
		other.ID, other.Type, other.ExternalID = "chn_3", "bot", ""
		require.ErrorIs(t, db.Channels.Create(ctx, "cli", other, 0), store.ErrConflict, "the name is taken")
		other.Name, other.OrgID = "three", "org_none"
		require.ErrorIs(t, db.Channels.Create(ctx, "cli", other, 0), store.ErrNotFound)
		require.ErrorIs(t, db.Channels.Create(ctx, "cli", other, 1), store.ErrNotFound)
		other.OrgID, other.AgentID = "org_2", "agt_1"
		require.ErrorIs(t, db.Channels.Create(ctx, "cli", other, 0), store.ErrAgentNotFound, "another organization's agent")
		other.AgentID = ""
		require.NoError(t, db.Channels.Create(ctx, "cli", other, 0))
		other.ID, other.Name = "chn_4", "four"
		require.NoError(t, db.Channels.Create(ctx, "cli", other, 0), "channels without an external id don't collide")

		channels, err := db.Channels.List(ctx, "org_2", store.Page{After: "chn_2", Limit: 1})
		require.NoError(t, err)
		require.Len(t, channels, 1)
		require.Equal(t, "chn_3", channels[0].ID)
		require.Nil(t, channels[0].Credentials)
		require.Equal(t, []string{
			"cli organization.create org_1", "cli organization.create org_2", "cli agent.create agt_1", "cli agent.create agt_2",
			"key_1 channel.create chn_1", "cli channel.create chn_2", "cli channel.create chn_3", "cli channel.create chn_4",
		}, actions(t, db))
	})
}

func TestUpdateChannel(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		createAgent(t, db, "org_1", "agt_1")
		createAgent(t, db, "org_2", "agt_2")
		createChannel(t, db, store.Channel{ID: "chn_0", OrgID: "org_1", Name: "taken"})
		createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", Credentials: []byte{1}, CreatedAt: 5})
		want, err := db.Channels.ByID(ctx, "org_1", "chn_1")
		require.NoError(t, err)
		check := func(text string) {
			t.Helper()
			read, err := db.Channels.ByID(ctx, "org_1", "chn_1")
			require.NoError(t, err)
			require.GreaterOrEqual(t, read.UpdatedAt, want.UpdatedAt)
			want.UpdatedAt = read.UpdatedAt
			require.Equal(t, want, read, text)
		}
		update := func(change store.ChannelChange) error {
			return db.Channels.Update(ctx, "usr_1", "org_1", "chn_1", change)
		}
		value := func(text string) *string { return &text }

		require.NoError(t, update(store.ChannelChange{}))
		check("nothing")
		require.EqualValues(t, 5, want.UpdatedAt)
		require.NoError(t, update(store.ChannelChange{Name: value("new"), State: value(store.ChannelNeedsReauth)}))
		want.Name, want.State = "new", store.ChannelNeedsReauth
		check("name and state")
		require.Greater(t, want.UpdatedAt, int64(1_700_000_000_000))
		require.NoError(t, update(store.ChannelChange{AgentID: value("agt_1"), Credentials: []byte{2}}))
		want.AgentID, want.Credentials, want.CredentialsVersion = "agt_1", []byte{2}, 2
		check("agent and credentials")
		require.NoError(t, update(store.ChannelChange{AgentID: value("")}))
		want.AgentID = ""
		check("no agent")
		require.NoError(t, update(store.ChannelChange{Answers: &store.AnswerRules{MaxAgeMinutes: 60}}))
		want.Answers.MaxAgeMinutes = 60
		check("rules of answers")

		require.ErrorIs(t, update(store.ChannelChange{Name: value("taken")}), store.ErrConflict)
		require.ErrorIs(t, update(store.ChannelChange{AgentID: value("agt_2")}), store.ErrAgentNotFound)
		require.ErrorIs(t, update(store.ChannelChange{AgentID: value("agt_none")}), store.ErrNotFound)
		require.Error(t, update(store.ChannelChange{State: value("lost")}))
		require.ErrorIs(t, db.Channels.Update(ctx, "usr_1", "org_2", "chn_1", store.ChannelChange{Name: value("x")}), store.ErrNotFound)
		require.ErrorIs(t, db.Channels.Update(ctx, "usr_1", "org_2", "chn_1", store.ChannelChange{}), store.ErrNotFound)
		check("what failed changed nothing")

		entries, err := db.AuditLog.List(ctx, "", store.Page{Limit: 100})
		require.NoError(t, err)
		var details []string
		for _, entry := range entries {
			if entry.Action == "channel.update" {
				details = append(details, entry.Detail)
			}
		}
		require.Equal(t, []string{"answers", "agent", "agent credentials", "name state"}, details)
	})
}

// What a platform says about credentials counts for those that it was asked with.
func TestRefuseCredentials(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", State: store.ChannelPending})
		for _, step := range []struct {
			was, org, id string
			version      int64
			current      bool
			is           string
		}{
			{store.ChannelActive, "org_1", "chn_1", 0, false, store.ChannelActive},
			{store.ChannelActive, "org_1", "chn_1", 2, false, store.ChannelActive},
			{store.ChannelActive, "org_2", "chn_1", 1, false, store.ChannelActive},
			{store.ChannelActive, "org_1", "chn_none", 1, false, store.ChannelActive},
			{store.ChannelActive, "org_1", "chn_1", 1, true, store.ChannelNeedsReauth},
			{store.ChannelNeedsReauth, "org_1", "chn_1", 1, true, store.ChannelNeedsReauth},
			{store.ChannelPending, "org_1", "chn_1", 1, true, store.ChannelPending}, // still not shown to be theirs
		} {
			require.NoError(t, db.Channels.SetState(t.Context(), "usr_1", "org_1", "chn_1", step.was))
			current, err := db.ChannelCredentials.Refuse(t.Context(), "worker", step.org, step.id, step.version)
			require.NoError(t, err)
			require.Equal(t, step.current, current, step)
			channel, err := db.Channels.ByID(t.Context(), "org_1", "chn_1")
			require.NoError(t, err)
			require.Equal(t, step.is, channel.State, step)
		}
		entries, err := db.AuditLog.List(t.Context(), "", store.Page{Limit: 100})
		require.NoError(t, err)
		marks := 0
		for _, entry := range entries {
			if entry.Actor == "worker" {
				require.Equal(t, store.ChannelNeedsReauth, entry.Detail)
				marks++
			}
		}
		require.Equal(t, 1, marks)
	})
}

// TestRefuseReported guarantees that a report of the platform stops a channel that works, unless it was changed since.
func TestRefuseReported(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", State: store.ChannelPending})
		for _, step := range []struct {
			was, org string
			after    int64 // of the channel's last change, in ms
			is       string
		}{
			{store.ChannelActive, "org_2", 1, store.ChannelActive},
			{store.ChannelActive, "org_1", -1, store.ChannelActive},
			{store.ChannelActive, "org_1", 0, store.ChannelNeedsReauth},
			{store.ChannelNeedsReauth, "org_1", 1, store.ChannelNeedsReauth},
			{store.ChannelPending, "org_1", 1, store.ChannelPending},
		} {
			require.NoError(t, db.Channels.SetState(t.Context(), "usr_1", "org_1", "chn_1", step.was))
			channel, err := db.Channels.ByID(t.Context(), "org_1", "chn_1")
			require.NoError(t, err)
			require.NoError(t, db.ChannelCredentials.RefuseReported(t.Context(), "platform", step.org, "chn_1", channel.UpdatedAt+step.after))
			channel, err = db.Channels.ByID(t.Context(), "org_1", "chn_1")
			require.NoError(t, err)
			require.Equal(t, step.is, channel.State, step)
		}
		entries, err := db.AuditLog.List(t.Context(), "", store.Page{Limit: 100})
		require.NoError(t, err)
		require.Len(t, slices.DeleteFunc(entries, func(e store.AuditEntry) bool { return e.Actor != "platform" }), 1)
	})
}

func TestSetChannelState(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", State: store.ChannelPending})
		for _, step := range []struct{ set, is string }{
			{store.ChannelNeedsReauth, store.ChannelPending}, // still not shown to be theirs
			{store.ChannelActive, store.ChannelActive},
			{store.ChannelActive, store.ChannelActive},
			{store.ChannelNeedsReauth, store.ChannelNeedsReauth},
			{store.ChannelNeedsReauth, store.ChannelNeedsReauth},
			{store.ChannelPending, store.ChannelPending},
		} {
			require.NoError(t, db.Channels.SetState(t.Context(), "worker", "org_1", "chn_1", step.set))
			channel, err := db.Channels.ByID(t.Context(), "org_1", "chn_1")
			require.NoError(t, err)
			require.Equal(t, step.is, channel.State)
		}
		require.ErrorIs(t, db.Channels.SetState(t.Context(), "worker", "org_2", "chn_1", store.ChannelActive), store.ErrNotFound)
		require.ErrorIs(t, db.Channels.SetState(t.Context(), "worker", "org_1", "chn_none", store.ChannelActive), store.ErrNotFound)
		require.Error(t, db.Channels.SetState(t.Context(), "worker", "org_1", "chn_1", "lost"))
		set := []string{"worker channel.set_state chn_1", "worker channel.set_state chn_1", "worker channel.set_state chn_1"}
		require.Equal(t, append([]string{"cli organization.create org_1", "cli channel.create chn_1"}, set...), actions(t, db))
	})
}

// TestTakeOver guarantees that an external id is taken over from a claim that is pending at that moment only, and that nothing
// makes the channel active that lost it.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		claimed := store.Channel{ID: "chn_1", OrgID: "org_1", Type: "social_messenger", ExternalID: "7", State: store.ChannelPending}
		createChannel(t, db, claimed)
		owner := store.Channel{ID: "chn_2", OrgID: "org_2", Type: "social_messenger", Name: "Page", ExternalID: "7", State: store.ChannelActive}
		state := func() (state, externalID string) {
			channel, err := db.Channels.ByID(ctx, "org_1", "chn_1")
			require.NoError(t, err)
			return channel.State, channel.ExternalID
		}
		for _, proven := range []string{store.ChannelActive, store.ChannelNeedsReauth} {
			require.NoError(t, db.Channels.SetState(ctx, "cli", "org_1", "chn_1", proven))
			require.ErrorIs(t, db.Channels.TakeOver(ctx, "usr_2", store.PlatformConfirmed, owner, 0), store.ErrConflict)
			is, id := state()
			require.Equal(t, []string{proven, "7"}, []string{is, id})
		}
		require.NoError(t, db.Channels.SetState(ctx, "cli", "org_1", "chn_1", store.ChannelPending))
		require.NoError(t, db.Channels.TakeOver(ctx, "usr_2", store.PlatformConfirmed, owner, 0))
		active := store.ChannelActive
		require.NoError(t, db.Channels.SetState(ctx, "cli", "org_1", "chn_1", active))
		require.NoError(t, db.Channels.Update(ctx, "usr_1", "org_1", "chn_1", store.ChannelChange{State: &active, Credentials: []byte{1}}))
		is, id := state()
		require.Equal(t, []string{store.ChannelPending, ""}, []string{is, id})
	})
}

// The plan's number of channels holds, however many are created at once, by however many processes.
func TestChannelLimit(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			dbs := []*store.DB{storetest.OpenAt(t, location, store.Options{}), storetest.OpenAt(t, location, store.Options{})}
			createOrganization(t, dbs[0], "org_1")
			createOrganization(t, dbs[0], "org_2")
			createChannel(t, dbs[0], store.Channel{ID: "chn_of_2", OrgID: "org_2"})
			const parallel, limit = 64, 5
			start, errs := make(chan struct{}), make(chan error)
			for i := range parallel {
				go func() {
					<-start
					errs <- storetest.Insist(func() error {
						return dbs[i%2].Channels.Create(context.Background(), "cli", store.Channel{
							ID: fmt.Sprintf("chn_%d", i), OrgID: "org_1", Type: "bot", Name: fmt.Sprint("n", i), State: store.ChannelActive,
						}, limit)
					})
				}()
			}
			close(start)
			created := 0
			for range parallel {
				if err := <-errs; err == nil {
					created++
				} else {
					require.ErrorIs(t, err, store.ErrLimit)
				}
			}
			require.Equal(t, limit, created)
			channels, err := dbs[1].Channels.List(t.Context(), "org_1", store.Page{})
			require.NoError(t, err)
			require.Len(t, channels, limit)

			require.NoError(t, dbs[1].Channels.Delete(t.Context(), "cli", "org_1", channels[0].ID))
			again := store.Channel{ID: "chn_again", OrgID: "org_1", Type: "bot", Name: "again", State: store.ChannelActive}
			require.NoError(t, dbs[0].Channels.Create(t.Context(), "cli", again, limit), "a deleted channel doesn't count")
		})
	}
}

func TestChannelCredentials(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", Credentials: []byte{1}, CreatedAt: 5})
		check := func(sealed byte, version int64) {
			t.Helper()
			channel, err := db.Channels.ByID(ctx, "org_1", "chn_1")
			require.NoError(t, err)
			require.Equal(t, []byte{sealed}, channel.Credentials)
			require.Equal(t, version, channel.CredentialsVersion)
			require.EqualValues(t, 5, channel.UpdatedAt)
		}
		for _, step := range []struct {
			orgID, id string
			version   int64
			replaced  bool
		}{{"org_1", "chn_1", 1, true}, {"org_1", "chn_1", 1, false}, {"org_2", "chn_1", 2, false}, {"org_1", "chn_2", 2, false}} {
			replaced, err := db.ChannelCredentials.Replace(ctx, step.orgID, step.id, step.version, []byte{2})
			require.NoError(t, err)
			require.Equal(t, step.replaced, replaced)
		}
		check(2, 2)

		// A new master key comes between a refresh's reading and its writing: the refreshed token isn't lost.
		for _, step := range []struct {
			orgID    string
			was      byte
			replaced bool
		}{{"org_2", 2, false}, {"org_1", 9, false}, {"org_1", 2, true}} {
			replaced, err := db.ChannelCredentials.Reseal(ctx, step.orgID, "chn_1", []byte{step.was}, []byte{3})
			require.NoError(t, err)
			require.Equal(t, step.replaced, replaced)
		}
		check(3, 2)
		replaced, err := db.ChannelCredentials.Replace(ctx, "org_1", "chn_1", 2, []byte{4})
		require.NoError(t, err)
		require.True(t, replaced)
		check(4, 3)
		require.Len(t, actions(t, db), 2, "nobody did anything")
	})
}

// Of many refreshes of one token that end at once, one is stored.
func TestReplaceCredentialsAtOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1", Credentials: []byte{0}})
		type answer struct {
			sealed   byte
			replaced bool
			err      error
		}
		answers := make(chan answer)
		for i := range byte(16) {
			go func() {
				replaced, err := db.ChannelCredentials.Replace(context.Background(), "org_1", "chn_1", 1, []byte{i + 1})
				answers <- answer{i + 1, replaced, err}
			}()
		}
		var stored []byte
		for range 16 {
			got := <-answers
			require.NoError(t, got.err)
			if got.replaced {
				stored = append(stored, got.sealed)
			}
		}
		require.Len(t, stored, 1)
		channel, err := db.Channels.ByID(t.Context(), "org_1", "chn_1")
		require.NoError(t, err)
		require.Equal(t, stored, channel.Credentials)
		require.EqualValues(t, 2, channel.CredentialsVersion)
	})
}

// Every channel with credentials is seen once, over several pages, while the callback writes.
func TestEachChannelCredentials(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		const n = 230
		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			for i := range n {
				var credentials []byte
				if i%10 != 0 {
					credentials = []byte{byte(i)}
				}
				tx.Queue(1, `INSERT INTO channels (id, org_id, type, name, external_id, state, credentials, credentials_version, created_at, updated_at)
					VALUES ($1, 'org_1', 'bot', $1, '', 'active', $2, 1, 1, 1)`, fmt.Sprintf("chn_%03d", i), credentials)
			}
			return nil
		}))
		seen := map[string]bool{}
		require.NoError(t, db.ChannelCredentials.Each(t.Context(), func(channel store.Channel) error {
			seen[channel.ID] = true
			replaced, err := db.ChannelCredentials.Reseal(t.Context(), channel.OrgID, channel.ID, channel.Credentials, append(channel.Credentials, 1))
			require.True(t, replaced)
			return err
		}))
		require.Len(t, seen, n-n/10)
		enough := errors.New("enough")
		require.ErrorIs(t, db.ChannelCredentials.Each(t.Context(), func(store.Channel) error { return enough }), enough)
	})
}
