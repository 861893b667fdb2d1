package caddymodule

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Store is the database, which has everything durable: keys, wallets, ledger, calls, messages.
type Store struct {
	// The engine: `sqlite`, one file on a local disk that several processes of one machine may share, or `postgres`,
	// one server for any number of nodes. Required.
	Engine string `json:"engine,omitempty"`

	// The file of a `sqlite` store, absolute or relative to the working directory of the process. It is created if
	// it doesn't exist; network file systems are refused. Required with `sqlite`, refused with `postgres`.
	Path string `json:"path,omitempty"`

	// The connection string of a `postgres` store, as a URL or in keyword form. It may hold a password, so it must be
	// exactly one `{env.NAME}` or `{file.PATH}`. Required with `postgres`, refused with `sqlite`.
	DSN config.Secret `json:"dsn,omitempty"`

	// A second connection string of the same `postgres` database, for a `dsn` that leads to a pooler in transaction mode
	// (PgBouncer's `pool_mode = transaction`): it must give a client a session of its own, as the server itself does, or
	// a pooler in session mode. Migrations (advisory lock) and the worker's wake-up (LISTEN) use it. With it, nothing is
	// prepared or set for a session through `dsn`. Without it, `dsn` must give sessions. Refused with `sqlite`.
	Direct config.Secret `json:"direct,omitempty"`
}

// engines are the allowed values of [Store.Engine].
var engines = []store.Engine{store.SQLite, store.Postgres}

func (s *Store) faults(fs *config.Faults) {
	const path = "svc.store"
	if s == nil {
		fs.Addf(path, "missing; give `sqlite PATH` or `postgres {env.NAME}`")
		return
	}
	switch store.Engine(s.Engine) {
	case store.SQLite:
		if s.DSN != "" {
			fs.Addf(path, "sqlite takes a path, not a dsn")
		}
		if s.Direct != "" {
			fs.Addf(path+".direct", "sqlite takes no direct address; there is no pooler before a file")
		}
		if s.Path == "" {
			fs.Addf(path, "sqlite needs the path of its file, e.g. ./data/svc.db")
		}
		if strings.ContainsAny(s.Path, "{}") {
			fs.Addf(path, "the path of a sqlite file takes no placeholders; in a Caddyfile {$NAME} is filled in before it is read")
		}
	case store.Postgres:
		if s.Path != "" {
			fs.Addf(path, "postgres takes a dsn, not a path")
		}
		s.DSN.Check(fs, path, "")
		caddyfile.Faults(s.rules(), fs, path)
	default:
		fs.Addf(path, "%q is no engine; allowed: %s", s.Engine, config.Listed(engines))
	}
}

// Location reads the store's address with repl. The error has everything that is wrong, by path. See [Store.read].
func (s *Store) Location(repl *caddy.Replacer) (store.Location, error) {
	var fs config.Faults
	location := s.read(repl, &fs)
	return location, fs.Err()
}

// read resolves the connection strings of a `postgres` store with repl and returns the address in its canonical form, for
// either engine. It opens nothing. Faults never hold a connection string.
func (s *Store) read(repl *caddy.Replacer, fs *config.Faults) store.Location {
	const path = "svc.store"
	before := len(*fs)
	address, direct := s.Path, ""
	if store.Engine(s.Engine) == store.Postgres {
		address, direct = resolved(s.DSN, repl, fs, path), resolved(s.Direct, repl, fs, path+".direct")
		if len(*fs) > before {
			return store.Location{}
		}
	}
	location, err := store.ParseLocation(store.Engine(s.Engine), address)
	if err == nil && direct != "" {
		location, err = location.WithDirect(direct)
	}
	if err != nil {
		fs.Addf(path, "%v", err)
	}
	return location
}

// reference is a reference to a secret, or an id that may be one.
type reference interface {
	~string
	Resolve(repl *caddy.Replacer) (string, error)
}

// resolved returns the value behind a reference, an empty one without a reference. It adds a fault if the value can't be read.
func resolved[R reference](given R, repl *caddy.Replacer, fs *config.Faults, path string) string {
	if given == "" {
		return ""
	}
	value, err := given.Resolve(repl)
	if err != nil {
		fs.Addf(path, "%v", err)
	}
	return value
}

