package limit

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

func TestParseRedisURL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]RedisServer{
		"redis://redis.example.com":                  {Addresses: []string{"redis.example.com:6379"}},
		"redis://:s%40cret@10.0.0.1:7000/2":          {Addresses: []string{"10.0.0.1:7000"}, Password: "s@cret", Database: 2},
		"redis://svc:secret@[::1]:7000/?db=3":        {Addresses: []string{"[::1]:7000"}, Username: "svc", Password: "secret", Database: 3},
		"unix:///run/redis.sock":                     {Addresses: []string{"/run/redis.sock"}},
		"unix://svc:secret@/run/redis/it.sock?db=15": {Addresses: []string{"/run/redis/it.sock"}, Username: "svc", Password: "secret", Database: 15},
	} {
		read, err := ParseRedisURL(address)
		require.NoError(t, err, address)
		require.Equal(t, want, read, address)
	}
	read, err := ParseRedisURL("rediss://redis.example.com:6380")
	require.NoError(t, err)
	require.Equal(t, "redis.example.com", read.TLS.ServerName)
	require.False(t, read.TLS.InsecureSkipVerify)
}

// Errors quote no part of the address, which holds a password.
func TestParseRedisURLRefusesWithoutEcho(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":                                         "the scheme is unknown",
		"hunter2.example.com:6379":                 "",
		"hunter2":                                  "the scheme is unknown",
		"http://svc:hunter2@example.com":           "the scheme is unknown",
		"REDIS+hunter2://example.com":              "the scheme is unknown",
		"redis://svc:hunter2@":                     "the host is missing",
		"redis:hunter2":                            "the host is missing",
		"redis:///hunter2":                         "the host is missing",
		"redis://svc:hunter2%zz@example.com":       "percent-encoded",
		"redis://svc:hunter2#x@example.com":        "",
		"redis://svc:hunter2\x00@example.com":      "percent-encoded",
		"redis://example.com/hunter2":              "the database must be a number",
		"redis://example.com/1/hunter2":            "the database must be a number",
		"redis://example.com/-1":                   "must not be negative",
		"redis://example.com?db=hunter2":           "the database must be a number",
		"rediss://hunter2@x.example?skip_verify=1": "it takes no parameter but db",
		"redis://example.com?read_timeout=1h":      "it takes no parameter but db",
		"redis://example.com?hunter2":              "it takes no parameter but db",
		"unix://hunter2":                           "three slashes",
		"unix:hunter2":                             "three slashes",
		"unix://hunter2/redis.sock":                "three slashes",
	} {
		_, err := ParseRedisURL(address)
		require.ErrorIs(t, err, ErrRedisURL, address)
		require.ErrorContains(t, err, want, address)
		require.ErrorContains(t, err, RedisURLForms, address)
		require.NotContains(t, err.Error(), "hunter2", address)
	}
}

func FuzzParseRedisURL(f *testing.F) {
	for _, seed := range []string{
		"redis://svc:secret@redis.example.com:6379/1", "rediss://[::1]", "unix:///run/redis.sock?db=1", "unix:x", "redis://a/%2f",
		"redis://@/", "://", "redis://a:99999999/", "unix://u@/%00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		read, err := ParseRedisURL(address)
		if err != nil {
			require.ErrorIs(t, err, ErrRedisURL)
			return
		}
		require.Len(t, read.Addresses, 1)
		require.GreaterOrEqual(t, read.Database, 0)
		require.NoError(t, NewRedisClient(read).Close())
	})
}

// Nothing that a pipeline does may outlast its deadline by much, and nothing is sent that isn't needed.
func TestRedisClientIsBoundedAndQuiet(t *testing.T) {
	t.Parallel()
	addresses := []string{"127.0.0.1:1"}
	single := NewRedisClient(RedisServer{Addresses: addresses}).(*redis.Client)
	sentinel := NewRedisClient(RedisServer{Addresses: addresses, Master: "m"}).(*redis.Client)
	cluster := NewRedisClient(RedisServer{Addresses: addresses, Cluster: true}).(*redis.ClusterClient)
	for _, o := range []*redis.Options{single.Options(), sentinel.Options()} {
		require.True(t, o.ContextTimeoutEnabled)
		require.Equal(t, 1, o.MaxRetries)
		require.Equal(t, 1, o.DialerRetries)
		require.Equal(t, connections, o.PoolSize)
		require.Equal(t, maintnotifications.ModeDisabled, o.MaintNotificationsConfig.Mode)
		require.LessOrEqual(t, max(o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout), time.Second)
	}
	o := cluster.Options()
	require.True(t, o.ContextTimeoutEnabled)
	require.Equal(t, 1, o.MaxRetries)
	require.Equal(t, 1, o.DialerRetries)
	require.Equal(t, connections, o.PoolSize)
	require.Equal(t, maintnotifications.ModeDisabled, o.MaintNotificationsConfig.Mode)
	require.LessOrEqual(t, max(o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout), time.Second)
	for _, client := range []redis.UniversalClient{single, sentinel, cluster} {
		require.NoError(t, client.Close())
	}

	private := startRedis(t)
	r, _ := patiently(t, private.server(), 1)
	redisTake(t, r, "org", 1)
	asked, err := plainClient(t, private.server()).Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	require.Contains(t, asked, "cmdstat_evalsha:")
	require.NotContains(t, asked, "cmdstat_client")
	require.NotContains(t, asked, "cmdstat_command")
}
