package limit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestRedisUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "redis") // short: a socket's path has at most 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "s")
	private := startRedis(t, "--unixsocket", socket, "--requirepass", "secret")
	server, err := ParseRedisURL("unix://:secret@" + socket + "?db=3")
	require.NoError(t, err)
	r, b := patiently(t, server, 1)
	require.True(t, redisTake(t, r, "org", 2).Allowed)
	require.Empty(t, b.local)
	client := plainClient(t, RedisServer{Addresses: []string{private.address}, Password: "secret", Database: 3})
	require.EqualValues(t, 1, countedIn(t, client, "org"))
}

// The rights that docs/cluster.md gives a user of Redis are enough, also in a cluster.
func TestRedisUserOfTheDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cluster.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "`ACL SETUSER svc on >PASSWORD ")
	require.True(t, found)
	rights, _, _ := strings.Cut(rest, "`")
	grant := []any{"ACL", "SETUSER", "svc", "on", ">secret"}
	for right := range strings.FieldsSeq(rights) {
		grant = append(grant, right)
	}
	private := startRedis(t)
	require.NoError(t, plainClient(t, private.server()).Do(t.Context(), grant...).Err())
	nodes, clients := redisCluster(t)
	for _, client := range clients {
		require.NoError(t, client.Do(t.Context(), grant...).Err())
	}
	for _, server := range []RedisServer{
		{Addresses: []string{private.address}, Username: "svc", Password: "secret", Database: 7},
		{Addresses: []string{nodes[0].address}, Cluster: true, Username: "svc", Password: "secret"},
	} {
		r, b := patiently(t, server, 1)
		for range 20 {
			require.True(t, redisTake(t, r, newOrg(), 1).Allowed)
		}
		require.NoError(t, r.look())
		require.Empty(t, b.local)
	}
}

// The master is killed: requests are counted locally until the sentinel has made the replica a master, and then there.
func TestRedisSentinelFailover(t *testing.T) {
	t.Parallel()
	const password, sentinels = "master's", "sentinel's"
	master := startRedis(t, "--requirepass", password, "--masterauth", password)
	replica := startRedis(t, "--requirepass", password, "--masterauth", password, "--replicaof", "127.0.0.1", portOf(master))
	replicaClient := plainClient(t, RedisServer{Addresses: []string{replica.address}, Password: password})
	eventually(t, "the replica follows", func() bool {
		info, _ := replicaClient.Info(context.Background(), "replication").Result()
		return strings.Contains(info, "master_link_status:up")
	})
	sentinel := startRedis(t, "--sentinel", "--requirepass", sentinels)
	sentinelClient := plainClient(t, RedisServer{Addresses: []string{sentinel.address}, Password: sentinels})
	for _, order := range [][]any{
		{"MONITOR", "shop", "127.0.0.1", portOf(master), "1"},
		{"SET", "shop", "auth-pass", password},
		{"SET", "shop", "failover-timeout", "2000"},
	} {
		require.NoError(t, sentinelClient.Do(t.Context(), append([]any{"SENTINEL"}, order...)...).Err(), order[0])
	}
	eventually(t, "the sentinel knows the replica", func() bool {
		known, err := sentinelClient.Do(context.Background(), "SENTINEL", "REPLICAS", "shop").Slice()
		return err == nil && len(known) == 1
	})

	// One of the addresses leads nowhere: that is what there are several for.
	r, b := patiently(t, RedisServer{
		Master: "shop", Addresses: []string{"127.0.0.1:1", sentinel.address}, Password: password,
		SentinelPassword: sentinels,
	}, 2)
	masterClient := plainClient(t, RedisServer{Addresses: []string{master.address}, Password: password})
	require.True(t, redisTake(t, r, "org", 2).Allowed)
	require.EqualValues(t, 1, countedIn(t, masterClient, "org"))
	require.Empty(t, b.local)

	master.kill()
	// Only now the sentinel may find the master down: before, it would for a master that is merely slow.
	require.NoError(t, sentinelClient.Do(t.Context(), "SENTINEL", "SET", "shop", "down-after-milliseconds", "300").Err())
	goesLocal(t, r)
	require.True(t, redisTake(t, r, newOrg(), 2).Allowed)
	comesBack(t, r, replicaClient)
	eventually(t, "it is logged", func() bool { return b.logged(isBack) > 0 })
}

