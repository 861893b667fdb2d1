package store_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// A route has all that a webhook needs, whatever the channel's state, and shows a change as soon as any process has written it.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			location := storetest.Location(t, engine)
			db := storetest.OpenAt(t, location, store.Options{})
			other := storetest.OpenAt(t, location, store.Options{}) // as another process
			createOrganization(t, other, "org_1")
			require.NoError(t, other.Agents.Create(ctx, "cli", store.Agent{
				ID: "agt_1", OrgID: "org_1", Name: "one", DebounceMS: 1, DebounceMaxMS: 2, PauseMS: 3,
			}))
			createChannel(t, other, store.Channel{ID: "chn_1", OrgID: "org_1", Credentials: []byte{1, 2}})
			createChannel(t, other, store.Channel{
				ID: "chn_2", OrgID: "org_1", Type: "photo_dm", ExternalID: "Trang'1\u2028<\"🍞", AgentID: "agt_1", State: store.ChannelPending,
			})
			createChannel(t, other, store.Channel{ID: "chn_3", OrgID: "org_1", Type: "chat_app", ExternalID: "Trang'1\u2028<\"🍞", AgentID: "agt_1"})

			one := store.Route{ChannelID: "chn_1", OrgID: "org_1", Type: "bot", State: store.ChannelActive, Credentials: []byte{1, 2}}
			two := store.Route{
				ChannelID: "chn_2", OrgID: "org_1", Type: "photo_dm", ExternalID: "Trang'1\u2028<\"🍞", State: store.ChannelPending,
				DebounceMS: 1, DebounceMaxMS: 2, PauseMS: 3,
			}
			three := two
			three.ChannelID, three.Type, three.State = "chn_3", "chat_app", store.ChannelActive
			for id, want := range map[string]store.Route{"chn_1": one, "chn_2": two} {
				route, found, err := db.Routes.ByID(ctx, id)
				require.NoError(t, err)
				require.True(t, found)
				require.Equal(t, want, route)
			}
			for _, id := range []string{"chn_none", "", "chn_1\x00", "\xff", "org_1"} {
				route, found, err := db.Routes.ByID(ctx, id)
				require.NoError(t, err, "%q", id)
				require.False(t, found, "%q", id)
				require.Zero(t, route)
			}

			twoKey, threeKey := store.RouteKey{Type: "photo_dm", ExternalID: "Trang'1\u2028<\"🍞"}, store.RouteKey{Type: "chat_app", ExternalID: "Trang'1\u2028<\"🍞"}
			routes, err := db.Routes.ByKeys(ctx, []store.RouteKey{
				threeKey, twoKey, twoKey,
				{Type: "localchat", ExternalID: "Trang'1\u2028<\"🍞"},
				{Type: "photo_dm", ExternalID: "none"},
				{Type: "bot"},
				{},
				{Type: "photo_dm", ExternalID: "\x00"},
				{Type: "photo_dm\x00", ExternalID: "Trang'1\u2028<\"🍞"},
				{Type: "photo_dm", ExternalID: "Trang'1\u2028<\"🍞\xff"},
			})
			require.NoError(t, err)
			require.Equal(t, map[store.RouteKey]*store.Route{twoKey: &two, threeKey: &three}, routes)
			routes, err = db.Routes.ByKeys(ctx, nil)
			require.NoError(t, err)
			require.Empty(t, routes)

			require.NoError(t, other.Channels.SetState(ctx, "cli", "org_1", "chn_2", store.ChannelActive))
			require.NoError(t, other.Agents.Delete(ctx, "cli", "org_1", "agt_1"))
			require.NoError(t, other.Channels.Delete(ctx, "cli", "org_1", "chn_3"))
			two.State, two.DebounceMS, two.DebounceMaxMS, two.PauseMS = store.ChannelActive, 0, 0, 0
			routes, err = db.Routes.ByKeys(ctx, []store.RouteKey{twoKey, threeKey})
			require.NoError(t, err)
			require.Equal(t, map[store.RouteKey]*store.Route{twoKey: &two}, routes)
		})
	}
}

// createRoutes adds n channels with an agent each, all of one organization, and answers their keys.
func createRoutes(t testing.TB, db *store.DB, n int) (keys []store.RouteKey) {
	t.Helper()
	require.NoError(t, db.Organizations.Create(t.Context(), "cli", store.Organization{ID: "org_1", Name: "one", Plan: "free"}))
	require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		for i := range n {
			id := fmt.Sprint(i)
			tx.Queue(1, `INSERT INTO agents (id, org_id, name, model, instructions, use_byok, max_tokens, debounce_ms, debounce_max_ms, supersede, pause_ms, created_at, updated_at)
				VALUES ($1, 'org_1', $1, 'm', 'i', $2, 0, $3, 0, $2, 0, 1, 1)`, id, false, i)
			tx.Queue(1, `INSERT INTO channels (id, org_id, type, name, external_id, agent_id, state, credentials, credentials_version, created_at, updated_at)
				VALUES ($1, 'org_1', 'photo_dm', $1, $2, $1, 'active', $3, 1, 1, 1)`, id, "x"+id, make([]byte, 200))
			keys = append(keys, store.RouteKey{Type: "photo_dm", ExternalID: "x" + id})
		}
		return nil
	}))
	return keys
}

