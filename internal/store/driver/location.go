package driver

import (
	"errors"
	"fmt"
)

// Engine is a database engine, as it is written in the Caddyfile.
type Engine string

// The two engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// Location is the address of a database. Two spellings of one database give equal Locations, so a Location is the key
// under which a process shares its pool. What can't be decided without asking the network or the
// file system's inner life stays different: a host name and its address, two hard links of one file.
type Location struct {
	Engine Engine
	// DSN is the absolute path without symbolic links (SQLite), or the keyword=value form in fixed order with every
	// default filled in (PostgreSQL). It may contain a password: log [Location.Redacted].
	DSN string
	// Direct is, in the same form, another address of the same PostgreSQL database, one that gives a client a session of
	// its own; "" when DSN does. With it, DSN may be a pooler that gives each transaction another session (PgBouncer
	// in transaction mode). See [Location.WithDirect].
	Direct string
}

// ParseLocation reads what follows the engine's name in the Caddyfile: a file path, which may be relative and need not
// exist yet (SQLite), or a postgres:// URL or keyword=value pairs (PostgreSQL; the PG* variables, pgpass and service
// files count as libpq counts them). Errors never repeat the DSN.
func ParseLocation(engine Engine, dsn string) (Location, error) {
	var canonical string
	var err error
	switch engine {
	case SQLite:
		canonical, err = canonicalPath(dsn)
	case Postgres:
		canonical, err = canonicalPostgres(dsn)
	default:
		return Location{}, errors.New("store: engine must be sqlite or postgres")
	}
	if err != nil {
		return Location{}, fmt.Errorf("store: %s: %w", engine, err)
	}
	return Location{Engine: engine, DSN: canonical}, nil
}

// WithDirect is the location with the address to use for what a pooler in transaction mode can't do: migrations, which
// hold an advisory lock, and LISTEN. The address may be a URL or keyword=value pairs and is PostgreSQL's only. Errors
// never repeat it.
func (l Location) WithDirect(dsn string) (Location, error) {
	if l.Engine != Postgres {
		return Location{}, errors.New("store: a direct address goes with postgres only")
	}
	direct, err := canonicalPostgres(dsn)
	if err != nil {
		return Location{}, fmt.Errorf("store: the direct address of %s: %w", l.Engine, err)
	}
	l.Direct = direct
	return l, nil
}

// SessionDSN returns the address that gives a client a session of its own.
func (l Location) SessionDSN() string {
	if l.Direct != "" {
		return l.Direct
	}
	return l.DSN
}

// Redacted is the location for logs: a path, or postgres://user@host:port/database without password and options.
func (l Location) Redacted() string {
	if l.Engine == Postgres {
		return redactedPostgres(l.DSN)
	}
	return l.DSN
}

// Env is the environment an API key works in, and so the wallet it spends.
type Env string

// The two environments, as they stand in key prefixes, columns and command line flags.
const (
	Live Env = "live"
	Test Env = "test"
)

// Valid reports whether e is one of the two environments.
func (e Env) Valid() bool { return e == Live || e == Test }
