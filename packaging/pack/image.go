package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// imageUser is the user of the image, which has no rights: the number that images without a root user commonly have.
	imageUser = 65532
	// imageHome is where the image keeps its state: a volume.
	imageHome = "/var/lib/caddy-svc"
)

// writeImage writes the image of all Linux targets as the archive of an OCI layout, as `podman load`, `skopeo copy` and, where
// Docker keeps images in containerd's store, `docker load` read it.
func (r *release) writeImage(targets []target) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		image, err := r.image(t)
		if err != nil {
			return fmt.Errorf("the image for %s: %w", t.arch, err)
		}
		platform := &v1.Platform{OS: t.os, Architecture: t.arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	folder, err := os.MkdirTemp("", "svc-image")
	if err != nil {
		return fmt.Errorf("making a folder for the image: %w", err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // it is temporary
	images, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("laying out the image: %w", err)
	}
	named := layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "caddy-svc:" + r.version,
	})
	if err := images.AppendIndex(index, named); err != nil {
		return fmt.Errorf("laying out the image: %w", err)
	}
	entries, err := r.filesOf(folder)
	if err != nil {
		return err
	}
	return r.create("caddy-svc_"+r.version+"_image.tar", func(w io.Writer) error { return writeTar(w, r.time, entries) })
}

// filesOf returns the files below a folder as entries of an archive.
func (*release) filesOf(folder string) (entries []entry, err error) {
	err = filepath.WalkDir(folder, func(path string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		within, err := filepath.Rel(folder, path)
		entries = append(entries, entry{path: filepath.ToSlash(within), mode: 0o644, source: path})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the image: %w", err)
	}
	return entries, nil
}

// image is the image of a target: one layer with the program, the certificate authorities that vendors' certificates are
// checked with, and the Caddyfile of a new installation. There is no shell.
func (r *release) image(t target) (v1.Image, error) {
	files := []entry{
		{path: "etc/", mode: 0o755},
		{path: "etc/caddy-svc/", mode: 0o755},
		{path: "etc/caddy-svc/Caddyfile", mode: 0o644, source: filepath.Join(r.root, "packaging/Caddyfile")},
		{path: "etc/group", mode: 0o644, text: fmt.Sprintf("root:x:0:\ncaddy-svc:x:%d:\n", imageUser)},
		{path: "etc/passwd", mode: 0o644, text: "root:x:0:0:root:/:/sbin/nologin\n" +
			fmt.Sprintf("caddy-svc:x:%d:%[1]d::%s:/sbin/nologin\n", imageUser, imageHome)},
		{path: "etc/ssl/", mode: 0o755},
		{path: "etc/ssl/certs/", mode: 0o755},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: authorities()},
		{path: "tmp/", mode: 0o1777},
		{path: "usr/", mode: 0o755},
		{path: "usr/bin/", mode: 0o755},
		{path: "usr/bin/caddy", mode: 0o755, source: t.binary},
		{path: "usr/share/", mode: 0o755},
		{path: "usr/share/doc/", mode: 0o755},
		{path: "usr/share/doc/caddy-svc/", mode: 0o755},
		{path: "usr/share/doc/caddy-svc/LICENSE", mode: 0o644, source: filepath.Join(r.root, "LICENSE")},
		{path: "var/", mode: 0o755},
		{path: "var/lib/", mode: 0o755},
		{path: imageHome[1:] + "/", mode: 0o700, owner: imageUser},
		{path: imageHome[1:] + "/data/", mode: 0o700, owner: imageUser},
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(writeTar(writer, r.time, files)) }() // it ends when the reader is closed
		return reader, nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("making the layer: %w", err)
	}
	at := v1.Time{Time: r.time}
	image, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1),
		mutate.Addendum{Layer: layer, History: v1.History{Created: at, CreatedBy: "caddy-svc " + r.version}})
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture, config.Config = at, t.os, t.arch, r.imageConfig()
	return mutate.ConfigFile(image, config)
}

// imageConfig is how a container of the image runs.
func (r *release) imageConfig() v1.Config {
	return v1.Config{
		User:       fmt.Sprintf("%d:%[1]d", imageUser),
		WorkingDir: imageHome,
		Volumes:    map[string]struct{}{imageHome: {}},
		Env: []string{
			"PATH=/usr/bin", "HOME=" + imageHome, "XDG_DATA_HOME=" + imageHome, "XDG_CONFIG_HOME=" + imageHome,
			"CREDENTIALS_DIRECTORY=/run/secrets", // where container engines mount secrets
		},
		Entrypoint:   []string{"/usr/bin/caddy"},
		Cmd:          []string{"run", "--config", "/etc/caddy-svc/Caddyfile"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		// The first start of a new version may migrate a big table for up to 15 minutes before it is ready.
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/usr/bin/caddy", "svc", "health"}, Interval: 10 * time.Second, Timeout: 5 * time.Second,
			StartPeriod: 16 * time.Minute, Retries: 3,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title": "caddy-svc", "org.opencontainers.image.description": description,
			"org.opencontainers.image.version": r.version, "org.opencontainers.image.source": homepage,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
}

// authorities are the certificate authorities that Mozilla trusts without conditions, in PEM.
func authorities() string {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file can't hold the condition
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // to memory: it can't fail
		}
	}
	return text.String()
}
