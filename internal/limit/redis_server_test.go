package limit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// redisVariable names the environment variable with the address of a Redis that tests may write keys of their own to
// (scripts/services.sh starts one).
const redisVariable = "SVC_TEST_REDIS"

// soon bounds what a test waits for on a loaded machine, where nothing is asserted about time.
const soon = time.Minute

// testServer is the Redis that tests share.
func testServer(t testing.TB) RedisServer {
	t.Helper()
	address := os.Getenv(redisVariable)
	require.NotEmpty(t, address, "%s is not set: run the tests through scripts/services.sh, which starts a Redis for them", redisVariable)
	server, err := ParseRedisURL(address)
	require.NoError(t, err)
	return server
}

// plainClient is a client for looking and setting up, with deadlines for that; it is closed after the test.
func plainClient(t testing.TB, s RedisServer) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: s.Addresses[0], Username: s.Username, Password: s.Password, DB: s.Database, TLSConfig: s.TLS,
		Protocol: 2, DisableIdentity: true, DialerRetries: 1,
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// privateRedis is a redis-server of one test.
type privateRedis struct {
	port    int
	address string
	process *os.Process
	ended   chan struct{}
}

// startRedis starts a server with these arguments on a free port of its own, and waits for it. It is stopped after the test.
func startRedis(t testing.TB, arguments ...string) *privateRedis {
	t.Helper()
	for range 5 {
		// Below the ports of outgoing connections, the port of a cluster's bus, 10,000 above, too.
		if p := tryRedis(t, 10_000+rand.IntN(12_000), arguments...); p != nil {
			return p
		}
	}
	require.FailNow(t, "redis-server does not start")
	return nil
}

// tryRedis is nil if the server ended, most likely because its port was taken.
func tryRedis(t testing.TB, port int, arguments ...string) *privateRedis {
	t.Helper()
	p := &privateRedis{port: port, address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ended: make(chan struct{})}
	dir := t.TempDir()
	// A sentinel rewrites its own file, with what it has found out.
	config := filepath.Join(dir, "redis.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "port %d\nbind 127.0.0.1\ndir %s\n", port, dir), 0o600))
	command := exec.Command("redis-server", append([]string{config}, arguments...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, command.Start(), "redis-server is needed (Debian: apt-get install redis-server)")
	p.process = command.Process
	go func() {
		_ = command.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	if !p.listens() {
		return nil
	}
	return p
}

// listens waits until the server answers, be it with an error, or has ended.
func (p *privateRedis) listens() bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.ended:
			return false
		case <-tick.C:
		}
		if !answers(p.address) {
			continue
		}
		select {
		case <-p.ended:
			return false // it was another one's
		default:
			return true
		}
	}
}

func answers(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err = conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	n, err := conn.Read(make([]byte, 1))
	return n == 1 && err == nil
}

// server is p without a password.
func (p *privateRedis) server() RedisServer { return RedisServer{Addresses: []string{p.address}} }

func (p *privateRedis) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.process.Signal(s))
}

// kill ends the server at once, also one that is stopped; a second time it does nothing.
func (p *privateRedis) kill() {
	if err := p.process.Kill(); err == nil || errors.Is(err, os.ErrProcessDone) {
		<-p.ended
	}
}

// restart starts another server in p's place.
func (p *privateRedis) restart(t testing.TB, arguments ...string) *privateRedis {
	t.Helper()
	p.kill()
	again := tryRedis(t, p.port, arguments...)
	require.NotNil(t, again, "port %d is taken by now", p.port)
	return again
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, soon, 20*time.Millisecond, what)
}

// freshMinute waits for the next minute of the server's clock if the present one is nearly over: the clock of a server can't
// be stopped.
func freshMinute(t testing.TB, now func() time.Time) {
	t.Helper()
	const enough = 30 * time.Second
	at := now()
	if left := at.Truncate(time.Minute).Add(time.Minute).Sub(at); left < enough {
		select {
		case <-time.After(left):
		case <-t.Context().Done():
		}
	}
}

func redisNow(t testing.TB, client *redis.Client) func() time.Time {
	t.Helper()
	return func() time.Time {
		now, err := client.Time(context.Background()).Result()
		require.NoError(t, err)
		return now
	}
}

func portOf(p *privateRedis) string { return strconv.Itoa(p.port) }