// rules are the options of the block behind `store postgres`.
func (s *Store) rules() []caddyfile.Rule {
	return []caddyfile.Rule{caddyfile.Secret("direct", &s.Direct)}
}

// storeRule is the option store.
func (a *App) storeRule() caddyfile.Rule {
	return caddyfile.Rule{
		Word: "store", Syntax: "sqlite <path> | postgres <{env.NAME} or {file.PATH}>", HasBlock: true, Block: new(Store).rules,
		Read: func(r *caddyfile.Reader, path string, o caddyfile.Option) {
			if len(o.Args) != 2 {
				r.Unreadf(path, o, "takes exactly an engine and its address; give `sqlite PATH` or `postgres {env.NAME}`")
				return
			}
			engine, address := o.Args[0].Text, o.Args[1].Text
			read := &Store{Engine: engine}
			if store.Engine(engine) == store.Postgres {
				read.DSN = config.Secret(address)
			} else {
				read.Path = address
			}
			r.Block(path, o, read.rules())
			caddyfile.Set(r, path, o, &a.Store, read)
		},
		Faults: func(fs *config.Faults, _ string) { a.Store.faults(fs) },
	}
}

// Redis is the server that counts the windows of the rate limit when several nodes share it. Nothing else is kept there, and
// nothing else depends on it: while it doesn't respond, each node counts for itself.
//
// Exactly one of url, sentinel and cluster is given.
type Redis struct {
	// The address of one server: `redis://[user:password@]host[:port][/database]`, the same with `rediss://` for TLS, or
	// `unix://[user:password@]/path[?db=database]`. It may hold a password, so it must be exactly one `{env.NAME}` or
	// `{file.PATH}`.
	URL config.Secret `json:"url,omitempty"`

	// The sentinels that know the server.
	Sentinel *RedisSentinel `json:"sentinel,omitempty"`

	// The cluster.
	Cluster *RedisCluster `json:"cluster,omitempty"`

	// How many nodes share the limits while Redis doesn't answer: each admits limit ÷ nodes requests in a window, at
	// least 1. From 1 to 10,000. Default: 1.
	Nodes *int64 `json:"nodes,omitempty"`

	// The user of the servers. Only with sentinel and cluster. Default: Redis' default user.
	Username config.Identifier `json:"username,omitempty"`

	// The password of the servers. Only with sentinel and cluster. Default: none.
	Password config.Secret `json:"password,omitempty"`

	// The password of the sentinels. Only with sentinel. Default: none.
	SentinelPassword config.Secret `json:"sentinel_password,omitempty"`

	// TLS for all connections. With url the scheme `rediss` says so, and this only names the authority.
	TLS *RedisTLS `json:"tls,omitempty"`
}

// RedisSentinel names a server that sentinels watch.
type RedisSentinel struct {
	// The name by which the sentinels know the server. Required.
	Master string `json:"master,omitempty"`

	// The addresses of the sentinels, `host:port`. Required; sentinels that don't respond are skipped.
	Addresses []string `json:"addresses,omitempty"`
}

// RedisCluster names a cluster.
type RedisCluster struct {
	// The addresses of nodes of the cluster, `host:port`. Required; the others are found through them.
	Addresses []string `json:"addresses,omitempty"`
}

// RedisTLS enables TLS and names the authority to trust.
type RedisTLS struct {
	// The PEM file of the authority that signed the servers' certificates, absolute or relative to the working directory
	// of the process. Default: the system's authorities. Required with url.
	CAFile string `json:"ca_file,omitempty"`
}

// redisForms describes the forms of the option in messages.
const redisForms = "give `redis {env.NAME}`, `redis sentinel MASTER HOST:PORT…` or `redis cluster HOST:PORT…`"

const redisPath = appName + ".redis"

