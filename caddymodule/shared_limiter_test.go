package caddymodule

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// redisVariable names the environment variable with the address of a Redis (scripts/services.sh starts one).
const redisVariable = "SVC_TEST_REDIS"

func testRedis(t *testing.T) string {
	t.Helper()
	address := os.Getenv(redisVariable)
	require.NotEmpty(t, address, "%s is not set: run the tests through scripts/services.sh, which starts a Redis for them", redisVariable)
	return address
}

// limitedCaddyfile has one plan and, with a block, Redis.
func limitedCaddyfile(t *testing.T, path, block string) string {
	t.Helper()
	return `{
	svc {
		base_url http://localhost:8080
		store sqlite ` + path + `
		master_key ` + string(secretFile(t, testMasterKey)) + `
		plan free {
			requests_per_minute 4
		}
		` + block + `
	}
}
:8080 {
	handle_errors {
		svc_error
	}
	handle {
		svc_auth models:read
		svc_rate_limit
		svc_models
	}
}
`
}

// organization makes one with a key in the store of run.
func organization(t *testing.T, run *instance) (orgID string, key http.Header) {
	t.Helper()
	db := run.app.runtime.shared.db
	orgID = store.NewID("org")
	require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: orgID, Name: orgID, Plan: "free"}))
	raw, hash, hint := identity.NewKey(store.Live)
	require.NoError(t, db.APIKeys.Create(t.Context(), "test", store.APIKey{
		ID: store.NewID("key"), OrgID: orgID, Name: "k", Env: store.Live, Scopes: []string{"models:read"}, Hash: hash, Hint: hint,
	}))
	return orgID, http.Header{"X-Api-Key": {raw}}
}

// TestRedisCountsRequests guarantees that requests are counted in the configured Redis, and that its window goes on
// through a reload.
func TestRedisCountsRequests(t *testing.T) {
	path, block := filepath.Join(storeFolder(t), "svc.db"), "redis "+string(secretFile(t, testRedis(t)))
	options, err := redis.ParseURL(testRedis(t))
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer func() { require.NoError(t, client.Close()) }()
	counted := func(org string) int {
		n, err := client.HGet(t.Context(), "rl:{"+org+"}:window", "n").Int()
		if err != nil {
			require.ErrorIs(t, err, redis.Nil)
		}
		return n
	}

	old := provision(t, limitedCaddyfile(t, path, block))
	require.NoError(t, old.app.Start())
	server := old.server(t, ":8080")
	org, key := organization(t, old)
	require.Eventually(t, func() bool { // a loaded machine may make it count in the process
		resp, body := ask(t, http.MethodGet, server.URL+"/v1/models", key)
		if resp.StatusCode == http.StatusTooManyRequests {
			org, key = organization(t, old)
			return false
		}
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		require.Equal(t, "4", resp.Header.Get("X-Ratelimit-Limit-Requests"))
		return counted(org) > 0 && old.app.reading(redisUp)() == 1
	}, time.Minute, time.Millisecond)

	reloaded := provision(t, limitedCaddyfile(t, path, block))
	reloaded.start(t)
	require.Same(t, old.app.runtime.limiter, reloaded.app.runtime.limiter)
	require.NoError(t, old.app.Cleanup())
	// A closed one would never answer again; an open one may be without Redis for a moment on a loaded machine.
	require.Eventually(t, reloaded.app.runtime.limiter.(*limit.Redis).Answers, time.Minute, time.Millisecond,
		"the old configuration has left it open")

	moved := provision(t, limitedCaddyfile(t, path, block+" {\n nodes 2\n }"))
	moved.start(t)
	require.NotSame(t, reloaded.app.runtime.limiter, moved.app.runtime.limiter, "another share")
}

