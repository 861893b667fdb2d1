package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

const (
	// maxPostgresConns bounds a process's connections to the DSN unless it has pool_max_conns.
	maxPostgresConns = 16
	// maxSessions bounds the connections to the direct address, when there is one: a worker listens on one.
	maxSessions = 2
	// lifetimeJitter keeps many nodes from renewing all their connections at the same moment.
	lifetimeJitter = 5 * time.Minute
)

// connPools are a process's connections to PostgreSQL. The pools work and reads share pool_max_conns, half each, with one connection or
// more.
type connPools struct {
	// work serves requests: one connection writes, or two (InFlight), the others look up and count.
	work *pgxpool.Pool
	// reads serves everything else, so that no page of the dashboard, however slow, uses up the connections of requests.
	reads *pgxpool.Pool
	// sessions serves statements that need a session of their own, which is LISTEN: the direct address, or reads without one.
	sessions *pgxpool.Pool
}

// lost empties the pools after a connection broke, because most often all broke: the server restarted, or the network failed, and
// each of them would cost a request another wait. A timeout empties only the connection's own pool.
func (p *connPools) lost(own *pgxpool.Pool, err error) {
	if pgconn.Timeout(err) {
		own.Reset()
		return
	}
	for _, pool := range p.all() {
		pool.Reset()
	}
}

// all are the pools that were opened.
func (p *connPools) all() []*pgxpool.Pool {
	return slices.DeleteFunc([]*pgxpool.Pool{p.work, p.reads, p.sessions}, func(pool *pgxpool.Pool) bool { return pool == nil })
}

// openPools opens the pools without connecting. After an error the caller closes the pools that were opened.
func openPools(ctx context.Context, location driver.Location) (pools *connPools, err error) {
	pools = &connPools{}
	config, err := pgxpool.ParseConfig(location.DSN)
	if err != nil {
		return pools, driver.ErrPostgresDSN
	}
	total := int32(maxPostgresConns)
	if strings.Contains(location.DSN, "pool_max_conns=") {
		total = config.MaxConns
	}
	pooled := location.Direct != ""
	work, reads := max(1, (total+1)/2), max(1, total/2)
	if pools.work, err = pools.open(ctx, config.Copy(), work, writeSession, pooled); err != nil {
		return pools, err
	}
	if pools.reads, err = pools.open(ctx, config, reads, readSession, pooled); err != nil {
		return pools, err
	}
	pools.sessions = pools.reads
	if !pooled {
		return pools, nil
	}
	direct, err := pgxpool.ParseConfig(location.Direct)
	if err != nil {
		return pools, driver.ErrPostgresDSN
	}
	pools.sessions, err = pools.open(ctx, direct, maxSessions, readSession, false)
	return pools, err
}

// open makes a pool with a deadline for each use. If pooled, the address may be a pooler that gives each transaction another session
// (PgBouncer's transaction mode): nothing is set for a session and no statement is kept in it; the writer sets its bounds in each
// transaction.
func (p *connPools) open(ctx context.Context, config *pgxpool.Config, size int32, session string, pooled bool) (*pgxpool.Pool, error) {
	config.MaxConns, config.MinConns, config.MinIdleConns = size, 0, 0
	config.MaxConnLifetimeJitter = cmp.Or(config.MaxConnLifetimeJitter, lifetimeJitter)
	config.PingTimeout = cmp.Or(config.PingTimeout, pingTime)
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "caddy-svc"
	}
	guard := &poolGuard{all: p}
	config.ConnConfig.Tracer = guard
	boundConnect(&config.ConnConfig.Config)
	if !pooled {
		config.AfterConnect = setSession(session + boundedSession)
	} else if !strings.Contains(config.ConnConfig.ConnString(), "default_query_exec_mode=") {
		// Describe each statement once and send its text every time. Poolers that keep prepared statements (PgBouncer 1.21 with
		// max_prepared_statements) need no such care, so the DSN may set another mode.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, driver.WrapError("connect to PostgreSQL", err)
	}
	guard.own = pool
	return pool, nil
}

// The settings of sessions of some pools.
var (
	readSession = noticeVanished(idleInReadTimeout)
	// A write looks up the few rows that it is about, one by one: a hash or merge join would read a whole index for them.
	writeSession = noticeVanished(idleInWriteTimeout) + "SET enable_hashjoin = off; SET enable_mergejoin = off; "
	// Every statement of a request has an index for its rows, and uses it from the first row on. Otherwise a connection keeps its plan from
	// when a table was small, to read it from end to end, until the server has counted the rows anew: in that minute a busy new installation
	// wrote so much that each write took over four seconds. The cost of a statement that must read a whole table then looks so high that the
	// server would compile the plan, hence the second setting.
	boundedSession = fmt.Sprintf("SET enable_seqscan = off; SET jit = off; SET statement_timeout = %d", statementTimeout.Milliseconds())
)

// setSession has settings made by statement: a pooler refuses them as parameters of the connection, even in session mode.
func setSession(settings string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, settings)
		return err
	}
}

// noticeVanished makes the server give up a client that is stopped, or vanished.
func noticeVanished(idle time.Duration) string {
	return fmt.Sprintf(`SET idle_in_transaction_session_timeout = %d; SET tcp_keepalives_idle = %d; SET tcp_keepalives_interval = %d;
		SET tcp_keepalives_count = %d; SET tcp_user_timeout = %d; `, idle.Milliseconds(), int(keepAliveIdle.Seconds()),
		int(keepAliveInterval.Seconds()), keepAliveProbes, userTimeout.Milliseconds())
}

