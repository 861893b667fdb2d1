package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
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
