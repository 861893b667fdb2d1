package caddymodule

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/limit"
)

// readRedis resolves a configuration's references, which must be in order.
func readRedis(t *testing.T, r *Redis) *redisSettings {
	t.Helper()
	var fs config.Faults
	r.faults(&fs)
	require.NoError(t, fs.Err())
	filled(&App{Redis: r})
	read := r.read(caddy.NewReplacer(), &fs)
	require.NoError(t, fs.Err())
	return read
}

// authorityFile is the PEM file of a certificate.
func authorityFile(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return path
}

func TestRedisSettings(t *testing.T) {
	t.Parallel()
	require.Nil(t, readRedis(t, nil))
	password := secretFile(t, "pass word\n")
	nodes := int64(3)

	read := readRedis(t, &Redis{URL: secretFile(t, "redis://svc:secret@redis.example.com/2"), Nodes: &nodes})
	require.EqualValues(t, 3, read.nodes)
	require.Equal(t, limit.RedisServer{
		Addresses: []string{"redis.example.com:6379"}, Username: "svc", Password: "secret", Database: 2,
	}, read.server)

	read = readRedis(t, &Redis{
		Sentinel: &RedisSentinel{Master: "shop", Addresses: []string{"a:26379", "b:26379"}},
		Username: "svc", Password: password, SentinelPassword: secretFile(t, "other"),
	})
	require.EqualValues(t, 1, read.nodes)
	require.Equal(t, limit.RedisServer{
		Master: "shop", Addresses: []string{"a:26379", "b:26379"}, Username: "svc", Password: "pass word", SentinelPassword: "other",
	}, read.server)

	read = readRedis(t, &Redis{Cluster: &RedisCluster{Addresses: []string{"a:6379"}}, TLS: new(RedisTLS)})
	require.True(t, read.server.Cluster)
	require.Nil(t, read.server.TLS.RootCAs, "the system's")
	require.False(t, read.server.TLS.InsecureSkipVerify)

	read = readRedis(t, &Redis{URL: secretFile(t, "rediss://redis.example.com"), TLS: &RedisTLS{CAFile: authorityFile(t)}})
	require.Equal(t, "redis.example.com", read.server.TLS.ServerName)
	require.NotNil(t, read.server.TLS.RootCAs)
}

// TestRedisDigest guarantees that configurations share a limiter exactly when nothing in the block differs.
func TestRedisDigest(t *testing.T) {
	t.Parallel()
	number := func(n int64) *int64 { return &n }
	cluster := func(addresses ...string) *RedisCluster { return &RedisCluster{Addresses: addresses} }
	secret, other := secretFile(t, "secret"), secretFile(t, "other")
	different := []*Redis{
		{URL: secretFile(t, "redis://a")},
		{URL: secretFile(t, "redis://a/1")},
		{URL: secretFile(t, "rediss://a")},
		{URL: secretFile(t, "redis://u:p@a")},
		{URL: secretFile(t, "redis://a"), Nodes: number(2)},
		{Cluster: cluster("a:6379")},
		{Cluster: cluster("a:6379", "b:6379")},
		{Cluster: cluster("a:6379"), TLS: new(RedisTLS)},
		{Cluster: cluster("a:6379"), TLS: &RedisTLS{CAFile: authorityFile(t)}},
		{Cluster: cluster("a:6379"), TLS: &RedisTLS{CAFile: authorityFile(t)}},
		{Cluster: cluster("a:6379"), Password: secret},
		{Cluster: cluster("a:6379"), Password: other},
		{Cluster: cluster("a:6379"), Password: other, Username: "svc"},
		{Sentinel: &RedisSentinel{Master: "m", Addresses: []string{"a:6379"}}},
		{Sentinel: &RedisSentinel{Master: "n", Addresses: []string{"a:6379"}}},
		{Sentinel: &RedisSentinel{Master: "n", Addresses: []string{"a:6379"}}, SentinelPassword: secret},
	}
	seen := make(map[redisDigest]int)
	for i, r := range different {
		digest := readRedis(t, r).digest
		require.NotContains(t, seen, digest, "%d is taken for %d", i, seen[digest])
		seen[digest] = i
		require.Equal(t, digest, readRedis(t, r).digest)
	}
	require.Equal(t, readRedis(t, &Redis{URL: secretFile(t, "redis://a:6379/0\n"), Nodes: number(1)}).digest, readRedis(t, different[0]).digest,
		"the same in other words")
}

