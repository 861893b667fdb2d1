package sqlite

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() { childRoles["opens on a network"] = openOnNetwork } //nolint:gochecknoinits // on Linux only

// openOnNetwork opens a file in a process of its own, to which the disk that has the file is a network file system.
func openOnNetwork(path string) error {
	var about unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &about); err != nil {
		return err
	}
	networkFileSystems[int64(uint32(about.Type))] = "taken for one"
	_, err := Open(context.Background(), path, time.Now, slog.New(slog.DiscardHandler))
	return err
}

// A file on a network file system is refused before anything is written to it.
func TestNetworkFileSystemIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "svc.db")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childRole+"=opens on a network", childFile+"="+path)
	printed, err := child.CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(printed), "network file system (taken for one)")
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, entries)
}
