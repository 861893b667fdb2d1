// Command pack makes the packages of a release from built binaries and the files of the repository: an archive and a CycloneDX
// SBOM for each target, a Debian package and an image for Linux, and their checksums. The same input makes the same bytes:
// every file has the time of the commit, and owners and modes don't depend on the machine. scripts/dist.sh builds the binaries
// and runs it.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// release is what every package is made from.
type release struct {
	// version is a semantic version without the v.
	version string
	// maintainer is the name and address of the Debian package's maintainer, as in an e-mail.
	maintainer string
	// time is the commit's.
	time time.Time
	// root is the folder of the repository, out the one that the packages are written to.
	root, out string
}

// target is a system that the product was built for. Its binary is a file named caddy-OS-ARCH.
type target struct{ os, arch, binary string }

func main() {
	var r release
	var binaries string
	var seconds int64
	flag.StringVar(&r.version, "version", "", "the semantic `version`, with or without v")
	flag.Int64Var(&seconds, "time", 0, "the commit's time, in `seconds` since 1970")
	flag.StringVar(&r.maintainer, "maintainer", "", "`name <address>` of the Debian package's maintainer")
	flag.StringVar(&r.root, "root", ".", "the `folder` of the repository")
	flag.StringVar(&binaries, "binaries", "", "the `folder` with the binaries caddy-OS-ARCH")
	flag.StringVar(&r.out, "out", "", "the `folder` to write to, which must be empty or not there yet")
	flag.Parse()
	r.version, r.time = strings.TrimPrefix(r.version, "v"), time.Unix(seconds, 0).UTC()
	targets, err := findTargets(binaries)
	if err == nil {
		// Packages are compressed one after the other in little memory: collecting garbage often would only cost time.
		debug.SetGCPercent(400)
		err = r.write(targets)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// findTargets returns the targets whose binaries are in a folder, sorted.
func findTargets(folder string) (targets []target, err error) {
	paths, err := filepath.Glob(filepath.Join(folder, "caddy-*-*"))
	if err != nil {
		return nil, fmt.Errorf("looking for binaries: %w", err)
	}
	slices.Sort(paths)
	for _, path := range paths {
		parts := strings.Split(filepath.Base(path), "-")
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s is not named caddy-OS-ARCH", path)
		}
		targets = append(targets, target{os: parts[1], arch: parts[2], binary: path})
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("there is no binary caddy-OS-ARCH in %q", folder)
	}
	return targets, nil
}

// write writes all packages and the checksums.
func (r *release) write(targets []target) error {
	if r.version == "" || r.maintainer == "" || r.time.Unix() <= 0 {
		return errors.New("-version, -maintainer and -time are needed")
	}
	if err := os.MkdirAll(r.out, 0o750); err != nil {
		return fmt.Errorf("making the folder of the packages: %w", err)
	}
	present, err := os.ReadDir(r.out)
	if err != nil {
		return fmt.Errorf("reading the folder of the packages: %w", err)
	}
	if len(present) > 0 {
		return fmt.Errorf("%s is not empty", r.out)
	}
	for _, t := range targets {
		if err := errors.Join(r.writeArchive(t), r.writeSBOM(t), r.writeDeb(t)); err != nil {
			return fmt.Errorf("%s on %s: %w", t.os, t.arch, err)
		}
	}
	if err := r.writeImage(targets); err != nil {
		return err
	}
	return r.writeChecksums()
}

// name is the name of a file of the release for a target.
func (r *release) name(t target, ending string) string {
	return fmt.Sprintf("caddy-svc_%s_%s_%s%s", r.version, t.os, t.arch, ending)
}

// create writes a file of the release.
func (r *release) create(name string, write func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	err = write(file)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// writeChecksums writes the file SHA256SUMS for `sha256sum --check`.
func (r *release) writeChecksums() error {
	written, err := os.ReadDir(r.out)
	if err != nil {
		return fmt.Errorf("reading the packages: %w", err)
	}
	return r.create("SHA256SUMS", func(w io.Writer) error {
		for _, entry := range written {
			sum, err := sha256OfFile(filepath.Join(r.out, entry.Name()))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s  %s\n", sum, entry.Name()); err != nil {
				return err
			}
		}
		return nil
	})
}

// sha256OfFile is the SHA-256 of a file in hexadecimal digits.
func sha256OfFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hashing: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("hashing %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
