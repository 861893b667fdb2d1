package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

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