func TestRedisFaultsInJSON(t *testing.T) {
	for given, want := range map[string][]string{
		`{}`: {"svc.redis: exactly one of an address, sentinel and cluster"},
		`{"url": "{env.A}", "cluster": {"addresses": ["a:1"]}}`: {"svc.redis: exactly one of"},
		`{"url": "redis://svc:` + planted + `@host"}`:           {"svc.redis: must be exactly one {env.NAME}"},
		`{"sentinel": {}}`:                                                    {"sentinel needs the name", "sentinel needs at least one address"},
		`{"cluster": {"addresses": null}}`:                                    {"cluster needs at least one address"},
		`{"cluster": {"addresses": ["` + planted + `@h:1"]}}`:                 {"the addresses of a cluster are HOST:PORT"},
		`{"cluster": {"addresses": ["h:0"]}, "nodes": -1}`:                    {"the addresses of a cluster", "svc.redis.nodes: -1 is out of range"},
		`{"cluster": {"addresses": ["h:1"]}, "username": "` + planted + ` "}`: {"svc.redis.username: must be", "a user needs a password"},
	} {
		app := goodApp(t)
		require.NoError(t, json.Unmarshal([]byte(given), &app.Redis), given)
		err := load(t, app)
		for _, words := range want {
			require.ErrorContains(t, err, words, given)
		}
		require.NotContains(t, err.Error(), planted)
	}
	app := map[string]any{"redis": map[string]any{"addr": "x"}}
	require.ErrorContains(t, load(t, app), "addr")
}

// TestRedisSecretsThatAreMissingOrUnusable guarantees that all are reported at once, by path, and none is quoted.
func TestRedisSecretsThatAreMissingOrUnusable(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, []byte(planted), 0o600))
	for _, c := range []struct {
		redis Redis
		want  []string
	}{
		{Redis{URL: "{env.SVC_TEST_NO_REDIS}"}, []string{"svc.redis: {env.SVC_TEST_NO_REDIS} is not set"}},
		{Redis{URL: secretFile(t, "http://"+planted)}, []string{"holds is no address of a Redis: the scheme is unknown; allowed: redis://"}},
		{Redis{URL: secretFile(t, "redis://:"+planted+"@h"), TLS: &RedisTLS{CAFile: authorityFile(t)}}, []string{"svc.redis.tls: what {file.", "TLS needs rediss://"}},
		{Redis{URL: secretFile(t, "rediss://h"), TLS: &RedisTLS{CAFile: "testdata/none.pem"}}, []string{"svc.redis.tls: open testdata/none.pem: no such file"}},
		{Redis{URL: secretFile(t, "rediss://h"), TLS: &RedisTLS{CAFile: empty}}, []string{"empty.pem\" holds no certificate in PEM form"}},
		{
			Redis{
				Sentinel: &RedisSentinel{Master: "m", Addresses: []string{"a:1"}},
				Username: "{env.SVC_TEST_NO_USER}", Password: "{env.SVC_TEST_NO_PASSWORD}", SentinelPassword: "{env.SVC_TEST_NO_SENTINEL}",
			},
			[]string{
				"3 faults", "svc.redis.username: {env.SVC_TEST_NO_USER} is not set",
				"svc.redis.password: {env.SVC_TEST_NO_PASSWORD} is not set", "svc.redis.sentinel_password: {env.SVC_TEST_NO_SENTINEL} is not set",
			},
		},
	} {
		app := goodApp(t)
		app.Redis = &c.redis
		err := load(t, app)
		for _, words := range c.want {
			require.ErrorContains(t, err, words)
		}
		require.NotContains(t, err.Error(), planted)
	}
}
