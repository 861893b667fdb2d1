package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// openOnNetwork opens a file in a process of its own, to which the disk that has the file is a network file system, and
// prints the error.
func openOnNetwork(path string) error {
	if err := store.TakeForNetwork(filepath.Dir(path)); err != nil {
		return err
	}
	location, err := store.ParseLocation(store.SQLite, path)
	if err != nil {
		return err
	}
	_, err = store.Open(context.Background(), location, store.Options{})
	_, failed := fmt.Println(err)
	return failed
}

// A file on a network file system is refused before anything is written to it.
func TestNetworkFileSystemIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "svc.db")
	c := startChild(t, "network", path)
	line, ok := <-c.lines
	require.True(t, ok)
	require.Contains(t, line, "network file system (taken for one)")
	require.NoError(t, c.stdin.Close())
	require.NoError(t, c.rest())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, entries)
}
