package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// opening is whether a command may create and migrate the store.
type opening int

const (
	// openExisting refuses a store that isn't of this program's version, and a SQLite file that doesn't exist or is empty: most likely the
	// command runs in the wrong working directory.
	openExisting opening = iota
	openOrCreate
)

const closeWait = 5 * time.Second

// commandEnv is the environment of a run of a command: the configuration, the open store, and the actor for the audit log.
type commandEnv struct {
	app      *caddymodule.App
	repl     *caddy.Replacer
	location store.Location
	db       *store.DB
	actor    string
	args     []string
	stdin    io.Reader
	stderr   io.Writer
}

// openEnv reads the configuration and opens the store as the server does. Only commands that may create a store migrate it.
func (f *commandFlags) openEnv(ctx context.Context, cmd *cobra.Command, args []string, opens opening) (*commandEnv, error) {
	app, err := f.app()
	if err != nil {
		return nil, err
	}
	e := &commandEnv{
		app: app, repl: caddy.NewReplacer(), actor: operator(),
		args: args, stdin: cmd.InOrStdin(), stderr: cmd.ErrOrStderr(),
	}
	if e.location, err = app.Store.Location(e.repl); err != nil {
		return nil, err
	}
	if err := e.mayOpen(opens); err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if e.db, err = store.Open(ctx, e.location, store.Options{Kinds: caddymodule.StoreKinds(), Logger: log}); err != nil {
		return nil, fmt.Errorf("opening the store %s: %w", e.location.Redacted(), err)
	}
	if opens == openExisting {
		err = e.db.Check(ctx)
	} else {
		err = e.db.Migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("using the store %s: %w", e.location.Redacted(), err), e.close())
	}
	return e, nil
}

func (e *commandEnv) mayOpen(opens opening) error {
	if opens != openExisting || e.location.Engine != store.SQLite {
		return nil
	}
	if info, err := os.Stat(e.location.DSN); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return fmt.Errorf("there is no store %s yet; is this the server's working directory? `caddy svc migrate` makes a new one",
			e.location.DSN)
	}
	return nil
}

// close closes the store. It has a context of its own, because the command's may have been interrupted.
func (e *commandEnv) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := e.db.Close(ctx); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// operator returns the name of the system's user for the audit log.
func operator() string {
	if current, err := user.Current(); err == nil && current.Username != "" {
		return "cli:" + current.Username
	}
	return fmt.Sprintf("cli:uid %d", os.Getuid())
}

func (e *commandEnv) book() *billing.Book { return billing.NewBook(e.db) }

// ring resolves the master key, which most commands don't need.
func (e *commandEnv) ring() (*vault.Ring, error) {
	ring, err := e.app.Ring(e.repl)
	if err != nil {
		return nil, fmt.Errorf("svc.master_key: %w", err)
	}
	return ring, nil
}

// checkOrganization returns an error if there is no organization with an id.
func (e *commandEnv) checkOrganization(ctx context.Context, id string) error {
	_, err := e.db.Organizations.ByID(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("there is no organization %q; `caddy svc org list` shows them", id)
	}
	return err
}

// configured returns an error, which lists names, if name isn't one of names.
func configured(kind, name string, names []string) error {
	switch {
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fmt.Errorf("there is no %s %q: the configuration has none", kind, name)
	default:
		return fmt.Errorf("there is no %s %q; the configuration has: %s", kind, name, strings.Join(names, ", "))
	}
}

// readInput reads a file or, for "-", standard input. Errors name the input by the text in what. It reads up to one byte
// more than most, so that the caller can refuse longer input without reading all of it.
func (e *commandEnv) readInput(file, what string, most int64) ([]byte, error) {
	source := e.stdin
	if file == "-" {
		if terminal(source) {
			_, _ = fmt.Fprintf(e.stderr, "Enter the %s, then end with Ctrl-D:\n", what)
		}
	} else {
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("reading the %s: %w", what, err)
		}
		defer opened.Close() //nolint:errcheck // it was only read
		source = opened
	}
	text, err := io.ReadAll(io.LimitReader(source, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	return text, nil
}

// terminal reports whether source is a terminal, where a person types.
func terminal(source io.Reader) bool {
	file, ok := source.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