// redisCluster is three masters without replicas.
func redisCluster(t *testing.T) (nodes []*privateRedis, clients []*redis.Client) {
	t.Helper()
	const slots = 16384
	for range 3 {
		node := startRedis(t, "--cluster-enabled", "yes", "--save", "")
		nodes = append(nodes, node)
		clients = append(clients, plainClient(t, node.server()))
	}
	for i, client := range clients {
		require.NoError(t, client.ClusterAddSlotsRange(t.Context(), i*slots/3, (i+1)*slots/3-1).Err())
		require.NoError(t, client.ClusterMeet(t.Context(), "127.0.0.1", portOf(nodes[0])).Err())
	}
	eventually(t, "the cluster is whole", func() bool {
		for _, client := range clients {
			info, _ := client.ClusterInfo(context.Background()).Result()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
				return false
			}
		}
		return true
	})
	return nodes, clients
}

// Organizations are spread over the masters, and each has one window.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	nodes, clients := redisCluster(t)
	freshMinute(t, redisNow(t, clients[0]))
	r, b := patiently(t, RedisServer{Cluster: true, Addresses: []string{"127.0.0.1:1", nodes[1].address}}, 1)
	const organizations, limit = 30, 4
	round := func(each int) (admitted int) {
		results := make(chan bool, organizations*each)
		var wait sync.WaitGroup
		for i := range organizations {
			for range each {
				wait.Go(func() { results <- admits(t, r, fmt.Sprint("org_", i), limit) })
			}
		}
		wait.Wait()
		close(results)
		for allowed := range results {
			if allowed {
				admitted++
			}
		}
		return admitted
	}
	require.Equal(t, organizations, round(1))
	require.NoError(t, clients[2].ScriptFlush(t.Context()).Err(), "one of the masters loses the script")
	require.Equal(t, organizations*(limit-1), round(10))
	require.Empty(t, b.local)
	for _, client := range clients {
		keys, err := client.DBSize(t.Context()).Result()
		require.NoError(t, err)
		require.Greater(t, keys, int64(2))
	}

	// Without one of its masters the cluster refuses all keys.
	for _, client := range clients[1:] { // not before: a node that is merely slow would be missed as well
		require.NoError(t, client.ConfigSet(t.Context(), "cluster-node-timeout", "1000").Err())
	}
	nodes[0].kill()
	goesLocal(t, r)
	require.True(t, redisTake(t, r, newOrg(), 1).Allowed)
	b.awaitLogged(t, 1, givenUp)
}

// authority is a certificate authority of one test, and a certificate of it for 127.0.0.1.
func authority(t *testing.T) (pool *x509.CertPool, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(certificate, text, 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(text))
	return pool, certificate, key
}

func TestRedisTLS(t *testing.T) {
	t.Parallel()
	pool, certificate, key := authority(t)
	stranger, _, _ := authority(t)
	private := startRedis(t, "--tls-port", "0", "--requirepass", "secret")
	plain := plainClient(t, RedisServer{Addresses: []string{private.address}, Password: "secret"})
	for name, value := range map[string]string{"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": certificate, "tls-auth-clients": "no"} {
		require.NoError(t, plain.ConfigSet(t.Context(), name, value).Err())
	}
	// The port of TLS is one that was free for a server, and isn't any more when the next one starts.
	port := startRedis(t)
	port.kill()
	require.NoError(t, plain.ConfigSet(t.Context(), "tls-port", portOf(port)).Err())

	server, err := ParseRedisURL("rediss://:secret@" + port.address)
	require.NoError(t, err)
	server.TLS.RootCAs = pool
	r, b := patiently(t, server, 1)
	require.True(t, redisTake(t, r, "org", 2).Allowed)
	require.EqualValues(t, 1, countedIn(t, plain, "org"))
	require.Empty(t, b.local)

	server.TLS = &tls.Config{RootCAs: stranger, MinVersion: tls.VersionTLS12}
	distrustful, b := patiently(t, server, 1)
	b.awaitLogged(t, 1, givenUp)
	require.True(t, redisTake(t, distrustful, "org", 2).Allowed)
	require.EqualValues(t, 1, countedIn(t, plain, "org"), "nothing is told to a server that isn't trusted")
	require.Contains(t, b.text(), "certificate")
	require.NotContains(t, b.text(), "secret")
}
