package limit

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisServer is one Redis server, or the sentinels that know its master, or a cluster.
type RedisServer struct {
	// Addresses are host:port, or the path of a unix socket: of one server, or of any of the sentinels, or of any of the
	// cluster's nodes.
	Addresses []string
	// Master is the server's name at the sentinels. It makes Addresses those of sentinels.
	Master string
	// Cluster makes Addresses those of a cluster.
	Cluster bool
	// Username is empty for Redis' default user.
	Username string
	// Password is empty for none.
	Password string
	// SentinelPassword is the password of the sentinels.
	SentinelPassword string
	// Database is the number of the database; a cluster has only 0.
	Database int
	// TLS is nil for plain connections.
	TLS *tls.Config
}

// ErrRedisURL reports a malformed address. Its text never contains a part of the address.
var ErrRedisURL = errors.New("no address of a Redis")

// RedisURLForms describes in messages what [ParseRedisURL] accepts.
const RedisURLForms = "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], the same with rediss:// for TLS, or unix://[USER:PASSWORD@]/PATH[?db=DATABASE]"

// ParseRedisURL parses the address of one server. The default port is 6379. Parameters other than db are refused: deadlines and
// pools are the limiter's own, and certificates are always verified. The error wraps [ErrRedisURL].
func ParseRedisURL(text string) (RedisServer, error) {
	u, err := url.Parse(text)
	if err != nil {
		return RedisServer{}, redisURLError("it can't be read; a reserved character in the password must be percent-encoded")
	}
	switch u.Scheme {
	case "redis", "rediss":
		if u.Hostname() == "" {
			return RedisServer{}, redisURLError("the host is missing")
		}
	case "unix":
		if u.Host != "" || u.Path == "" {
			return RedisServer{}, redisURLError("the path of a unix socket must be absolute, with three slashes before it")
		}
	default:
		return RedisServer{}, redisURLError("the scheme is unknown")
	}
	for name := range u.Query() {
		if name != "db" {
			return RedisServer{}, redisURLError("it takes no parameter but db")
		}
	}
	read, err := redis.ParseURL(text)
	switch {
	case err != nil: // its text may contain a part of the address
		return RedisServer{}, redisURLError("the database must be a number")
	case read.DB < 0:
		return RedisServer{}, redisURLError("the database must not be negative")
	}
	return RedisServer{
		Addresses: []string{read.Addr}, Username: read.Username, Password: read.Password, Database: read.DB, TLS: read.TLSConfig,
	}, nil
}

func redisURLError(what string) error {
	return fmt.Errorf("%w: %s; allowed: %s", ErrRedisURL, what, RedisURLForms)
}

const (
	// transfer bounds a write and a read on a connection; a pipeline's own deadline is earlier.
	transfer = time.Second
	// retryPause and longestRetryPause are the bounds of the jittered pause before the one retry.
	retryPause        = 4 * time.Millisecond
	longestRetryPause = 16 * time.Millisecond
	// connections is how many each server gets: one for each running pipeline, one for looks, and one to spare while a broken
	// one is replaced.
	connections = flushers + 2
	// idleConnection is how long an unused connection is kept: shorter than firewalls usually remember one.
	idleConnection = 4 * time.Minute
)

// NewRedisClient returns a client for [NewRedis] that connects on first use. Every call ends with its context's deadline and is
// tried twice at most. Besides calls the client sends only the handshake: no library names, no maintenance notifications.
func NewRedisClient(s RedisServer) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: s.Addresses, MasterName: s.Master, IsClusterMode: s.Cluster, DB: s.Database,
		Username: s.Username, Password: s.Password, SentinelPassword: s.SentinelPassword, TLSConfig: s.TLS,

		Protocol:                 2, // the newer one would only add pushes
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},

		ContextTimeoutEnabled: true,
		DialTimeout:           connecting,
		DialerRetries:         1,
		ReadTimeout:           transfer,
		WriteTimeout:          transfer,
		MaxRetries:            1,
		MinRetryBackoff:       retryPause,
		MaxRetryBackoff:       longestRetryPause,

		PoolSize:         connections,
		PipelinePoolSize: -1, // only pipelines are used
		PoolTimeout:      connecting,
		ConnMaxIdleTime:  idleConnection,
	})
}
