package caddymodule

import (
	"net"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// Worker tunes the companion worker, which answers the customers (`caddy svc-worker` or the binary svc-worker). A
// server reads it, too, and ignores it.
type Worker struct {
	// How many conversations one worker process answers at the same time, from 1 to 10,000. Default: 32.
	Concurrency *int64 `json:"concurrency,omitempty"`

	// The address where the worker serves probes (`/health/live`, `/health/ready`) and `/metrics`: a host and port, or
	// `unix/PATH`. It belongs on a private address. Default: none.
	Listen string `json:"listen,omitempty"`
}

// DefaultConcurrency is how many conversations a worker answers at the same time.
const DefaultConcurrency int64 = 32

func (w *Worker) faults(fs *config.Faults) {
	if w == nil {
		return
	}
	fs.OptionalBetween("svc.worker.concurrency", w.Concurrency, 1, 10_000)
	if w.Listen != "" && !listenAddress(w.Listen) {
		fs.Addf("svc.worker.listen", "must be one address with its port, e.g. 127.0.0.1:8082, or unix/PATH; placeholders are not filled in")
	}
}

// listenAddress reports whether Caddy can listen on the address, for HTTP over TCP or a Unix socket.
func listenAddress(text string) bool {
	if strings.ContainsAny(text, "{}") {
		return false
	}
	if !strings.Contains(text, "/") {
		if _, _, err := net.SplitHostPort(text); err != nil {
			return false
		}
	}
	address, err := caddy.ParseNetworkAddress(text)
	if err != nil {
		return false
	}
	if address.IsUnixNetwork() {
		return address.Host != ""
	}
	return strings.HasPrefix(address.Network, "tcp") && address.PortRangeSize() == 1
}

// concurrency returns how many conversations are answered at a time; w may be nil.
func (w *Worker) concurrency() int {
	return int(valueOr(valueOr(w, Worker{}).Concurrency, DefaultConcurrency))
}

// readWorker reads `worker { … }`; [App.UnmarshalCaddyfile] has the syntax.
func (a *App) readWorker(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		worker := new(Worker)
		r.NoArguments(path, o)
		r.Block(path, o, []caddyfile.Rule{
			{Word: "concurrency", Read: r.Integer(&worker.Concurrency)},
			{Word: "listen", Read: r.Text(&worker.Listen, "an address with its port, e.g. 127.0.0.1:8082")},
		})
		caddyfile.Set(r, path, o, &a.Worker, worker)
	}
}
