package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
)

//go:embed static/*
var staticFiles embed.FS

const assetsPath = root + "/static/"

// assets are the files of the pages, each below the hash of all: they never change.
type assets struct {
	hash  string
	files map[string][]byte
}

func newAssets() *assets {
	a := &assets{files: make(map[string][]byte)}
	sum := sha256.New()
	entries, err := fs.ReadDir(staticFiles, "static")
	if err != nil {
		panic("dashboard: the static files: " + err.Error())
	}
	for _, entry := range entries {
		text, err := staticFiles.ReadFile("static/" + entry.Name())
		if err != nil {
			panic("dashboard: the static files: " + err.Error())
		}
		a.files[entry.Name()] = text
		sum.Write([]byte(entry.Name() + "\x00" + strconv.Itoa(len(text)) + "\x00"))
		sum.Write(text)
	}
	const length = 8
	a.hash = hex.EncodeToString(sum.Sum(nil)[:length])
	return a
}

// address is where the browser finds a file.
func (a *assets) address(name string) string {
	if a.files[name] == nil {
		panic("dashboard: there is no static file " + name)
	}
	return assetsPath + a.hash + "/" + name
}

// ServeHTTP sends a file. Under the hash of another version, while nodes are replaced one by one, it is this one's and isn't kept.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	text := a.files[name]
	if text == nil {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	if r.PathValue("hash") == a.hash {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", mediaType(name))
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(text) // the browser may be gone
	}
}

// mediaType is told by name, for the tables of machines differ.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return mime.TypeByExtension(path.Ext(name))
	}
}
