package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// An organization has at most so many agents, knowledge bases, members, API keys, event endpoints and documents, however many are
// created at once by however many processes. What was deleted or revoked makes room, and another organization has room of its own.
func TestMostRowsOfAnOrganization(t *testing.T) {
	t.Parallel()
	for _, resource := range []struct {
		name string
		most int
		// fill writes one row in the transaction, create is the method that others call.
		fill   func(tx store.Tx, org string, i int)
		create func(ctx context.Context, db *store.DB, org string, i int) error
		remove func(ctx context.Context, db *store.DB, org string, i int) error
	}{
		{
			"agents", store.MaxAgents, func(tx store.Tx, org string, i int) {
				tx.Queue(1, `INSERT INTO agents (id, org_id, name, model, instructions, use_byok, max_tokens, debounce_ms, debounce_max_ms,
					supersede, pause_ms, created_at, updated_at) VALUES ($1, $2, $3, 'm', '', $4, 0, 0, 0, $4, 0, 1, 1)`,
					fmt.Sprint(org, "_", i), org, fmt.Sprint(i), false)
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				return db.Agents.Create(ctx, "cli", store.Agent{ID: fmt.Sprint(org, "_", i), OrgID: org, Name: fmt.Sprint(i), Model: "m"})
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				return db.Agents.Delete(ctx, "cli", org, fmt.Sprint(org, "_", i))
			},
		},
		{
			"knowledge bases", store.MaxKnowledgeBases, func(tx store.Tx, org string, i int) {
				tx.Queue(1, `INSERT INTO knowledge_bases (id, org_id, name, description, created_at, updated_at) VALUES ($1, $2, $3, '', 1, 1)`,
					fmt.Sprint(org, "_", i), org, fmt.Sprint(i))
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				return db.KnowledgeBases.Create(ctx, "cli", store.KnowledgeBase{ID: fmt.Sprint(org, "_", i), OrgID: org, Name: fmt.Sprint(i)})
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				_, err := db.KnowledgeBases.DeleteEmpty(ctx, "cli", org, fmt.Sprint(org, "_", i))
				return err
			},
		},
		{
			"members", store.MaxMembers, func(tx store.Tx, org string, i int) {
				if i%2 == 0 {
					tx.Queue(1, `INSERT INTO users (id, org_id, email, role, password, created_at, updated_at) VALUES ($1, $2, $1, 'member', 'p', 1, 1)`,
						fmt.Sprint(org, "_", i), org)
					return
				}
				tx.Queue(1, `INSERT INTO invitations (id, org_id, email, role, created_at, updated_at, expires_at) VALUES ($1, $2, $1, 'member', $3, $3, $3)`,
					fmt.Sprint(org, "_", i), org, tx.Now())
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				user := store.User{ID: fmt.Sprint(org, "_", i), OrgID: org, Email: fmt.Sprint(org, "_", i), Role: "member"}
				return db.Users.Invite(ctx, "cli", user, store.UserLink{Hash: [32]byte{org[4], byte(i), byte(i >> 8)}, Purpose: "invite", Lifetime: 60_000})
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				return db.Users.Delete(ctx, "cli", org, fmt.Sprint(org, "_", i), func(store.User) error { return nil })
			},
		},
		{
			"API keys", store.MaxAPIKeys, func(tx store.Tx, org string, i int) {
				hash := [32]byte{org[4], byte(i), byte(i >> 8)}
				tx.Queue(1, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at) VALUES ($1, $2, 'live', '', 's', $3, 'h', 1)`,
					fmt.Sprint(org, "_", i), org, hash[:])
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				return db.APIKeys.Create(ctx, "cli", store.APIKey{ID: fmt.Sprint(org, "_", i), OrgID: org, Env: store.Live, Hash: [32]byte{org[4], byte(i), byte(i >> 8)}})
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				return db.APIKeys.Revoke(ctx, "cli", org, fmt.Sprint(org, "_", i))
			},
		},
		{
			"event endpoints", store.MaxEventEndpoints, func(tx store.Tx, org string, i int) {
				tx.Queue(1, `INSERT INTO event_endpoints (id, org_id, url, events, secret, old_secret_until, state, reason, failing_since, created_at,
					updated_at) VALUES ($1, $2, 'u', 'e', $3, 0, 'active', '', 0, 1, 1)`, fmt.Sprint(org, "_", i), org, []byte{1})
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				return db.EventEndpoints.Create(ctx, "cli", &store.EventEndpoint{ID: fmt.Sprint(org, "_", i), OrgID: org, URL: "u", Secret: []byte{1}})
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				return db.EventEndpoints.Delete(ctx, "cli", org, fmt.Sprint(org, "_", i))
			},
		},
		{
			"documents", store.MaxDocuments, func(tx store.Tx, org string, i int) {
				tx.Queue(1, `INSERT INTO documents (id, org_id, knowledge_base_id, name, media_type, bytes, state, chunks_done, chunks_total, reason,
					created_at, updated_at) VALUES ($1, $2, $3, $1, 'text/plain', 0, 'ready', 0, 0, '', 1, 1)`, fmt.Sprint(org, "_", i), org, "kb_of_"+org)
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				id := fmt.Sprint(org, "_", i)
				return db.Documents.Create(ctx, "cli", store.Document{ID: id, OrgID: org, KnowledgeBaseID: "kb_of_" + org, Name: id, MediaType: "text/plain"}, nil, -1)
			}, func(ctx context.Context, db *store.DB, org string, i int) error {
				_, err := db.Documents.DeleteSomeChunks(ctx, "cli", org, "kb_of_"+org, fmt.Sprint(org, "_", i))
				return err
			},
		},
	} {
		for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
			t.Run(resource.name+" "+string(engine), func(t *testing.T) {
				t.Parallel()
				location := storetest.Location(t, engine)
				dbs := []*store.DB{storetest.OpenAt(t, location, store.Options{}), storetest.OpenAt(t, location, store.Options{})}
				for _, org := range []string{"org_1", "org_2"} {
					createOrganization(t, dbs[0], org)
					if resource.name == "documents" {
						createBase(t, dbs[0], org, "kb_of_"+org)
					}
				}
				const room, parallel = 3, 12
				require.NoError(t, dbs[0].Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
					for i := range resource.most - room {
						resource.fill(tx, "org_1", i)
					}
					return nil
				}))
				start, errs := make(chan struct{}), make(chan error)
				for i := range parallel {
					go func() {
						<-start
						errs <- storetest.Insist(func() error { return resource.create(context.Background(), dbs[i%2], "org_1", resource.most+i) })
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
				require.Equal(t, room, created)
				require.NoError(t, resource.create(t.Context(), dbs[0], "org_2", 0))
				require.NoError(t, resource.remove(t.Context(), dbs[0], "org_1", 0))
				require.NoError(t, resource.create(t.Context(), dbs[1], "org_1", resource.most+parallel))
				require.ErrorIs(t, resource.create(t.Context(), dbs[1], "org_1", resource.most+parallel+1), store.ErrLimit)
			})
		}
	}
}

// Of the tests of an organization's endpoints one second has one, also at once and by several processes, and also if its endpoint is
// deleted.
func TestOneTestEventASecond(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			dbs := []*store.DB{storetest.OpenAt(t, location, store.Options{}), storetest.OpenAt(t, location, store.Options{})}
			ctx := t.Context()
			for _, org := range []string{"org_1", "org_2"} {
				createOrganization(t, dbs[0], org)
				for _, id := range []string{"_a", "_b"} {
					require.NoError(t, dbs[0].EventEndpoints.Create(ctx, "cli", &store.EventEndpoint{ID: org + id, OrgID: org, URL: "https://a.example", Secret: []byte{1}}))
				}
			}
			start, errs := make(chan struct{}), make(chan error)
			const parallel = 8
			for i := range parallel {
				go func() {
					<-start
					errs <- storetest.Insist(func() error {
						_, err := dbs[i%2].EventEndpoints.Test(context.Background(), "org_1", "org_1"+[]string{"_a", "_b"}[i/2%2])
						return err
					})
				}()
			}
			close(start)
			sent := 0
			for range parallel {
				if err := <-errs; err == nil {
					sent++
				} else {
					require.ErrorIs(t, err, store.ErrTooSoon)
				}
			}
			// All eight may have taken more than a second on a busy machine: then as many more were sent.
			require.GreaterOrEqual(t, sent, 1)
			var at []int64
			require.NoError(t, dbs[0].Exec(ctx, func(ctx context.Context, tx store.Tx) (err error) {
				at, err = store.QueryValues[int64](ctx, tx, `SELECT created_at FROM event_deliveries WHERE org_id = 'org_1' ORDER BY created_at`)
				return err
			}))
			require.Len(t, at, sent)
			for i := 1; i < len(at); i++ {
				require.GreaterOrEqual(t, at[i]-at[i-1], store.TestPause.Milliseconds())
			}

			_, err := dbs[0].EventEndpoints.Test(ctx, "org_2", "org_2_a")
			require.NoError(t, err, "another organization")
			require.NoError(t, dbs[0].EventEndpoints.Delete(ctx, "cli", "org_2", "org_2_a"))
			moved := func(by int64) error {
				return dbs[0].Exec(ctx, func(_ context.Context, tx store.Tx) error {
					tx.Queue(1, `UPDATE event_deliveries SET created_at = $1 WHERE org_id = 'org_2'`, tx.Now()+by)
					return nil
				})
			}
			require.NoError(t, moved(60_000))
			_, err = dbs[1].EventEndpoints.Test(ctx, "org_2", "org_2_b")
			require.ErrorIs(t, err, store.ErrTooSoon)
			require.NoError(t, moved(-store.TestPause.Milliseconds()))
			_, err = dbs[1].EventEndpoints.Test(ctx, "org_2", "org_2_b")
			require.NoError(t, err)
		})
	}
}
