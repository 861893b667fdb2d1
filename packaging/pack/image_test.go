package main

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// TestImage guarantees that the image is well-formed and runs as its configuration says, with nothing of the host but a master
// key: as a user who owns nothing but the volume, with a health check that fails before the server is ready and then succeeds.
func TestImage(t *testing.T) {
	t.Parallel()
	image := readImage(t, findPackage(t, "caddy-svc_*_image.tar"))
	require.NoError(t, validate.Image(image), "digests and sizes are those of the content")
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, runtime.GOARCH, config.Architecture)
	require.Equal(t, "65532:65532", config.Config.User)
	require.Equal(t, "CMD", config.Config.Healthcheck.Test[0])
	require.Contains(t, config.Config.Volumes, config.Config.WorkingDir)

	root := t.TempDir()
	files := mutate.Extract(image)
	defer files.Close()
	unpack(t, files, root)
	require.Equal(t, imageUser, userOf(t, root, "caddy-svc"))
	requireAuthorities(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if os.Getenv("SVC_DIST") != "" {
		program, err := os.ReadFile(filepath.Join(root, "usr/bin/caddy"))
		require.NoError(t, err)
		require.False(t, bytes.Contains(program, []byte("/ld-linux")), "the program of a release is static")
	}

	key := make([]byte, 32)
	_, _ = rand.Read(key)
	installed := &installation{
		t: t, root: root, program: config.Config.Entrypoint[0], dir: config.Config.WorkingDir, user: imageUser, env: config.Config.Env,
	}
	installed.prepare([]byte(base64.StdEncoding.EncodeToString(key)))
	server := append(config.Config.Entrypoint, config.Config.Cmd...)
	worker := append([]string{config.Config.Entrypoint[0], "svc-worker"}, config.Config.Cmd[1:]...)
	installed.requireServes(server, worker, config.Config.Healthcheck.Test[1:])
}

// readImage returns the image for this machine's processor out of the archive of a layout.
func readImage(t *testing.T, path string) v1.Image {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	folder := t.TempDir()
	unpack(t, file, folder)
	named, err := layout.ImageIndexFromPath(folder)
	require.NoError(t, err)
	names, err := named.IndexManifest()
	require.NoError(t, err)
	require.Len(t, names.Manifests, 1)
	require.True(t, strings.HasPrefix(names.Manifests[0].Annotations["io.containerd.image.name"], "caddy-svc:"))
	index, err := named.ImageIndex(names.Manifests[0].Digest)
	require.NoError(t, err)
	images, err := index.IndexManifest()
	require.NoError(t, err)
	for _, found := range images.Manifests {
		if found.Platform.Architecture == runtime.GOARCH {
			image, err := index.Image(found.Digest)
			require.NoError(t, err)
			return image
		}
	}
	require.Fail(t, "there is no image for this processor")
	return nil
}

// requireAuthorities requires a file of certificate authorities.
func requireAuthorities(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	count := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		_, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		count++
	}
	require.Greater(t, count, 80)
}
