// Package widget serves the web widget: the script that a site embeds, the page in its frame, and the operations of visitors.
//
// Invariants:
//   - Sessions are given to pages of the channel's origins only, and a visitor's token opens that visitor's conversation only.
//   - Messages are bounded per address and per channel, and what answers cost per day is bounded for each channel.
//   - Visitors' streams use no places of the organization's own calls.
//
// It does not make answers: [LiveAnswers] does. The settings of widget channels are changed through package api.
package widget

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// widgetPath is where the widget is mounted.
const widgetPath = "/widget/"

// LiveAnswers answers a text in the inbox while its writer waits, as worker.AnswerNow does.
type LiveAnswers interface {
	AnswerNow(ctx context.Context, orgID, channelID, messageID string, sink gateway.Sink) (inbox.Reply, error)
}

// Deps configures a [Widget]. All fields are required, unless their comments say otherwise.
type Deps struct {
	// DB has the widget channels and the cost of their calls.
	DB *store.DB
	// Inbox has the visitors' conversations.
	Inbox *inbox.Queue
	// Live answers a message while its visitor waits.
	Live LiveAnswers
	// Ring seals the tokens of visitors.
	Ring *vault.Ring
	// Limiter counts the messages of channels and of addresses, under names that no organization has.
	Limiter limit.Limiter
	// Streams counts the concurrent streams of the channels. It is the widget's own: visitors take no place from the
	// organization's calls.
	Streams *v1.Streams
	// Bodies is the budget of the server's answers. Nil means unlimited.
	Bodies *handlers.ByteBudget
	// Now is the clock of tokens and of the days of spending. Nil means [time.Now].
	Now func() time.Time
	// Logger gets failures that visitors don't see; nil discards them.
	Logger *slog.Logger
}

// Widget serves the web widget of the channels of type widget: the script that a site
// embeds, the page in its frame, and the JSON operations that both use, which are registered by [Register].
//
// A channel names its allowed origins. Only their pages get sessions and can show the page in the frame. Browsers enforce that,
// but any other client can claim any origin, so a channel's rate and daily spend are also bounded.
type Widget struct {
	Deps

	server   *endpoint.Server
	bySource *v1.Streams // the open streams of each address and each visitor in a channel
	answers  *answerPlaces
	lists    *dispatch.Turns // the readings of conversations, by organization
}

// New returns a widget with the JSON operations of server.
func New(server *endpoint.Server, deps Deps) *Widget {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	deps.Logger = cmp.Or(deps.Logger, slog.New(slog.DiscardHandler))
	return &Widget{Deps: deps, server: server, bySource: new(v1.Streams), answers: new(answerPlaces), lists: dispatch.NewTurns(listBounds())}
}

// Serve handles one request. The order of the checks is: channel 404, origin 403, token 401, then the request itself.
func (h *Widget) Serve(w http.ResponseWriter, r *http.Request) error {
	r, _ = handlers.EnsureRequestID(w, r)
	rest, ok := strings.CutPrefix(r.URL.Path, widgetPath)
	if !ok {
		return handlers.RouteNotFound(r)
	}
	if name, static := strings.CutPrefix(rest, staticFolder); static {
		return serveStatic(w, r, name)
	}
	channelID, part, _ := strings.Cut(rest, "/")
	if !handlers.WellFormedID(channelID) || part == "" && strings.HasSuffix(rest, "/") {
		return handlers.RouteNotFound(r)
	}
	serve := h.part(r.Method, part)
	if serve == nil {
		return handlers.RouteNotFound(r)
	}
	widget, err := h.DB.Widgets.ByID(r.Context(), channelID)
	if errors.Is(err, store.ErrNotFound) {
		return handlers.NotFound("There is no widget with this id.")
	}
	if err != nil {
		return handlers.Internal(fmt.Errorf("reading widget %s: %w", channelID, err))
	}
	return serve(w, r, &widget)
}

// part returns the handler for a part of a widget's address, nil when there is none.
func (h *Widget) part(method, part string) func(http.ResponseWriter, *http.Request, *store.Widget) error {
	switch method + " " + part {
	case "GET ":
		return h.page
	case "GET widget.js":
		return h.script
	case "POST session", "POST messages", "GET messages":
		return h.operation
	case "OPTIONS session", "OPTIONS messages":
		return h.preflight
	default:
		return nil
	}
}

// visitRequest is a request of a visitor: its channel, origin, address and token.
type visitRequest struct {
	*Widget

	channel *store.Widget
	origin  string
	address string // the client's, of IPv6 its network
	// visit is the token's visit. For a new session it is the earlier visit, or nil.
	visit *visit
}

type visitRequestKey struct{}

// visitFrom returns the request that [Widget.Serve] has checked and passed on, or nil if ctx has none.
func visitFrom(ctx context.Context) *visitRequest {
	v, _ := ctx.Value(visitRequestKey{}).(*visitRequest)
	return v
}

// checkVisit refuses operations wherever else the API is mounted, before anything of their body is read.
func checkVisit(ctx context.Context) error {
	if visitFrom(ctx) == nil {
		return handlers.NotFound("There is nothing at this address for this method.")
	}
	return nil
}

// operation checks origin and token, and passes the request to the API.
func (h *Widget) operation(w http.ResponseWriter, r *http.Request, widget *store.Widget) error {
	v := &visitRequest{Widget: h, channel: widget, origin: originOf(r), address: handlers.ClientAddress(r)}
	begins := strings.HasSuffix(r.URL.Path, "/session")
	if err := v.checkOrigin(w, r, begins); err != nil {
		return err
	}
	if !begins {
		if err := v.checkToken(r); err != nil {
			return handlers.Challenge(w, err)
		}
	}
	return h.server.Serve(w, r.WithContext(context.WithValue(r.Context(), visitRequestKey{}, v)))
}

