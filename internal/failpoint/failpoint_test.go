package failpoint_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNormalBuild guarantees that a program without the flag of the linker has no failpoints, whatever the environment says.
func TestNormalBuild(t *testing.T) {
	t.Parallel()
	require.False(t, failpoint.Enabled())
	crossing := build(t)
	for _, setting := range []string{"", "after_hold", "after_hold:2", "nowhere", "after_hold:0"} {
		passed, err := crossing.run(setting)
		require.NoError(t, err, setting)
		require.Equal(t, everything(), passed, setting)
	}
}

// TestCrashBuild guarantees that a program with the flag dies by SIGKILL at the named hit of the named point and nowhere
// else, that nothing deferred runs, and that a name it doesn't know ends it at once.
func TestCrashBuild(t *testing.T) {
	t.Parallel()
	crossing := build(t, enabled)
	passed, err := crossing.run("")
	require.NoError(t, err)
	require.Equal(t, everything(), passed)

	all := everything()
	n := len(failpoint.Points())
	for i, point := range failpoint.Points() {
		for setting, want := range map[string][]string{
			string(point):        all[:i],
			string(point) + ":1": all[:i],
			string(point) + ":2": all[:n+i],
		} {
			passed, err := crossing.run(setting)
			require.Equal(t, want, passed, setting)
			require.Equal(t, syscall.SIGKILL, killedBy(t, err), setting)
		}
		passed, err := crossing.run(string(point) + ":3")
		require.NoError(t, err)
		require.Equal(t, all, passed)
	}

	for _, setting := range []string{"nowhere", "AFTER_HOLD", "after_hold:0", "after_hold:-1", "after_hold:x", "after_hold:", ":1"} {
		passed, err := crossing.run(setting)
		require.Empty(t, passed, setting)
		require.ErrorContains(t, err, failpoint.Variable, setting)
	}
}

// TestSlowCommits guarantees that only a build with the tag reads the file that slows commits down, and that it waits as long as
// the file says, and not at all without the file.
func TestSlowCommits(t *testing.T) {
	dir := t.TempDir()
	normal, crash := build(t), build(t, enabled)
	for content, broken := range map[string]bool{"1ms\n": false, "soon": true} {
		file := filepath.Join(dir, "slow")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		t.Setenv(failpoint.SlowVariable, file)
		passed, err := normal.run("")
		require.NoError(t, err)
		require.Equal(t, everything(), passed)
		passed, err = crash.run("")
		if broken {
			require.ErrorContains(t, err, failpoint.SlowVariable)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, everything(), passed)
	}
	t.Setenv(failpoint.SlowVariable, filepath.Join(dir, "absent"))
	passed, err := crash.run("")
	require.NoError(t, err)
	require.Equal(t, everything(), passed)
}

// enabled is the flag for programs that can kill themselves.
const enabled = "-ldflags=-X github.com/caddy-svc/caddy-svc/internal/failpoint.build=crash"

// everything is what crossing says when it lives.
func everything() (lines []string) {
	for range 2 {
		for _, point := range failpoint.Points() {
			lines = append(lines, string(point))
		}
	}
	return append(lines, "deferred")
}

// program is a built crossing.
type program string

func build(t *testing.T, flags ...string) program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crossing")
	out, err := exec.CommandContext(t.Context(), "go", append(append([]string{"build"}, flags...), "-o", path, "./testdata/crossing")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program(path)
}

// run is the lines that the program wrote, and how it ended.
func (p program) run(setting string) (lines []string, err error) {
	cmd := exec.Command(string(p)) //nolint:noctx // it ends by itself
	cmd.Env = append(os.Environ(), failpoint.Variable+"="+setting)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err = cmd.Run(); err != nil {
		err = errors.Join(err, errors.New(errs.String()))
	}
	return strings.Fields(out.String()), err
}

// killedBy is the signal that ended a process.
func killedBy(t *testing.T, err error) syscall.Signal {
	t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled(), "%v", err)
	return status.Signal()
}
