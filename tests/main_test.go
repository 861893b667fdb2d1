package tests

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// caddyBinary is the product under test; it stays the same file during the run, whatever is built meanwhile.
var caddyBinary string

// binaries is the folder of the products under test.
var binaries string

// crashBinary is the product with failpoints, which is built when the first test asks for it.
var crashBinary = sync.OnceValues(func() (string, error) {
	return takeBinary("SVC_CADDY_CRASH", "caddy-crash-race", "XCADDY_FAILPOINTS=1")
})

// guestBinary is the product with the modules of tests/guest, which is built when the first test asks for it.
var guestBinary = sync.OnceValues(func() (string, error) {
	return takeBinary("SVC_CADDY_GUEST", "caddy-guest-race", "XCADDY_GUEST=1")
})

// workerBinary is the companion worker that stands beside the product where that was taken from.
var workerBinary = sync.OnceValues(func() (string, error) {
	folder := filepath.Join("..", "dist")
	if product := os.Getenv("SVC_CADDY"); product != "" {
		folder = filepath.Dir(product)
	}
	return copyBinary(filepath.Join(folder, "svc-worker-race"))
})

// toxiproxyBinary is the proxy that plays a bad network, built from the module of the tools unless SVC_TOXIPROXY names it.
var toxiproxyBinary = sync.OnceValues(func() (string, error) {
	if source := os.Getenv("SVC_TOXIPROXY"); source != "" {
		return copyBinary(source)
	}
	target := filepath.Join(binaries, "toxiproxy")
	build := exec.Command("go", "build", "-modfile=tools/go.mod", "-o", target, "github.com/Shopify/toxiproxy/v2/cmd/server")
	build.Dir = ".."
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building toxiproxy: %w", err)
	}
	return target, nil
})

// parallelTests is how many tests may run at a time unless -parallel says otherwise: most of them wait for processes.
const parallelTests = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if !flagGiven("test.parallel") {
		_ = flag.Set("test.parallel", parallelTests)
	}
	var err error
	binaries, err = os.MkdirTemp("", "svc-tests")
	if err == nil {
		caddyBinary, err = takeBinary("SVC_CADDY", "caddy-race")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(
		closingConnections{m},
		// Caddy's tls app keeps one cache for the whole process.
		goleak.IgnoreTopFunction("github.com/caddyserver/certmagic.(*Cache).maintainAssets"),
		goleak.Cleanup(func(code int) {
			_ = os.RemoveAll(binaries)
			os.Exit(code)
		}),
	)
}

// closingConnections ends what idle connections of official clients keep running, and the browser, before leaks are looked
// for.
type closingConnections struct{ *testing.M }

func (m closingConnections) Run() int {
	code := m.M.Run()
	closeOperatorStores()
	http.DefaultClient.CloseIdleConnections()
	chromium.end()
	return code
}

func flagGiven(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}

// takeBinary puts the binary that an environment variable names, or else the one of this name that ./xcaddy.sh builds
// now with the race detector and further options, into the folder binaries.
func takeBinary(variable, name string, options ...string) (string, error) {
	source := os.Getenv(variable)
	if source == "" {
		build := exec.Command("./xcaddy.sh")
		build.Dir = ".."
		build.Env = append(append(os.Environ(), "XCADDY_RACE_DETECTOR=1"), options...)
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return "", fmt.Errorf("building the product with ./xcaddy.sh: %w", err)
		}
		source = filepath.Join("..", "dist", name)
	}
	return copyBinary(source)
}

// copyBinary puts a program into the folder binaries.
func copyBinary(source string) (string, error) {
	own := filepath.Join(binaries, filepath.Base(source))
	if err := os.Link(source, own); err == nil {
		return own, nil
	}
	program, err := os.ReadFile(source)
	if err != nil {
		return "", fmt.Errorf("reading the product: %w", err)
	}
	if err := os.WriteFile(own, program, 0o700); err != nil { //nolint:gosec // it is a program
		return "", fmt.Errorf("copying the product: %w", err)
	}
	return own, nil
}