// checkOrigin refuses pages of other origins, and sets the header by which pages of the channel's origins may read the answer.
// The page in the frame has the service's own origin; it gets its session from the page around it.
func (v *visitRequest) checkOrigin(w http.ResponseWriter, r *http.Request, begins bool) error {
	w.Header().Add("Vary", "Origin")
	switch {
	case allows(v.channel.Settings.Origins, v.origin):
		allowOrigin(w.Header(), v.origin)
		return nil
	case begins && v.origin == "":
		return endpoint.Refusal(errcode.Forbidden, nil, "A session needs the Origin header of a page that may use this widget.")
	case !begins && (v.origin == "" || fromItself(r, v.origin)):
		return nil // the token decides
	default:
		return foreignOrigin()
	}
}

func foreignOrigin() *handlers.Error {
	return endpoint.Refusal(errcode.Forbidden, nil, "This site may not use the widget. Add its origin to the channel's origins.")
}

// allowOrigin lets a page of the origin read the answer and the headers that a client needs.
func allowOrigin(header http.Header, origin string) {
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, Retry-After-Ms")
}

// preflight responds to the CORS preflight of a request with a token or a JSON body.
func (*Widget) preflight(w http.ResponseWriter, r *http.Request, widget *store.Widget) error {
	header := w.Header()
	header.Add("Vary", "Origin")
	origin := originOf(r)
	if !allows(widget.Settings.Origins, origin) {
		return foreignOrigin()
	}
	allowOrigin(header, origin)
	header.Set("Access-Control-Allow-Methods", "GET, POST")
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
	header.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkToken reads the visitor's token. The error is the same for all invalid tokens, except for an expired token, which can be
// exchanged for a new one.
func (v *visitRequest) checkToken(r *http.Request) error {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer || len(r.Header.Values("Authorization")) != 1 {
		return endpoint.Refusal(errcode.Unauthenticated, nil, "The request has no token. POST …/session gives one.")
	}
	opened, err := openVisit(v.Ring, v.channel, strings.TrimSpace(token))
	switch {
	case err != nil:
		return endpoint.Refusal(errcode.Unauthenticated, err, "The token is not valid for this widget.")
	case v.Now().Unix() >= opened.Ends:
		return endpoint.Refusal(errcode.Unauthenticated, nil, "The token has expired. POST …/session gives a new one for it.")
	case !allows(v.channel.Settings.Origins, opened.Origin):
		return foreignOrigin()
	}
	v.visit = &opened
	return nil
}

// The files of the widget: no library, nothing from elsewhere, no inline script or style.
//
//go:embed static
var widgetFiles embed.FS

// staticFolder is where the frame's page has its script and style, below [widgetPath]. No channel has this id.
const staticFolder = "static/"

// widgetFile is an embedded file with its type and the path that has its hash in it, so that it may be kept for ever.
type widgetFile struct {
	text      []byte
	mediaType string
	path      string
}

// embedded are the files by name; the program has them or doesn't build.
var embedded = readWidgetFiles(widgetFiles)

func readWidgetFiles(files fs.FS) map[string]widgetFile {
	all := make(map[string]widgetFile)
	for name, mediaType := range map[string]string{
		"widget.js": "text/javascript; charset=utf-8",
		"frame.js":  "text/javascript; charset=utf-8",
		"frame.css": "text/css; charset=utf-8",
	} {
		text, err := fs.ReadFile(files, "static/"+name)
		if err != nil {
			panic("handlers: " + err.Error())
		}
		hash := sha256.Sum256(text)
		all[name] = widgetFile{text, mediaType, widgetPath + staticFolder + hex.EncodeToString(hash[:8]) + "/" + name}
	}
	return all
}

// framePage is the page in the frame.
var framePage = template.Must(template.ParseFS(widgetFiles, "static/frame.html"))

// page serves the page of the frame. Browsers show it inside pages of the channel's origins only.
func (h *Widget) page(w http.ResponseWriter, _ *http.Request, widget *store.Widget) error {
	var text strings.Builder
	err := framePage.Execute(&text, map[string]string{"Script": embedded["frame.js"].path, "Style": embedded["frame.css"].path})
	if err != nil {
		return handlers.Internal(errors.New("making the widget's page: " + err.Error()))
	}
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors "+cmp.Or(strings.Join(widget.Settings.Origins, " "), "'none'")) // origins are clean
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	handlers.WriteWhole(w, http.StatusOK, "text/html; charset=utf-8", []byte(text.String()))
	return nil
}

// script serves the script that a site embeds.
func (*Widget) script(w http.ResponseWriter, _ *http.Request, _ *store.Widget) error {
	header := w.Header()
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	writeFile(w, embedded["widget.js"], "public, max-age=300")
	return nil
}

// serveStatic serves a file under the path with its hash.
func serveStatic(w http.ResponseWriter, r *http.Request, name string) error {
	file, known := embedded[path.Base(name)]
	if !known || r.Method != http.MethodGet || file.path != r.URL.Path {
		return handlers.RouteNotFound(r)
	}
	writeFile(w, file, "public, max-age=31536000, immutable")
	return nil
}

func writeFile(w http.ResponseWriter, file widgetFile, cache string) {
	header := w.Header()
	header.Set("Content-Type", file.mediaType)
	header.Set("Content-Length", strconv.Itoa(len(file.text)))
	header.Set("Cache-Control", cache)
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	handlers.WriteRest(w, file.text)
}