func (r *Redis) faults(fs *config.Faults) {
	if r == nil {
		return
	}
	given := 0
	for _, is := range []bool{r.URL != "", r.Sentinel != nil, r.Cluster != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		fs.Addf(redisPath, "exactly one of an address, sentinel and cluster is needed; %s", redisForms)
	}
	if r.URL != "" {
		r.URL.Check(fs, redisPath, ", or sentinel or cluster with their addresses")
		if r.Username != "" {
			fs.Addf(redisPath+".username", "belongs in the address")
		}
		if r.Password != "" {
			fs.Addf(redisPath+".password", "belongs in the address")
		}
		if r.TLS != nil && r.TLS.CAFile == "" {
			fs.Addf(redisPath+".tls", "the address says rediss:// for TLS; give the file of an authority, or leave it out")
		}
	}
	if s := r.Sentinel; s != nil {
		if !config.IsIdentifier(s.Master) || strings.ContainsAny(s.Master, "{}") {
			fs.Addf(redisPath, "sentinel needs the name of the master, 1 to 128 visible ASCII characters; %s", redisForms)
		}
		redisAddressFaults(fs, "sentinel", s.Addresses)
	}
	if r.Cluster != nil {
		redisAddressFaults(fs, "cluster", r.Cluster.Addresses)
	}
	caddyfile.Faults(r.rules(), fs, redisPath)
}

// rules are the options of the block behind `redis …`.
func (r *Redis) rules() []caddyfile.Rule {
	return []caddyfile.Rule{
		caddyfile.Integer("nodes", &r.Nodes, 1, 10_000).Or(1),
		caddyfile.Identifier("username", &r.Username).Refuse(r.Username != "" && r.Password == "", "a user needs a password"),
		caddyfile.Secret("password", &r.Password),
		caddyfile.Secret("sentinel_password", &r.SentinelPassword).
			Refuse(r.SentinelPassword != "" && r.Sentinel == nil, "only sentinels take it"),
		caddyfile.Rule{Word: "tls", Syntax: "[<PEM file of an authority>]", Read: r.readTLSOption}.
			Refuse(r.TLS != nil && strings.ContainsAny(r.TLS.CAFile, "{}"),
				"the path of a file takes no placeholders; in a Caddyfile {$NAME} is filled in before it is read"),
	}
}

func redisAddressFaults(fs *config.Faults, of string, addresses []string) {
	if len(addresses) == 0 {
		fs.Addf(redisPath, "%s needs at least one address; %s", of, redisForms)
	}
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		number, portErr := strconv.ParseUint(port, 10, 16)
		// The text isn't quoted, because it may be a URL with a password.
		if err != nil || portErr != nil || number == 0 || !config.IsIdentifier(host) || strings.ContainsAny(host, "{}@/") {
			fs.Addf(redisPath, "the addresses of a %s are HOST:PORT, e.g. redis-1.example.com:6379; one of them is not", of)
			return
		}
	}
}

// redisSettings are the settings with their references resolved.
type redisSettings struct {
	server limit.RedisServer
	nodes  int64
	// digest is equal for equal settings only.
	digest redisDigest
}

type redisDigest [sha256.Size]byte

// read resolves the references and reads the authority's file. It adds a fault for each that fails; r may be nil.
func (r *Redis) read(repl *caddy.Replacer, fs *config.Faults) *redisSettings {
	if r == nil {
		return nil
	}
	server := r.readServer(repl, fs)
	authority := r.readTLS(server, fs)
	digest := sha256.Sum256(fmt.Appendf(nil, "%q %q %t %q %q %q %d %t %d %q", server.Addresses, server.Master, server.Cluster,
		server.Username, server.Password, server.SentinelPassword, server.Database, server.TLS != nil, *r.Nodes, authority))
	return &redisSettings{server: *server, nodes: *r.Nodes, digest: digest}
}

func (r *Redis) readServer(repl *caddy.Replacer, fs *config.Faults) *limit.RedisServer {
	server := new(limit.RedisServer)
	switch {
	case r.URL != "":
		server = r.readURL(resolved(r.URL, repl, fs, redisPath), fs)
	case r.Sentinel != nil:
		server.Master, server.Addresses = r.Sentinel.Master, r.Sentinel.Addresses
	case r.Cluster != nil:
		server.Cluster, server.Addresses = true, r.Cluster.Addresses
	}
	server.Username = cmp.Or(resolved(r.Username, repl, fs, redisPath+".username"), server.Username)
	server.Password = cmp.Or(resolved(r.Password, repl, fs, redisPath+".password"), server.Password)
	server.SentinelPassword = resolved(r.SentinelPassword, repl, fs, redisPath+".sentinel_password")
	return server
}

