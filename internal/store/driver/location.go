package driver

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Engine is a database engine, as it is written in the Caddyfile.
type Engine string

// The two engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// Location is the address of a database. Two spellings of one database give equal Locations, so a Location is the key under which a process
// shares its pool. Spellings that only the network or the file system could compare stay different: a host name and its address, two hard
// links of one file.
type Location struct {
	Engine Engine
	// DSN is the absolute path without symbolic links (SQLite), or the keyword=value form in fixed order with every
	// default filled in (PostgreSQL). It may contain a password: log [Location.Redacted].
	DSN string
	// Direct is, in the same form, another address of the same PostgreSQL database that gives a client a session of its own. Empty means
	// that DSN does. With it, DSN may be a pooler that gives each transaction another session (PgBouncer in transaction mode). See
	// [Location.WithDirect].
	Direct string
}

// ParseLocation parses the words after the engine's name in the Caddyfile: a file path, which may be relative and need not exist yet
// (SQLite), or a postgres:// URL or keyword=value pairs (PostgreSQL; the PG* variables, pgpass and service files count as libpq counts
// them). Errors never repeat the DSN.
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

// WithDirect returns the location with the address for sessions that a pooler in transaction mode can't give: migrations, which hold an
// advisory lock, and LISTEN. The address may be a URL or keyword=value pairs and is PostgreSQL's only. Errors never repeat it.
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
	if l.Engine != Postgres {
		return l.DSN
	}
	settings, err := postgresSettings(l.DSN)
	if err != nil {
		return "postgres://"
	}
	address := url.URL{Scheme: "postgres", Host: settings["host"] + ":" + settings["port"], Path: "/" + settings["database"]}
	if strings.HasPrefix(settings["host"], "/") {
		address.Host, address.RawQuery = "", "host="+settings["host"]
	}
	if user := settings["user"]; user != "" {
		address.User = url.User(user)
	}
	return address.String()
}

// Env is the environment an API key works in, and so the wallet it spends.
type Env string

// The two environments, as in key prefixes, columns and command line flags.
const (
	Live Env = "live"
	Test Env = "test"
)

// Valid reports whether e is one of the two environments.
func (e Env) Valid() bool { return e == Live || e == Test }

// maxLinks bounds the symbolic links followed for one path, as Linux does.
const maxLinks = 40

// canonicalPath is the absolute path of a database file with every symbolic link resolved, also when the file or some
// of its directories don't exist yet.
func canonicalPath(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("a file path is needed")
	case strings.ContainsRune(path, 0):
		return "", errors.New("the file path contains NUL")
	case strings.HasPrefix(path, ":memory:"), strings.HasPrefix(path, "file:"):
		return "", errors.New("a plain file path is needed: no file: URI, and no database in memory, which processes could not share")
	case strings.HasSuffix(path, "/"):
		return "", errors.New("the file path names a directory")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("make the path absolute: %w", err)
	}
	return resolveLinks(absolute, maxLinks)
}

// resolveLinks is [filepath.EvalSymlinks] for a path that may end in missing folders and files: they are appended unchanged, and a link to
// a missing file is followed to where its file will be created.
func resolveLinks(path string, links int) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		return resolved, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("resolve the path: %w", err)
	}
	if links == 0 {
		return "", errors.New("too many symbolic links")
	}
	directory, name := filepath.Split(path)
	if name == "" {
		return path, nil
	}
	directory, err = resolveLinks(filepath.Clean(directory), links)
	if err != nil {
		return "", err
	}
	path = filepath.Join(directory, name)
	if target, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(directory, target)
		}
		return resolveLinks(target, links-1)
	}
	return path, nil // Not a link: it will be created here.
}

// ErrPostgresDSN is the only error about a DSN that can't be read: its parser's own text may quote a password.
var ErrPostgresDSN = errors.New("the address must be postgres://user:password@host:port/database or keyword=value pairs")

// settingNames are the names of connection settings and of server parameters (my.setting).
var settingNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// canonicalPostgres puts a DSN into the keyword=value form with sorted keywords and every default filled in.
func canonicalPostgres(dsn string) (string, error) {
	if strings.ContainsRune(dsn, 0) || strings.TrimSpace(dsn) == "" {
		return "", ErrPostgresDSN
	}
	effective, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return "", ErrPostgresDSN
	}
	settings, err := postgresSettings(dsn)
	if err != nil {
		return "", err
	}
	for name := range settings {
		if !settingNames.MatchString(name) {
			return "", ErrPostgresDSN // a URL could name one that the keyword form can't
		}
	}
	settings["user"], settings["password"] = effective.User, effective.Password
	settings["database"] = cmp.Or(effective.Database, effective.User) // libpq's rule
	hosts := strings.Split(cmp.Or(settings["host"], effective.Host), ",")
	for i, host := range hosts {
		if !strings.HasPrefix(host, "/") { // a path of a Unix socket keeps its case
			hosts[i] = strings.ToLower(host)
		}
	}
	settings["host"] = strings.Join(hosts, ",")
	settings["port"] = cmp.Or(settings["port"], strconv.Itoa(int(effective.Port)))
	settings["sslmode"] = cmp.Or(settings["sslmode"], os.Getenv("PGSSLMODE"), "prefer")
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if settings[name] != "" {
			pairs = append(pairs, name+"='"+quote.Replace(settings[name])+"'")
		}
	}
	return strings.Join(pairs, " "), nil
}

// postgresSettings splits either form of a DSN into its settings, under pgx's names for them.
func postgresSettings(dsn string) (map[string]string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return keywordSettings(dsn)
	}
	address, err := url.Parse(dsn)
	if err != nil {
		return nil, ErrPostgresDSN
	}
	settings := map[string]string{}
	var hosts, ports []string
	for host := range strings.SplitSeq(address.Host, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name = strings.Trim(host, "[]") // no port
		}
		if name != "" {
			hosts = append(hosts, name)
		}
		if port != "" {
			ports = append(ports, port)
		}
	}
	settings["host"] = strings.Join(hosts, ",")
	settings["port"] = strings.Join(ports, ",")
	if database := strings.TrimLeft(address.Path, "/"); database != "" {
		settings["database"] = database
	}
	for name, values := range address.Query() {
		settings[settingName(name)] = values[0]
	}
	return settings, nil
}

// keywordSettings parses keyword = value pairs: a value with spaces is in single quotes, and the character after a backslash is literal.
func keywordSettings(dsn string) (map[string]string, error) {
	settings := map[string]string{}
	for rest := strings.TrimSpace(dsn); rest != ""; rest = strings.TrimSpace(rest) {
		name, after, found := strings.Cut(rest, "=")
		name = strings.TrimSpace(name)
		if !found || name == "" {
			return nil, ErrPostgresDSN
		}
		var value string
		var ok bool
		if value, rest, ok = keywordValue(strings.TrimLeft(after, " \t\n\r\v\f")); !ok {
			return nil, ErrPostgresDSN
		}
		settings[settingName(name)] = value
	}
	return settings, nil
}

func keywordValue(text string) (value, rest string, ok bool) {
	quoted := strings.HasPrefix(text, "'")
	var plain strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quoted && i == 0:
		case c == '\\' && i+1 < len(text):
			i++
			plain.WriteByte(text[i])
		case quoted && c == '\'':
			return plain.String(), text[i+1:], true
		case !quoted && strings.IndexByte(" \t\n\r\v\f", c) >= 0:
			return plain.String(), text[i:], true
		default:
			plain.WriteByte(c)
		}
	}
	return plain.String(), "", !quoted
}

func settingName(name string) string {
	if name == "dbname" {
		return "database"
	}
	return name
}
