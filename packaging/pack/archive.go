package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// entry is a file or folder of an archive.
type entry struct {
	// path is the path in the archive; the one of a folder ends with a slash.
	path string
	mode int64
	// owner is the number of the user and the group.
	owner int
	// source is a file with the content; without one it is text.
	source, text string
}

// writeTar writes entries sorted by their paths, all with the same time.
func writeTar(w io.Writer, at time.Time, entries []entry) error {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	archive := tar.NewWriter(w)
	for _, e := range entries {
		if err := e.write(archive, at); err != nil {
			return fmt.Errorf("adding %s: %w", e.path, err)
		}
	}
	return archive.Close()
}

func (e entry) write(archive *tar.Writer, at time.Time) error {
	header := tar.Header{
		Typeflag: tar.TypeReg, Name: e.path, Mode: e.mode, Uid: e.owner, Gid: e.owner, ModTime: at, Size: int64(len(e.text)), Format: tar.FormatPAX,
	}
	var content io.Reader = strings.NewReader(e.text)
	if strings.HasSuffix(e.path, "/") {
		header.Typeflag = tar.TypeDir
	}
	if e.source != "" {
		file, err := os.Open(e.source)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // it was only read
		info, err := file.Stat()
		if err != nil {
			return err
		}
		header.Size, content = info.Size(), file
	}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}

// writeArchive writes the archive of a target: a folder with the program and what an operator reads and installs.
func (r *release) writeArchive(t target) error {
	folder := r.name(t, "")
	entries := []entry{{path: folder + "/caddy", mode: 0o755, source: t.binary}}
	patterns := operatorFiles
	if t.os == "linux" {
		patterns = append(slices.Clone(patterns), "packaging/systemd/*")
	}
	paths, err := r.find(patterns)
	if err != nil {
		return err
	}
	for _, path := range paths {
		entries = append(entries, entry{path: folder + "/" + path, mode: 0o644, source: filepath.Join(r.root, path)})
	}
	return r.create(r.name(t, ".tar.gz"), func(w io.Writer) error {
		compressed := gzip.NewWriter(w)
		if err := writeTar(compressed, r.time, entries); err != nil {
			return err
		}
		return compressed.Close()
	})
}

// operatorFiles are the files of the repository that an operator reads or installs, on every system. The pages link to the others.
var operatorFiles = []string{
	"README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "Caddyfile.example", "docs/*.md", "docs/*.png", "docs/decisions/*.md",
	"packaging/grafana/*.json", "packaging/prometheus/caddy-svc.yml", "packaging/compose/*",
}

// find returns the slash-separated paths of the repository's files that match patterns, each of which must match one.
func (r *release) find(patterns []string) (paths []string, err error) {
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(r.root, pattern))
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", pattern, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("the repository has no %s", pattern)
		}
		for _, path := range found {
			within, err := filepath.Rel(r.root, path)
			if err != nil {
				return nil, fmt.Errorf("naming %s: %w", path, err)
			}
			paths = append(paths, filepath.ToSlash(within))
		}
	}
	return paths, nil
}

const (
	// description is the package's synopsis, of at most 80 characters, and below it the rest (Debian policy, 3.4).
	description = `multi-tenant, OpenAI-compatible model gateway with wallets, as a Caddy
A Caddy that serves organizations an interface as OpenAI's, passes their
calls to model vendors, and charges their prepaid wallets. It receives
customer messages from messaging platforms, which its worker answers.
.
The service and its worker are units of systemd; caddy-svc administers
them.`
	homepage = "https://github.com/caddy-svc/caddy-svc"

	// installedByHand is where the units of the repository expect the program, packaged where the Debian package has it.
	installedByHand = "/usr/local/bin/caddy "
	packaged        = "/usr/lib/caddy-svc/caddy "
)

// writeDeb writes the Debian package of a target: the program, the units of packaging/systemd, a command that runs
// `caddy svc` as the services run, and a Caddyfile to begin with.
func (r *release) writeDeb(t target) error {
	if t.os != "linux" {
		return nil
	}
	units, err := os.MkdirTemp("", "svc-units")
	if err != nil {
		return fmt.Errorf("making a folder for the units: %w", err)
	}
	defer os.RemoveAll(units) //nolint:errcheck // it is temporary
	source := func(path string) string { return filepath.Join(r.root, path) }
	file := func(source, destination string, mode os.FileMode, kind string) *files.Content {
		return &files.Content{
			Source: source, Destination: destination, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time},
		}
	}
	contents := files.Contents{
		file(t.binary, "/usr/lib/caddy-svc/caddy", 0o755, files.TypeFile),
		file(source("packaging/deb/caddy-svc"), "/usr/bin/caddy-svc", 0o755, files.TypeFile),
		file(source("packaging/systemd/caddy-svc.sysusers.conf"), "/usr/lib/sysusers.d/caddy-svc.conf", 0o644, files.TypeFile),
		file(source("packaging/Caddyfile"), "/etc/caddy-svc/Caddyfile", 0o644, files.TypeConfig),
		file(source("packaging/deb/env"), "/etc/caddy-svc/env", 0o600, files.TypeConfig),
		file(source("LICENSE"), "/usr/share/doc/caddy-svc/copyright", 0o644, files.TypeFile),
	}
	pages, err := r.find(operatorFiles)
	if err != nil {
		return err
	}
	for _, page := range pages {
		contents = append(contents, file(source(page), "/usr/share/doc/caddy-svc/"+page, 0o644, files.TypeFile))
	}
	for _, name := range []string{"caddy-svc.service", "caddy-svc-worker.service"} {
		text, err := os.ReadFile(source("packaging/systemd/" + name))
		if err != nil {
			return fmt.Errorf("reading a unit: %w", err)
		}
		unit := filepath.Join(units, name)
		text = bytes.ReplaceAll(text, []byte(installedByHand), []byte(packaged))
		if err := os.WriteFile(unit, text, 0o600); err != nil { //nolint:gosec // the names are ours
			return fmt.Errorf("writing a unit: %w", err)
		}
		contents = append(contents, file(unit, "/usr/lib/systemd/system/"+name, 0o644, files.TypeFile))
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "caddy-svc", Arch: t.arch, Platform: t.os, Version: r.version, MTime: r.time, DisableGlobbing: true,
		Section: "net", Priority: "optional", Maintainer: r.maintainer, Description: description, Homepage: homepage, License: "Apache-2.0",
		Overridables: nfpm.Overridables{
			Depends:  []string{"systemd (>= 247)", "ca-certificates"},
			Contents: contents,
			Scripts: nfpm.Scripts{
				PostInstall: source("packaging/deb/postinst"), PreRemove: source("packaging/deb/prerm"), PostRemove: source("packaging/deb/postrm"),
			},
		},
	})
	return r.create(deb.Default.ConventionalFileName(info), func(w io.Writer) error { return deb.Default.Package(info, w) })
}