// One delivery may name more channels than one query takes.
func TestRoutesOfManyKeys(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		keys := createRoutes(t, db, 1500)
		for i := range 9000 {
			keys = append(keys, store.RouteKey{Type: "photo_dm", ExternalID: fmt.Sprint("none", i)})
		}
		routes, err := db.Routes.ByKeys(t.Context(), keys)
		require.NoError(t, err)
		require.Len(t, routes, 1500)
		for key, route := range routes {
			require.Equal(t, key.ExternalID, "x"+route.ChannelID)
			require.Equal(t, route.ChannelID, fmt.Sprint(route.DebounceMS))
		}
	})
}

// Many deliveries at once each get their own answer.
func TestRoutesAtOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		keys := createRoutes(t, db, 8)
		keys = append(keys, store.RouteKey{Type: "photo_dm", ExternalID: "none"})
		errs := make(chan error)
		for worker := range 32 {
			go func() {
				errs <- askForRoutes(db, keys, worker)
			}()
		}
		for range 32 {
			require.NoError(t, <-errs)
		}
	})
}

func askForRoutes(db *store.DB, keys []store.RouteKey, worker int) error {
	for i := range 50 {
		first := (worker + i) % (len(keys) - 1)
		routes, err := db.Routes.ByKeys(context.Background(), keys[first:first+2])
		if err != nil {
			return err
		}
		route, found, err := db.Routes.ByID(context.Background(), fmt.Sprint(first))
		if err != nil || !found {
			return fmt.Errorf("channel %d: %t %w", first, found, err)
		}
		wanted := 2
		if first == len(keys)-2 {
			wanted = 1 // the last key has no channel
		}
		of := routes[keys[first]]
		if len(routes) != wanted || of.DebounceMS != int64(first) || route.DebounceMS != int64(first) {
			return fmt.Errorf("channel %d answered %v and %v", first, routes, route)
		}
	}
	return nil
}

// The reads of a delivery: one channel by id, and by key 1 or 100 of them.
func BenchmarkRoutes(b *testing.B) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		db := storetest.Open(b, engine)
		keys := createRoutes(b, db, 1000)
		b.Run(string(engine)+"/by id", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, found, err := db.Routes.ByID(context.Background(), "7")
					require.NoError(b, err)
					require.True(b, found)
				}
			})
		})
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprint(engine, "/", n, " keys"), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(32)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						routes, err := db.Routes.ByKeys(context.Background(), keys[:n])
						require.NoError(b, err)
						require.Len(b, routes, n)
					}
				})
			})
		}
	}
}

// A route that differs in any column is another one.
func TestRoutesDiffer(t *testing.T) {
	t.Parallel()
	full := store.Route{
		ChannelID: "a", OrgID: "a", Type: "a", ExternalID: "a", State: "a", Credentials: []byte{1}, DebounceMS: 1, DebounceMaxMS: 1, PauseMS: 1,
	}
	require.True(t, full.Same(&full))
	for i := range reflect.TypeFor[store.Route]().NumField() {
		other := full
		field := reflect.ValueOf(&other).Elem().Field(i)
		field.SetZero()
		if name := reflect.TypeFor[store.Route]().Field(i).Name; name == "Remembered" {
			field.SetBool(true)
			require.True(t, full.Same(&other), "which is no column")
		} else {
			require.False(t, full.Same(&other), name)
		}
	}
}

// Routes that were read are remembered on PostgreSQL until a look-up shows that they are gone, or the memory is full.
func TestRememberedRoutes(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		keys := createRoutes(t, db, 40)
		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `UPDATE channels SET state = 'pending' WHERE id = '39'`)
			return nil
		}))
		require.Nil(t, db.Routes.RememberedByKeys(keys[:1]))
		read, err := db.Routes.ByKeys(t.Context(), keys)
		require.NoError(t, err)
		require.Len(t, read, 40)
		if db.Engine() == store.SQLite {
			_, remembered := db.Routes.RememberedByID("7")
			require.False(t, remembered, "its look-ups cost nothing")
			return
		}
		remembered := db.Routes.RememberedByKeys(keys[:39])
		require.Len(t, remembered, 39)
		require.True(t, remembered[keys[7]].Remembered)
		require.False(t, read[keys[7]].Remembered)
		require.True(t, remembered[keys[7]].Same(read[keys[7]]))
		route, found := db.Routes.RememberedByID("7")
		require.True(t, found)
		require.Equal(t, *remembered[keys[7]], route)
		require.Nil(t, db.Routes.RememberedByKeys([]store.RouteKey{keys[7], {Type: "photo_dm", ExternalID: "none"}}))
		require.Nil(t, db.Routes.RememberedByKeys(keys[38:]), "a pending one isn't remembered")

		require.NoError(t, db.Channels.Delete(t.Context(), "cli", "org_1", "7"))
		_, found, err = db.Routes.ByID(t.Context(), "7")
		require.NoError(t, err)
		require.False(t, found)
		require.Nil(t, db.Routes.RememberedByKeys(keys[7:8]))

		route.ChannelID = "chn_large"
		route.Credentials = make([]byte, store.MaxRemembered/2)
		db.LearnRoute(&route)
		require.NotNil(t, db.Routes.RememberedByKeys(keys[8:9]))
		route.ChannelID = "chn_large_too"
		db.LearnRoute(&route)
		require.Nil(t, db.Routes.RememberedByKeys(keys[8:9]), "it is full")
		_, found = db.Routes.RememberedByID("chn_large_too")
		require.True(t, found)
	})
}
