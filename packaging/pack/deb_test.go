package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/stretchr/testify/require"
)

// TestDebianPackage guarantees that the package installs into an empty root, and that the lines of its units run there with
// the Caddyfile and the key that it brings: the server answers and charges a call, the worker is ready. An upgrade keeps the key.
func TestDebianPackage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	control := installDeb(t, findPackage(t, "caddy-svc_*_"+runtime.GOARCH+".deb"), root)
	fields, err := os.ReadFile(filepath.Join(control, "control"))
	require.NoError(t, err)
	require.Contains(t, string(fields), "Package: caddy-svc\n")
	require.Contains(t, string(fields), "Architecture: "+runtime.GOARCH+"\n")
	require.Contains(t, string(fields), "Depends: systemd (>= 247), ca-certificates\n")
	_, described, found := strings.Cut(string(fields), "\nDescription: ")
	require.True(t, found)
	synopsis, rest, _ := strings.Cut(described, "\n")
	require.LessOrEqual(t, len(synopsis), 80)
	require.Regexp(t, `^ A Caddy that`, rest)
	requireLinks(t, filepath.Join(root, "usr/share/doc/caddy-svc"))
	if os.Getenv("SVC_DIST") == "" {
		require.Contains(t, string(fields), "Version: 1.2.3~rc.1\n", "dpkg sorts it before 1.2.3")
	}
	settings, err := os.ReadFile(filepath.Join(control, "conffiles"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"/etc/caddy-svc/Caddyfile", "/etc/caddy-svc/env"}, strings.Fields(string(settings)))

	for path, mode := range map[string]os.FileMode{
		"etc/caddy-svc/env": 0o600, "etc/caddy-svc/master.key": 0o600, "usr/lib/caddy-svc/caddy": 0o755, "usr/bin/caddy-svc": 0o755,
	} {
		info, err := os.Stat(filepath.Join(root, path))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	key, err := os.ReadFile(filepath.Join(root, "etc/caddy-svc/master.key"))
	require.NoError(t, err)
	bytesOfKey, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(key)))
	require.NoError(t, err)
	require.Len(t, bytesOfKey, 32)
	configure(t, control, root, "1.2.2")
	kept, err := os.ReadFile(filepath.Join(root, "etc/caddy-svc/master.key"))
	require.NoError(t, err)
	require.Equal(t, key, kept)

	server := readUnit(t, filepath.Join(root, "usr/lib/systemd/system/caddy-svc.service"))
	worker := readUnit(t, filepath.Join(root, "usr/lib/systemd/system/caddy-svc-worker.service"))
	requireSameRights(t, filepath.Join(root, "usr/bin/caddy-svc"), server, worker)
	// systemd would make the folder of StateDirectory and the file of LoadCredential; this test does it.
	require.Equal(t, "caddy-svc caddy-svc/data", server["StateDirectory"])
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var/lib/caddy-svc/data"), 0o700))
	program, _, _ := strings.Cut(server["ExecStart"], " ")
	installed := &installation{
		t: t, root: root, program: program, dir: server["WorkingDirectory"], user: userOf(t, root, server["User"]),
		env: append(strings.Fields(server["Environment"]), "CREDENTIALS_DIRECTORY=/run/secrets"),
	}
	installed.prepare(key)
	installed.requireServes(strings.Fields(server["ExecStart"]), strings.Fields(worker["ExecStart"]), []string{program, "svc", "health"})
}

// requireSameRights requires that the command of the package runs `caddy svc` as both services run, by letting it call a
// systemd-run that prints its arguments.
func requireSameRights(t *testing.T, script string, services ...unit) {
	t.Helper()
	stand := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(stand, "systemd-run"), []byte("#!/bin/sh\nprintf '%s\\n' \"$@\"\n"), 0o700)) //nolint:gosec // it is a program
	cmd := exec.CommandContext(t.Context(), "/bin/sh", script, "org", "create", "--name", "Tea house")
	cmd.Env = []string{"PATH=" + stand + ":/bin:/usr/bin"}
	output, err := cmd.Output()
	require.NoError(t, err)
	arguments := strings.Split(strings.TrimSpace(string(output)), "\n")
	for _, service := range services {
		program, _, _ := strings.Cut(service["ExecStart"], " ")
		_, config, found := strings.Cut(service["ExecStart"], "--config ")
		require.True(t, found)
		require.Subset(t, arguments, []string{
			"--uid=" + service["User"], "--gid=" + service["Group"], "--working-directory=" + service["WorkingDirectory"],
			"UMask=" + service["UMask"], "StateDirectory=" + service["StateDirectory"], "StateDirectoryMode=" + service["StateDirectoryMode"],
			"EnvironmentFile=" + service["EnvironmentFile"], "LoadCredential=" + service["LoadCredential"],
		})
		require.Equal(t, []string{program, "svc", "org", "create", "--name", "Tea house", "--config", config}, arguments[len(arguments)-8:])
	}
}

// installDeb installs a package into an empty root, with dpkg where it is and we are root, and returns the folder of the
// package's control files.
func installDeb(t *testing.T, path, root string) (control string) {
	t.Helper()
	control = t.TempDir()
	members := map[string]string{"control.tar.gz": control, "data.tar.gz": root}
	dpkg, err := exec.LookPath("dpkg")
	withDpkg := err == nil && os.Getuid() == 0
	if withDpkg {
		delete(members, "data.tar.gz")
		state := filepath.Join(root, "var/lib/dpkg")
		require.NoError(t, os.MkdirAll(filepath.Join(state, "updates"), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(state, "info"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(state, "status"), nil, 0o600))
		// The root has no shell for the package's scripts, and none of what it depends on.
		output, err := exec.CommandContext(t.Context(), dpkg, "--root="+root, "--force-script-chrootless", "--force-depends", "--install", path).CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	for archive := ar.NewReader(file); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		folder, wanted := members[strings.TrimSuffix(header.Name, "/")]
		if !wanted {
			continue
		}
		text, err := gzip.NewReader(archive)
		require.NoError(t, err)
		unpack(t, text, folder)
		delete(members, strings.TrimSuffix(header.Name, "/"))
	}
	require.Empty(t, members, "the package lacks a member")
	if !withDpkg {
		configure(t, control, root, "")
	}
	return control
}

// configure runs the package's script as dpkg does after it has unpacked a package; older is the version that was there.
func configure(t *testing.T, control, root, older string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(control, "postinst"), "configure", older)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "DPKG_ROOT=" + root}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Run(), "%s", &output)
}
