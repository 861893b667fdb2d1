package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
)

// committed is the time of the commit of the tests' releases.
var committed = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// scratch is the folder of what all tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "svc-pack"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// packages is the folder of the packages under test for this machine's processor: those of SVC_DIST, which scripts/dist.sh
// has made, or packages with the binary SVC_CADDY.
var packages = sync.OnceValues(func() (string, error) {
	if made := os.Getenv("SVC_DIST"); made != "" {
		return made, nil
	}
	binary := os.Getenv("SVC_CADDY")
	if binary == "" {
		return "", errors.New("SVC_CADDY is not set: name the binary to pack, such as ../../dist/caddy-race")
	}
	r := testRelease(filepath.Join(scratch, "packages"))
	return r.out, r.write([]target{{os: "linux", arch: runtime.GOARCH, binary: binary}})
})

func testRelease(out string) *release {
	return &release{version: "1.2.3-rc.1", maintainer: "Lan Example <lan@example.com>", time: committed, root: "../..", out: out}
}

// findPackage returns the path of the only package whose name matches the pattern.
func findPackage(t *testing.T, pattern string) string {
	t.Helper()
	folder, err := packages()
	require.NoError(t, err)
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	require.NoError(t, err)
	require.Len(t, found, 1, pattern)
	return found[0]
}

// openGzip opens a compressed file until the end of the test.
func openGzip(t *testing.T, path string) io.Reader {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	return text
}

// TestArchive guarantees that an archive has one folder with the program, the documentation and the units, all root's, and that
// the checksums are those of the files.
func TestArchive(t *testing.T) {
	t.Parallel()
	path := findPackage(t, "caddy-svc_*_linux_"+runtime.GOARCH+".tar.gz")
	folder := strings.TrimSuffix(filepath.Base(path), ".tar.gz") + "/"
	archive := tar.NewReader(openGzip(t, path))
	var names []string
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		name, within := strings.CutPrefix(header.Name, folder)
		require.True(t, within, header.Name)
		names = append(names, name)
		require.Zero(t, header.Uid+header.Gid)
		if name == "caddy" {
			require.EqualValues(t, 0o755, header.Mode)
		} else {
			require.EqualValues(t, 0o644, header.Mode, name)
		}
	}
	require.True(t, slices.IsSorted(names))
	for _, name := range []string{
		"caddy", "README.md", "LICENSE", "CHANGELOG.md", "Caddyfile.example", "docs/operating.md", "packaging/systemd/caddy-svc.service",
	} {
		require.Contains(t, names, name)
	}

	root := t.TempDir()
	unpack(t, openGzip(t, path), root)
	requireLinks(t, filepath.Join(root, folder))

	sums, err := os.ReadFile(findPackage(t, "SHA256SUMS"))
	require.NoError(t, err)
	sum, err := sha256OfFile(path)
	require.NoError(t, err)
	require.Contains(t, string(sums), sum+"  "+filepath.Base(path)+"\n")
	written, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(string(sums)), "\n"), len(written)-1, "all but SHA256SUMS itself")
}

var link = regexp.MustCompile(`\]\(([^):#]+)[^):]*\)`)

// requireLinks requires that a folder has all files to which the pages for operators link.
func requireLinks(t *testing.T, folder string) {
	t.Helper()
	for _, page := range []string{"docs/operating.md", "docs/upgrading.md", "docs/channels.md", "docs/conversations.md", "docs/cluster.md"} {
		text, err := os.ReadFile(filepath.Join(folder, page))
		require.NoError(t, err)
		links := link.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, links, page)
		for _, to := range links {
			_, err := os.Stat(filepath.Join(folder, filepath.Dir(page), to[1]))
			require.NoError(t, err, page)
		}
	}
}

// TestSBOM guarantees that the bill of materials names the program of the archive by its hash, and its modules with versions.
func TestSBOM(t *testing.T) {
	t.Parallel()
	text, err := os.Open(findPackage(t, "caddy-svc_*_linux_"+runtime.GOARCH+".cdx.json"))
	require.NoError(t, err)
	defer text.Close()
	var bom cyclonedx.BOM
	require.NoError(t, cyclonedx.NewBOMDecoder(text, cyclonedx.BOMFileFormatJSON).Decode(&bom))

	root := t.TempDir()
	unpack(t, openGzip(t, findPackage(t, "caddy-svc_*_linux_"+runtime.GOARCH+".tar.gz")), root)
	programs, err := filepath.Glob(filepath.Join(root, "*", "caddy"))
	require.NoError(t, err)
	require.Len(t, programs, 1)
	sum, err := sha256OfFile(programs[0])
	require.NoError(t, err)
	require.Equal(t, sum, (*bom.Metadata.Component.Hashes)[0].Value)

	versions := map[string]string{}
	for _, component := range *bom.Components {
		versions[component.Name] = component.Version
		require.NotContains(t, component.Name, "testify", "tests are no part of the program")
	}
	for _, module := range []string{"std", "github.com/caddyserver/caddy/v2", "github.com/jackc/pgx/v5", "modernc.org/sqlite"} {
		require.NotEmpty(t, versions[module], module)
	}
	require.Len(t, *(*bom.Dependencies)[0].Dependencies, len(*bom.Components))
}

// smallProgram returns a Go program with its list of modules, which is compressed in a moment.
func smallProgram(t *testing.T) []byte {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module example.org/program\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "program", ".")
	build.Dir = folder
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	text, err := os.ReadFile(filepath.Join(folder, "program"))
	require.NoError(t, err)
	return text
}

// TestPackagesAreReproducible guarantees that the same binaries and files make the same packages for all targets, whatever
// the modes and times of the files are.
func TestPackagesAreReproducible(t *testing.T) {
	t.Parallel()
	text := smallProgram(t)
	var sums [][]byte
	for i, mode := range []os.FileMode{0o700, 0o755} {
		binaries := t.TempDir()
		for _, name := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
			path := filepath.Join(binaries, "caddy-"+name)
			require.NoError(t, os.WriteFile(path, text, mode))
			at := committed.Add(time.Duration(i) * 1000 * time.Hour)
			require.NoError(t, os.Chtimes(path, at, at))
		}
		targets, err := findTargets(binaries)
		require.NoError(t, err)
		r := testRelease(filepath.Join(t.TempDir(), "out"))
		require.NoError(t, r.write(targets))
		sum, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
		require.NoError(t, err)
		sums = append(sums, sum)
		require.ErrorContains(t, r.write(targets), "is not empty")
	}
	require.Equal(t, string(sums[0]), string(sums[1]))
	require.Equal(t, 4+4+2+1, bytes.Count(sums[0], []byte("\n")), "archives, SBOMs, Debian packages, one image:\n%s", sums[0])
}

// unpack unpacks an archive into a folder, with owners if we are root.
func unpack(t *testing.T, text io.Reader, folder string) {
	t.Helper()
	archive := tar.NewReader(text)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(filepath.Clean(header.Name)), header.Name)
		path := filepath.Join(folder, header.Name)
		mode := header.FileInfo().Mode()
		if header.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o755))
		} else {
			require.Equal(t, byte(tar.TypeReg), header.Typeflag, header.Name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			file, err := os.Create(path)
			require.NoError(t, err)
			_, err = io.Copy(file, archive)
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
		if os.Getuid() == 0 {
			require.NoError(t, os.Chown(path, header.Uid, header.Gid))
		}
		require.NoError(t, os.Chmod(path, mode))
	}
}