// readURL parses an address. It is empty if it could not be resolved, which is a fault already.
func (r *Redis) readURL(address string, fs *config.Faults) *limit.RedisServer {
	if address == "" {
		return new(limit.RedisServer)
	}
	server, err := limit.ParseRedisURL(address)
	if err != nil {
		fs.Addf(redisPath, "what %s holds is %v", string(r.URL), err)
	}
	if err == nil && r.TLS != nil && server.TLS == nil {
		fs.Addf(redisPath+".tls", "what %s holds begins with redis:// or unix://; TLS needs rediss://", string(r.URL))
	}
	return &server
}

// readTLS also returns the content of the authority's file.
func (r *Redis) readTLS(server *limit.RedisServer, fs *config.Faults) (authority []byte) {
	if r.TLS == nil {
		return nil
	}
	if server.TLS == nil {
		server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if r.TLS.CAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(r.TLS.CAFile)
	if err != nil {
		fs.Addf(redisPath+".tls", "%v", err)
		return nil
	}
	server.TLS.RootCAs = x509.NewCertPool()
	if !server.TLS.RootCAs.AppendCertsFromPEM(pem) {
		fs.Addf(redisPath+".tls", "%q holds no certificate in PEM form", r.TLS.CAFile)
	}
	return pem
}

// redisRule is the option redis.
func (a *App) redisRule() caddyfile.Rule {
	return caddyfile.Rule{
		Word: "redis", Syntax: "<{env.NAME} or {file.PATH}> | sentinel <master> <host:port...> | cluster <host:port...>", HasBlock: true,
		Block: new(Redis).rules,
		Read: func(r *caddyfile.Reader, path string, o caddyfile.Option) {
			read := new(Redis)
			switch {
			case len(o.Args) == 0:
				r.Unreadf(path, o, "takes an address; %s", redisForms)
			case o.Args[0].Text == "sentinel":
				read.Sentinel = &RedisSentinel{Addresses: o.Texts(2)}
				if len(o.Args) > 1 {
					read.Sentinel.Master = o.Args[1].Text
				}
			case o.Args[0].Text == "cluster":
				read.Cluster = &RedisCluster{Addresses: o.Texts(1)}
			case len(o.Args) > 1:
				r.Unreadf(path, o, "takes one address, or sentinel or cluster first; %s", redisForms)
			default:
				read.URL = config.Secret(o.Args[0].Text)
			}
			r.Block(path, o, read.rules())
			caddyfile.Set(r, path, o, &a.Redis, read)
		},
		Faults: func(fs *config.Faults, _ string) { a.Redis.faults(fs) },
		Fill: func() {
			if a.Redis != nil {
				caddyfile.Fill(a.Redis.rules())
			}
		},
	}
}

// readTLSOption reads `tls [FILE]`.
func (r *Redis) readTLSOption(reader *caddyfile.Reader, path string, o caddyfile.Option) {
	if len(o.Args) > 1 {
		reader.Unreadf(path, o, "takes at most one value: the PEM file of an authority")
		return
	}
	read := new(RedisTLS)
	if len(o.Args) == 1 {
		read.CAFile = o.Args[0].Text
	}
	caddyfile.Set(reader, path, o, &r.TLS, read)
}

// redisUp returns 1 if Redis counts the requests.
func redisUp(rt *runtime) int64 {
	if redis, ok := rt.limiter.(*limit.Redis); ok && redis.Answers() {
		return 1
	}
	return 0
}

// redisMetrics implements [limit.RedisObserver].
type redisMetrics struct{}

func (redisMetrics) Pipelined(requests int, took time.Duration, failed bool) {
	redisRequests.Observe(float64(requests))
	redisSeconds.Observe(took.Seconds())
	if failed {
		redisFailedTotal.Inc()
	}
}

func (redisMetrics) Local(reason limit.LocalReason) {
	redisLocalTotal.WithLabelValues(string(reason)).Inc()
}
