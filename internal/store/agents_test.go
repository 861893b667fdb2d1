package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func createAgent(t *testing.T, db *store.DB, orgID, id string) {
	t.Helper()
	require.NoError(t, db.Agents.Create(t.Context(), "cli", store.Agent{ID: id, OrgID: orgID, Name: "name of " + id, Model: "a/b"}))
}

func TestAgents(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		agent := store.Agent{
			ID: "agt_1", OrgID: "org_1", Name: "Trợ lý", Model: "openai/gpt-6-luna", Instructions: "Be kind.\n", UseBYOK: true,
			MaxTokens: 300, TemperatureMilli: sql.NullInt64{Int64: 0, Valid: true}, DebounceMS: 1500, DebounceMaxMS: 9000,
			Supersede: true, PauseMS: 60_000, CreatedAt: 5,
			Handover: true, HandoverWords: []string{"a person", "người"}, HandoverReply: "One moment.", Typing: true,
		}
		require.NoError(t, db.Agents.Create(ctx, "key_1", agent))
		agent.UpdatedAt = 5
		read, err := db.Agents.ByID(ctx, "org_1", "agt_1")
		require.NoError(t, err)
		require.Equal(t, agent, read)

		require.ErrorIs(t, db.Agents.Create(ctx, "cli", store.Agent{ID: "agt_2", OrgID: "org_1", Name: agent.Name}), store.ErrConflict)
		require.ErrorIs(t, db.Agents.Create(ctx, "cli", store.Agent{ID: "agt_2", OrgID: "org_none", Name: "x"}), store.ErrNotFound)
		require.NoError(t, db.Agents.Create(ctx, "cli", store.Agent{ID: "agt_2", OrgID: "org_2", Name: agent.Name}), "names are the organization's own")
		_, err = db.Agents.ByID(ctx, "org_2", "agt_1")
		require.ErrorIs(t, err, store.ErrNotFound, "another organization's agent")

		changed := store.Agent{ID: "agt_1", OrgID: "org_1", Name: "plain", Model: "a/b", CreatedAt: 99, UpdatedAt: 99}
		to := func(all store.Agent) func(*store.Agent) error {
			return func(agent *store.Agent) error {
				*agent = all
				return nil
			}
		}
		require.NoError(t, db.Agents.Update(ctx, "usr_1", "org_1", "agt_1", to(changed)))
		read, err = db.Agents.ByID(ctx, "org_1", "agt_1")
		require.NoError(t, err)
		require.Greater(t, read.UpdatedAt, int64(1_700_000_000_000))
		changed.CreatedAt, changed.UpdatedAt = 5, read.UpdatedAt
		require.Equal(t, changed, read)
		createAgent(t, db, "org_1", "agt_3")
		changed.Name = "name of agt_3"
		require.ErrorIs(t, db.Agents.Update(ctx, "cli", "org_1", "agt_1", to(changed)), store.ErrConflict)
		require.ErrorIs(t, db.Agents.Update(ctx, "cli", "org_2", "agt_1", to(changed)), store.ErrNotFound)
		refused := errors.New("refused")
		require.ErrorIs(t, db.Agents.Update(ctx, "cli", "org_1", "agt_1", func(*store.Agent) error { return refused }), refused)

		require.ErrorIs(t, db.Agents.Delete(ctx, "cli", "org_2", "agt_1"), store.ErrNotFound)
		require.NoError(t, db.Agents.Delete(ctx, "cli", "org_1", "agt_1"))
		require.ErrorIs(t, db.Agents.Delete(ctx, "cli", "org_1", "agt_1"), store.ErrNotFound)
		require.Equal(t, []string{
			"cli organization.create org_1", "cli organization.create org_2", "key_1 agent.create agt_1", "cli agent.create agt_2",
			"usr_1 agent.update agt_1", "cli agent.create agt_3", "cli agent.delete agt_1",
		}, actions(t, db), "what failed is not in the audit log")
	})
}

// A list comes in pages, oldest first, and holds only the organization's own agents.
func TestAgentPages(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		var want []string
		for range 105 {
			id := store.NewID("agt")
			createAgent(t, db, "org_1", id)
			want = append(want, id)
		}
		createAgent(t, db, "org_2", store.NewID("agt"))
		write(t, db, `UPDATE agents SET instructions = 'as long as 100,000 characters'`)
		var seen []string
		for page := (store.Page{Limit: 50}); ; {
			agents, err := db.Agents.List(t.Context(), "org_1", page)
			require.NoError(t, err)
			for _, agent := range agents {
				require.Empty(t, agent.Instructions, "a page of them would have 40 MB")
				page.After = agent.ID
				seen = append(seen, agent.ID)
			}
			if len(agents) < page.Limit {
				break
			}
		}
		require.Equal(t, want, seen)
		first, err := db.Agents.List(t.Context(), "org_1", store.Page{})
		require.NoError(t, err)
		require.Len(t, first, 100)
	})
}

func TestPageRows(t *testing.T) {
	t.Parallel()
	for limit, rows := range map[int]int{-1: 100, 0: 100, 1: 1, 101: 101, 1000: 1000, 1001: 1000} {
		require.Equal(t, rows, store.Page{Limit: limit}.Rows(), limit)
	}
}

// A deleted agent leaves its channels, and those only. One that is given to channels at the same moment by another
// process doesn't stay with any.
func TestDeletedAgentLeavesItsChannels(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			db := storetest.OpenAt(t, location, store.Options{})
			other := storetest.OpenAt(t, location, store.Options{})
			db.Unhurried()
			other.Unhurried()
			createOrganization(t, db, "org_1")
			createAgent(t, db, "org_1", "agt_1")
			createAgent(t, db, "org_1", "agt_2")
			const n = 20
			for i := range n {
				createChannel(t, db, store.Channel{ID: fmt.Sprintf("chn_%02d", i), OrgID: "org_1", AgentID: "agt_2"})
			}
			createChannel(t, db, store.Channel{ID: "chn_of_1", OrgID: "org_1", AgentID: "agt_1"})
			createChannel(t, db, store.Channel{ID: "chn_of_2", OrgID: "org_1", AgentID: "agt_2"})
			var givers sync.WaitGroup
			begun := make(chan struct{}, n)
			errs := make(chan error, n)
			agent := "agt_1"
			for i := range n {
				givers.Go(func() {
					begun <- struct{}{}
					errs <- other.Channels.Update(context.Background(), "cli", "org_1", fmt.Sprintf("chn_%02d", i), store.ChannelChange{AgentID: &agent})
				})
			}
			<-begun
			require.NoError(t, db.Agents.Delete(t.Context(), "cli", "org_1", "agt_1"))
			givers.Wait()
			for range n {
				if err := <-errs; err != nil {
					require.ErrorIs(t, err, store.ErrAgentNotFound)
				}
			}
			channels, err := db.Channels.List(t.Context(), "org_1", store.Page{})
			require.NoError(t, err)
			require.Len(t, channels, n+2)
			require.Equal(t, "agt_2", channels[n+1].AgentID)
			for _, channel := range channels {
				require.NotEqual(t, "agt_1", channel.AgentID, channel.ID)
			}
		})
	}
}
