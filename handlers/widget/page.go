package widget

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

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
