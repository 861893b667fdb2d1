package handlers

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// RequestIDHeader is the header with the id of the request, on every answer.
const RequestIDHeader = "X-Request-Id"

type requestIDKey struct{}

// EnsureRequestID gives the request its id: "req_" and a sortable unique id, in the request's context and as the
// response header X-Request-Id, the only place where official clients look for it.
//
// It may be called any number of times and the id stays the same. When the context was lost, as on the way to Caddy's error
// routes, the id is taken from the response header. An inbound X-Request-Id is ignored.
func EnsureRequestID(w http.ResponseWriter, r *http.Request) (*http.Request, string) {
	ctx, id, has := ensureRequestID(r.Context(), w)
	if has {
		return r, id
	}
	return r.WithContext(ctx), id
}

// ensureRequestID returns ctx with the request's id, which it may have already: who puts more into it copies the request once.
func ensureRequestID(ctx context.Context, w http.ResponseWriter) (_ context.Context, id string, has bool) {
	h := w.Header()
	if id = RequestIDFrom(ctx); id != "" {
		h[RequestIDHeader] = []string{id}
		return ctx, id, true
	}
	id = h.Get(RequestIDHeader)
	if !wellFormedRequestID(id) {
		id = store.NewID("req")
		h[RequestIDHeader] = []string{id}
	}
	return context.WithValue(ctx, requestIDKey{}, id), id, false
}

// RequestIDFrom returns the id that [EnsureRequestID] put into the context, or "".
func RequestIDFrom(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// wellFormedRequestID reports whether EnsureRequestID could have made the id: a proxied answer may bring another one in the same
// header.
func wellFormedRequestID(id string) bool {
	rest, ok := strings.CutPrefix(id, "req_")
	return ok && len(rest) >= 26 && len(rest) <= 32 && WellFormedID(rest) && !strings.Contains(rest, "_")
}

// WellFormedID reports whether the text could be the id of a row ([store.NewID]). Other texts must not be looked up: no engine
// accepts NUL.
func WellFormedID(text string) bool {
	const longest = 64
	notOfIDs := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_'
	}
	return text != "" && len(text) <= longest && !strings.ContainsFunc(text, notOfIDs)
}

type clientAddressKey struct{}

// WithClientAddress returns r with the client's address as Caddy determines it: only Caddy's configuration says which proxies'
// headers can be trusted.
func WithClientAddress(r *http.Request, address string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), clientAddressKey{}, address))
}

// customerBits is the prefix length of the IPv6 network that access providers assign to one customer.
const customerBits = 56

// ClientAddress returns the address under which a client without credentials is counted: the address of [WithClientAddress], or else of the
// connection's peer, without a port. For IPv6 it is the network of 56 bits. Empty means that the address is unknown.
func ClientAddress(r *http.Request) string {
	text, ok := r.Context().Value(clientAddressKey{}).(string)
	if !ok || text == "" {
		text = r.RemoteAddr
	}
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return ""
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, err := address.Prefix(customerBits)
	if err != nil {
		return ""
	}
	return network.String()
}

// HeaderIdempotencyKey names the header by which a repeated request gets the first one's answer and charge.
const HeaderIdempotencyKey = "Idempotency-Key"

// HeaderReplayed names the header of an answer that was given before, to a request with the same key.
const HeaderReplayed = "Idempotent-Replayed"

// MaxIdempotencyKey bounds the key in bytes, without quotes.
const MaxIdempotencyKey = 255

// IdempotencyKey reads the request's Idempotency-Key; empty for none. A key is 1 to 255 visible ASCII characters; one
// pair of double quotes around it is not part of it, so that the form of the IETF draft and the bare one are equal.
// Another value, or a second one, is invalid_request.
func IdempotencyKey(h http.Header) (string, error) {
	values := h[HeaderIdempotencyKey]
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", InvalidRequest(HeaderIdempotencyKey, "The header was given more than once.")
	}
	key := values[0]
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	if key == "" || len(key) > MaxIdempotencyKey {
		return "", InvalidRequest(HeaderIdempotencyKey, "The key must have 1 to %d characters.", MaxIdempotencyKey)
	}
	if strings.ContainsFunc(key, func(c rune) bool { return c < '!' || c > '~' }) {
		return "", InvalidRequest(HeaderIdempotencyKey, "The key must consist of visible ASCII characters.")
	}
	return key, nil
}

// MarkReplayed sets [HeaderReplayed] of an answer that repeats that of an earlier request with the same key.
func MarkReplayed(h http.Header) { h.Set(HeaderReplayed, "true") }

// Prefers reports whether an Accept header (RFC 9110, section 12.5.1) prefers a media type to application/json, or likes both
// as much and names the former more exactly. It returns false for an empty header, and when both are named alike: the client
// is then a program.
func Prefers(accept, mediaType string) bool {
	group, _, _ := strings.Cut(mediaType, "/")
	wanted, json := qualities{}, qualities{}
	for element := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := strings.Cut(element, ";")
		media = strings.ToLower(strings.TrimSpace(media))
		q := quality(parameters)
		wanted.note(media, mediaType, group+"/*", q)
		json.note(media, "application/json", "application/*", q)
	}
	return wanted.q > json.q || wanted.q == json.q && wanted.q > 0 && wanted.exactness > json.exactness
}

// qualities is how much a media type is liked, by the most exact range that covers it.
type qualities struct {
	q         int
	exactness int
}

func (s *qualities) note(media, exact, group string, q int) {
	exactness := 0
	switch media {
	case exact:
		exactness = 3
	case group:
		exactness = 2
	case "*/*":
		exactness = 1
	}
	if exactness > s.exactness {
		s.q, s.exactness = q, exactness
	}
}

// quality is the parameter q in thousandths: 1000 if there is none, 0 if it is invalid.
func quality(parameters string) int {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, found := strings.Cut(strings.TrimSpace(parameter), "=")
		if !found || !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return int(q * 1000)
	}
	return 1000
}