// TestStartWithoutRedis guarantees that a Redis which is away keeps nothing from starting: requests are counted in the
// process at its share, also across a reload, and the gauge says so.
func TestStartWithoutRedis(t *testing.T) {
	path := filepath.Join(storeFolder(t), "svc.db")
	block := fmt.Sprintf("redis %s {\n nodes 2\n }", secretFile(t, "redis://:secret@127.0.0.1:1"))
	old := provision(t, limitedCaddyfile(t, path, block))
	require.NoError(t, old.app.Start())
	_, key := organization(t, old)
	server := old.server(t, ":8080")
	freshMinute(t)
	for _, status := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		resp, body := ask(t, http.MethodGet, server.URL+"/v1/models", key)
		require.Equal(t, status, resp.StatusCode, body)
		require.Equal(t, "2", resp.Header.Get("X-Ratelimit-Limit-Requests"))
	}
	require.Eventually(t, func() bool { return old.app.reading(redisUp)() == 0 }, time.Minute, time.Millisecond)

	reloaded := provision(t, limitedCaddyfile(t, path, block))
	reloaded.start(t)
	require.NoError(t, old.app.Cleanup())
	resp, body := ask(t, http.MethodGet, reloaded.server(t, ":8080").URL+"/v1/models", key)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode, body)
}

// freshMinute waits for the next minute if this one is nearly over.
func freshMinute(t *testing.T) {
	t.Helper()
	now := time.Now()
	if left := now.Truncate(time.Minute).Add(time.Minute).Sub(now); left < 20*time.Second {
		<-time.After(left)
	}
}

// TestRedisIsClosedWithItsLastConfiguration guarantees that nothing is left behind.
func TestRedisIsClosedWithItsLastConfiguration(t *testing.T) {
	run := provision(t, limitedCaddyfile(t, filepath.Join(storeFolder(t), "svc.db"), "redis "+string(secretFile(t, "redis://127.0.0.1:1"))))
	require.NoError(t, run.app.Start())
	limiter := run.app.runtime.limiter.(*limit.Redis)
	key := redisKey{run.app.settings.location, run.app.settings.redis.digest}
	references, open := windows.References(key)
	require.True(t, open)
	require.Equal(t, 1, references)
	require.NoError(t, run.app.Cleanup())
	_, open = windows.References(key)
	require.False(t, open)
	require.False(t, limiter.Answers())
	d, err := limiter.Take(context.Background(), "org", 5)
	require.NoError(t, err, "a request that still comes is counted here")
	require.True(t, d.Allowed)
}

// TestWorkerLeavesRedisAlone guarantees that a worker's process, which limits nothing, needs no way to Redis.
func TestWorkerLeavesRedisAlone(t *testing.T) {
	run := provision(t, limitedCaddyfile(t, filepath.Join(storeFolder(t), "svc.db"), "redis "+string(secretFile(t, "redis://127.0.0.1:1"))))
	run.app.worker = new(WorkerApp)
	run.start(t)
	require.IsType(t, new(limit.Memory), run.app.runtime.limiter)
}

// TestPostgresCountsRequests guarantees that the key and the window of a request are one statement in PostgreSQL where
// svc_rate_limit directly follows svc_auth, and that requests are counted just the same where another handler stands between them.
func TestPostgresCountsRequests(t *testing.T) {
	for between, together := range map[string]bool{"": true, "header X-Between 1": false} {
		wire := storetest.StartWire(t, storetest.Location(t, store.Postgres))
		configured := strings.ReplaceAll(limitedCaddyfile(t, "", ""), "store sqlite", "store postgres "+string(secretFile(t, wire.Location.DSN)))
		configured = strings.ReplaceAll(configured, "	handle {\n", "	route {\n")
		configured = strings.ReplaceAll(configured, "svc_rate_limit", between+"\nsvc_rate_limit")
		run := provision(t, configured)
		run.start(t)
		server := run.server(t, ":8080")
		_, key := organization(t, run)
		request := func() int {
			resp, _ := ask(t, http.MethodGet, server.URL+"/v1/models", key)
			return resp.StatusCode
		}
		require.Equal(t, http.StatusOK, request())
		requests := slices.DeleteFunc(wire.Statements(), func(text string) bool {
			return !strings.Contains(text, "rate_windows") && !strings.Contains(text, "api_keys.hash") || strings.HasPrefix(text, "DELETE")
		})
		require.Equal(t, together, len(requests) == 1, requests)
		admitted := 1
		for request() == http.StatusOK {
			admitted++
		}
		require.GreaterOrEqual(t, admitted, 4)
	}
}
