package postgres

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// boundConnect makes connecting and closing take a bounded time.
func boundConnect(config *pgconn.Config) {
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = connectTime
	}
	config.DialFunc = newDialFunc(config.ConnectTimeout)
	config.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error {
		return conn.Conn().SetDeadline(time.Time{})
	}
}

// newDialFunc dials connections that notice a vanished peer. They have a deadline from the start, which is taken away
// once the server has accepted the login. A request to cancel, which is dialled, too, and ends with the connection, keeps it.
func newDialFunc(timeout time.Duration) pgconn.DialFunc {
	dialer := &net.Dialer{
		Timeout: timeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveProbes,
		},
		Control: setUserTimeout,
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return impatientConn{conn}, nil
	}
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
