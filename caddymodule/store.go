package caddymodule

import (
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
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
		s.sqliteFaults(fs, path)
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

func (s *Store) sqliteFaults(fs *config.Faults, path string) {
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
	var err error
	if store.Engine(s.Engine) == store.Postgres {
		if address, err = s.DSN.Resolve(repl); err != nil {
			fs.Addf(path, "%v", err)
		}
		if s.Direct != "" {
			if direct, err = s.Direct.Resolve(repl); err != nil {
				fs.Addf(path+".direct", "%v", err)
			}
		}
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
