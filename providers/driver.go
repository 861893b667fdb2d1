package providers

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
)

// Driver makes a vendor's protocol available. It has no state; its methods may be called at any time. A Caddy module of the
// namespace svc.providers is a driver; the name of its protocol is the end of the module's id.
type Driver interface {
	// Describe returns the description of the protocol, which depends on no configuration. It always returns the same.
	Describe() *Description
	// New returns the adapter for one configured provider. It makes no request.
	New(config *Config) (Provider, error)
}

// Description describes a protocol to the configuration.
type Description struct {
	// Name is the name in the configuration: lower-case letters, digits and underscores.
	Name string
	// Label names the protocol for people, such as "OpenAI".
	Label string
	// ExampleURL is a base URL for messages; it may be empty.
	ExampleURL string
	// Local is set if the protocol needs no network, so that base_url, transport and api_key have no meaning.
	Local bool
	// Endpoints are the base URLs of other vendors with this protocol, by the vendor's name. A configuration that gives such a
	// name as its protocol is refused with the address as a hint.
	Endpoints map[string]string
	// Options are those of the block of `protocol NAME { … }` and, in JSON, of the object `options`. None is a table.
	Options []option.Option
}

// Config configures a [Provider].
type Config struct {
	// BaseURL is the vendor's address, to which a dialect appends its paths (see [Endpoint]). It is the operator's, so
	// private addresses are fine. Empty for local protocols.
	BaseURL string
	// Options are the values of the configured options, with references resolved. Options that were not given are absent.
	Options map[string]string
	// Transport carries the requests; nil is an own HTTP transport without a proxy. It must neither follow
	// redirects nor send a request again by itself, and should report to net/http/httptrace: without that the
	// connect timer is part of the first byte's.
	Transport http.RoundTripper
	// Timeouts are the limits of each call.
	Timeouts Timeouts
	// FinishGrace bounds the wait for the usage and the end of a stream after its finish reason; then the stream counts as complete
	// although the vendor keeps it open. Only more text begins that time anew. Default 2 s.
	FinishGrace time.Duration
	// Logger receives retried connects; nil discards. It must get no key and no text of a prompt or an answer.
	Logger *slog.Logger
}

// Timeouts are the limits of one call to a vendor. Zero fields take the default.
type Timeouts struct {
	// Connect bounds the wait for a usable connection: DNS, TCP, TLS, and a free place in the pool. Default 5 s.
	Connect time.Duration
	// FirstByte bounds a stream's wait from the connection to the first byte of its first event; the vendor's
	// headers and comments don't end it. Default 60 s.
	FirstByte time.Duration
	// Idle bounds a stream's silence after that. Only bytes of events end a silence, comments don't. The time in
	// which Next isn't called doesn't count. Default 60 s.
	Idle time.Duration
	// Response bounds a call without a stream from its start to the end of the answer. Default 300 s.
	Response time.Duration
	// MaxDuration bounds every call from its start to its end. Default 10 min.
	MaxDuration time.Duration
}

func (t Timeouts) orDefaults() Timeouts {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Connect, 5 * time.Second},
		{&t.FirstByte, 60 * time.Second},
		{&t.Idle, 60 * time.Second},
		{&t.Response, 300 * time.Second},
		{&t.MaxDuration, 10 * time.Minute},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return t
}
