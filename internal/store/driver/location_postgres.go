package driver

import (
	"errors"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

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
	settings["user"] = effective.User
	settings["password"] = effective.Password
	settings["database"] = effective.Database
	if settings["database"] == "" {
		settings["database"] = effective.User // libpq's rule
	}
	if settings["host"] == "" {
		settings["host"] = effective.Host
	}
	if settings["port"] == "" {
		settings["port"] = strconv.Itoa(int(effective.Port))
	}
	settings["host"] = canonicalHosts(settings["host"])
	if settings["sslmode"] == "" {
		settings["sslmode"] = "prefer"
		if mode := os.Getenv("PGSSLMODE"); mode != "" {
			settings["sslmode"] = mode
		}
	}
	return joinSettings(settings), nil
}

// redactedPostgres is a canonical DSN as a URL without password and options.
func redactedPostgres(dsn string) string {
	settings, err := postgresSettings(dsn)
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

// postgresSettings splits either form of a DSN into its settings, under pgx's names for them.
func postgresSettings(dsn string) (map[string]string, error) {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		return urlSettings(dsn)
	}
	return keywordSettings(dsn)
}

func urlSettings(dsn string) (map[string]string, error) {
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

// keywordSettings reads keyword = value pairs: a value with spaces stands in single quotes, and a backslash takes the
// next character as it is.
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

// canonicalHosts lowers host names; a path of a Unix socket keeps its case.
func canonicalHosts(hosts string) string {
	list := strings.Split(hosts, ",")
	for i, host := range list {
		if !strings.HasPrefix(host, "/") {
			list[i] = strings.ToLower(host)
		}
	}
	return strings.Join(list, ",")
}

func joinSettings(settings map[string]string) string {
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	pairs := make([]string, 0, len(settings))
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if settings[name] != "" {
			pairs = append(pairs, name+"='"+quote.Replace(settings[name])+"'")
		}
	}
	return strings.Join(pairs, " ")
}