// ping checks that each pool has a connection that works.
func (p *connPools) ping(ctx context.Context) error {
	err := driver.WrapError("connect to PostgreSQL", pingSlow(ctx, p.work))
	if err == nil && p.sessions != p.reads {
		err = driver.WrapError("connect to PostgreSQL directly", pingSlow(ctx, p.sessions))
	}
	return err
}

// pingSlow connects to a server, and tries again after a timeout, openTries times in all. A process that starts with the machine
// may start before the server is quick.
func pingSlow(ctx context.Context, pool *pgxpool.Pool) (err error) {
	for range openTries {
		if err = pool.Ping(ctx); !pgconn.Timeout(err) {
			return err
		}
	}
	return err
}

// close waits until all connections have been given back, for as long as ctx allows.
func (p *connPools) close(ctx context.Context) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, pool := range p.all() {
			pool.Close()
		}
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("store: a read was still open: %w", context.Cause(ctx))
	}
}

// poolGuard gives a deadline to every acquisition of a connection and every statement without one, and notices dead connections.
type poolGuard struct {
	own *pgxpool.Pool
	all *connPools
}

type cancelKey struct{}

func (*poolGuard) bound(ctx context.Context, atMost time.Duration) context.Context {
	if _, has := ctx.Deadline(); has {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	return context.WithValue(ctx, cancelKey{}, cancel)
}

func (*poolGuard) end(ctx context.Context) {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

// TraceAcquireStart implements [pgxpool.AcquireTracer].
func (g *poolGuard) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return g.bound(ctx, acquireTime)
}

// TraceAcquireEnd implements [pgxpool.AcquireTracer].
func (g *poolGuard) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	g.end(ctx)
}

// TraceQueryStart implements [pgx.QueryTracer].
func (g *poolGuard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return g.bound(ctx, readTime)
}

// TraceQueryEnd implements [pgx.QueryTracer]. A connection that was closed because its caller went away is no sign for
// the others.
func (g *poolGuard) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.Err != nil && conn.IsClosed() && !errors.Is(ctx.Err(), context.Canceled) {
		g.all.lost(g.own, data.Err)
	}
	g.end(ctx)
}

// Interface guards.
var _ pgxpool.AcquireTracer = (*poolGuard)(nil)

// Every wait for PostgreSQL has a bound, so that a server that is gone, stopped or cut off costs a request a few seconds
// and never a goroutine (docs/cluster.md "PostgreSQL"). The longest waits of a caller:
//
//	a key, window, models or channel of a request: lookupPatience
//	anything written:                              longestWait in line, then writeTime, then commitTime
//	any other read whose context has no deadline:  acquireTime + readTime
//
// They are far above the times of a healthy server, and below the patience of clients and platforms.
const (
	// lookupTime bounds one look-up, including the wait for its connection and a second try on a new one. A look-up that arrives during
	// another one goes with the next, and waits for up to lookupPatience.
	lookupTime     = 2 * time.Second
	lookupPatience = 3 * time.Second
	// takeTime bounds one statement that counts requests, including its commit. It is longer than statementTimeout, so that the server ends
	// a wait for a row and the connection stays; the requests have already waited for lookupPatience.
	takeTime = 3500 * time.Millisecond
	// writeTime bounds a transaction of the writer from its beginning until COMMIT is sent, and commitTime the wait for
	// the answer to that: giving up then leaves the outcome unknown, so a slow commit has time.
	writeTime  = 4 * time.Second
	commitTime = 5 * time.Second
	// acquireTime and readTime bound a read without a deadline of its caller: the wait for a connection, and the statement.
	acquireTime = 3 * time.Second
	readTime    = 4 * time.Second

	// connectTime bounds making a connection, TLS and password included, unless the address has connect_timeout.
	connectTime = 2 * time.Second
	// openTries bounds the connects that take connectTime when a store is opened.
	openTries = 5
	// pingTime bounds the question whether a connection that lay idle for a second is still alive.
	pingTime = time.Second
	// closeTime bounds the orderly close of a broken connection, which keeps its place in the pool as long.
	closeTime = time.Second
)

// Bounds that the server itself keeps.
const (
	// statementTimeout ends one statement, including a wait for a row lock, and keeps the connection. It is shorter than the client's wait,
	// so that the server's error comes first.
	statementTimeout = 3 * time.Second
	// idleInWriteTimeout ends the transaction of a silent writer, so that a stopped process holds row
	// locks for less time than others wait for them. idleInReadTimeout is for reads, which hold none.
	idleInWriteTimeout = 2 * time.Second
	idleInReadTimeout  = 10 * time.Second
)

// How both sides notice a silent network: the peer is probed after keepAliveIdle without data, and
// given up after keepAliveProbes without an answer. Sent data must be acknowledged within userTimeout.
const (
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveProbes   = 3
	userTimeout       = 10 * time.Second
)

// boundConnect makes connecting and closing take a bounded time. Connections notice a vanished peer. They have a deadline from the start, which
// is removed once the server has accepted the login. A request to cancel is also dialled; it keeps the deadline and ends with the connection.
func boundConnect(config *pgconn.Config) {
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = connectTime
	}
	timeout := config.ConnectTimeout
	dialer := &net.Dialer{Timeout: timeout, Control: setUserTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveProbes,
	}}
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return impatientConn{conn}, nil
	}
	config.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error { return conn.Conn().SetDeadline(time.Time{}) }
}

// impatientConn shortens the 15 s that pgconn waits when it closes a broken connection, the only deadline it ever sets in
// the future. A server that hangs would else keep the places of all broken connections in the pool for that long, and
// no request could connect when the server is back.
type impatientConn struct{ net.Conn }

// SetDeadline implements [net.Conn].
func (c impatientConn) SetDeadline(t time.Time) error {
	if latest := time.Now().Add(closeTime); t.After(latest) {
		t = latest
	}
	return c.Conn.SetDeadline(t)
}
