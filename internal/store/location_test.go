package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Two spellings of one file are one location, also before the file and its directory exist.
func TestLocationOfAFile(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	working, err := os.Getwd()
	require.NoError(t, err)
	relative, err := filepath.Rel(working, filepath.Join(root, "data", "svc.db"))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(root, "data"), 0o700))
	for link, target := range map[string]string{
		"link":        "data",                              // to a directory
		"absolute":    filepath.Join(root, "data"),         //
		"file.db":     "data/svc.db",                       // to a file that doesn't exist yet
		"chain.db":    "file.db",                           //
		"data/up.db":  "../data/svc.db",                    //
		"future":      "later",                             // to a directory that doesn't exist yet
		"future.db":   filepath.Join(root, "later/svc.db"), //
		"circle":      "circle",
		"data/circle": "../data/circle",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, link)))
	}
	check := func(want string, spellings ...string) {
		t.Helper()
		for _, spelling := range spellings {
			location, err := store.ParseLocation(store.SQLite, spelling)
			require.NoError(t, err, spelling)
			require.Equal(t, store.Location{Engine: store.SQLite, DSN: filepath.Join(root, want)}, location, spelling)
			require.Equal(t, location.DSN, location.Redacted())
		}
	}
	in := func(path string) string { return root + "/" + path }
	spellings := []string{
		in("data/svc.db"), relative, "./" + relative, in("data/../data/./svc.db"), in("link/svc.db"), in("absolute/svc.db"),
		in("file.db"), in("chain.db"), in("data/up.db"),
	}
	check("data/svc.db", spellings...)
	check("later/svc.db", in("future/svc.db"), in("future.db"), in("later/svc.db"))
	require.NoError(t, os.WriteFile(in("data/svc.db"), nil, 0o600))
	check("data/svc.db", spellings...)

	for _, bad := range []string{
		"", ":memory:", "file:" + in("data/svc.db"), in("data/"), in("data/svc.db/"), "a\x00b", in("data/svc.db/nested"), in("circle"), in("data/circle"),
	} {
		_, err := store.ParseLocation(store.SQLite, bad)
		require.Error(t, err, bad)
	}
}

// The URL and the keyword form of one database are one location, whatever the order and the defaults left out.
func TestLocationOfAServer(t *testing.T) {
	t.Parallel()
	same := []string{
		"postgres://me:p%27w%5C@DB.example.com:5432/books?sslmode=disable",
		"postgresql://me:p%27w%5C@db.example.com/books?sslmode=disable",
		`host=db.example.com user=me password='p\'w\\' dbname=books sslmode=disable`,
		`  dbname = 'books'  user='me' sslmode=disable port=5432 password=p\'w\\ host=db.example.com  `,
		`user=x user=me database=books host=db.example.com sslmode=disable password='p\'w\\'`,
	}
	var first store.Location
	for i, dsn := range same {
		location, err := store.ParseLocation(store.Postgres, dsn)
		require.NoError(t, err, dsn)
		if i == 0 {
			first = location
		}
		require.Equal(t, first, location, dsn)
		require.Equal(t, "postgres://me@db.example.com:5432/books", location.Redacted())
	}
	again, err := store.ParseLocation(store.Postgres, first.DSN)
	require.NoError(t, err)
	require.Equal(t, first, again, "the canonical form is its own canonical form")

	for _, dsn := range []string{
		"postgres://me:pw@db.example.com/books2?sslmode=disable", "postgres://you:pw@db.example.com/books?sslmode=disable",
		"postgres://me:pw@db2.example.com/books?sslmode=disable", "postgres://me:pw@db.example.com:5433/books?sslmode=disable",
	} {
		other, err := store.ParseLocation(store.Postgres, dsn)
		require.NoError(t, err)
		require.NotEqual(t, first, other)
	}

	socket, err := store.ParseLocation(store.Postgres, "host=/run/PG user=me dbname=books")
	require.NoError(t, err)
	byURL, err := store.ParseLocation(store.Postgres, "postgres://me@/books?host=/run/PG")
	require.NoError(t, err)
	require.Equal(t, socket, byURL)
	require.Equal(t, "postgres://me@/books?host=/run/PG", socket.Redacted())

	several, err := store.ParseLocation(store.Postgres, "postgres://me:pw@a:1,b:2/books")
	require.NoError(t, err)
	byPairs, err := store.ParseLocation(store.Postgres, "host=a,b port=1,2 user=me password=pw dbname=books")
	require.NoError(t, err)
	require.Equal(t, several, byPairs)
}

// A DSN that can't be read is refused without a word of it, because it may hold a password.
func TestBadServersAreNotEchoed(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"", "   ", "hunter2", "postgres://me:hunter2@host:notaport/db", "postgres://me:hunter2@ho st/db", "host='hunter2",
		"password=hunter2 port=abc", "mysql://me:hunter2@host/db", "postgres://%zz:hunter2@h/db", "a\x00hunter2",
	} {
		_, err := store.ParseLocation(store.Postgres, dsn)
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := store.ParseLocation("mysql", "hunter2")
	require.ErrorContains(t, err, "sqlite or postgres")
}

// Whatever pgx can read has one canonical form that pgx reads as the same database.
func FuzzLocationOfAServer(f *testing.F) {
	for _, dsn := range []string{
		"postgres://me:pw@h:1/db?sslmode=disable&x=y", "host=h user='a b' password='\\'' dbname=d", "host=a,b port=1,2", "user=", "a=b c",
		"postgres:///db?host=/tmp", "postgres://[::1]:5/db", "host = h", `password=\`, "=", "host='", "options='-c a=b'", "postgres:///?=0", "postgres:///?a%20b=c",
	} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if strings.Contains(dsn, "service") || strings.Contains(dsn, "pass") || strings.Contains(dsn, "ssl") {
			return // would read files of this machine
		}
		location, err := store.ParseLocation(store.Postgres, dsn)
		if err != nil {
			return
		}
		again, err := store.ParseLocation(store.Postgres, location.DSN)
		require.NoError(t, err, "%q", location.DSN)
		require.Equal(t, location, again)
		require.NotEmpty(t, location.Redacted())
	})
}

// Ids sort by the time they were made, and are letters and digits only.
func TestNewID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	last := ""
	for range 10_000 {
		id := store.NewID("org")
		require.Regexp(t, `^org_[0-9a-v]{26}$`, id)
		require.False(t, seen[id])
		seen[id] = true
		require.GreaterOrEqual(t, id[:16], last, "the time part never goes back")
		last = id[:16]
	}
}
