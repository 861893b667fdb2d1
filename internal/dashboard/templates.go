package dashboard

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

//go:embed templates/*.html
var templateFiles embed.FS

// The templates that belong to no page.
const (
	layoutTemplate  = "layout"
	failureTemplate = "failure"
	endedTemplate   = "ended"
)

// parseTemplates parses the template of each page, which is the layout with the page's file as its content. The files are part of the binary,
// so a faulty file panics in every test.
func parseTemplates(pages []page) map[string]*template.Template {
	read := func(name string) string {
		text, err := templateFiles.ReadFile("templates/" + name + ".html")
		if err != nil {
			panic(fmt.Sprintf("dashboard: the template %s: %v", name, err))
		}
		return string(text)
	}
	assets := newAssets()
	functions := template.FuncMap{
		"credits": credits, "count": count, "clock": clock, "asset": assets.address, "text": text, "size": size, "mediaType": mediaTypeName,
		"next":         func(position int64) int64 { return position + 1 },
		"channelState": channelStateLabel, "works": channelWorks,
		"customer": customer, "conversationState": conversationState, "paused": paused, "waits": waits, "attention": attention, "need": need,
		"handover": func(reason *string) string { return handoverReasons[text(reason)] },
		"author":   author, "delivery": func(state string) string { return cmp.Or(deliveryTexts[state], state) }, "undelivered": undelivered,
		"fileLabel": fileLabel, "fileSize": fileSize, "missingFile": missingFile,
		"picture": func(mediaType *string) bool { return strings.HasPrefix(text(mediaType), "image/") },
	}
	shared := template.Must(template.New("parts").Funcs(functions).Option("missingkey=error").Parse(read("parts")))
	template.Must(shared.New(layoutTemplate).Parse(read(layoutTemplate)))
	made := make(map[string]*template.Template)
	names := []string{failureTemplate, endedTemplate}
	for i := range pages {
		names = append(names, pages[i].template)
	}
	for _, name := range names {
		if name == "" || made[name] != nil {
			continue
		}
		made[name] = template.Must(shared.Clone())
		template.Must(made[name].New("content").Parse(read(name)))
	}
	return made
}

// microsPerCredit: the API's amounts are millionths of a credit.
const microsPerCredit = 1_000_000

// credits formats an amount of micros exactly, such as "12.50" and "-0.000123". It returns other texts unchanged.
func credits(micros string) string {
	amount, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return micros
	}
	sign, rest := "", uint64(amount)
	if amount < 0 {
		sign, rest = "-", -uint64(amount)
	}
	fraction := fmt.Sprintf("%06d", rest%microsPerCredit)
	const least = 2
	return sign + strconv.FormatUint(rest/microsPerCredit, 10) + "." + fraction[:least] + strings.TrimRight(fraction[least:], "0")
}

// count formats a number with its noun.
func count(number int64, one, several string) string {
	if number == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(number, 10) + " " + several
}

// text returns the text of an operation's answer that may be null.
func text(nullable *string) string {
	if nullable == nil {
		return ""
	}
	return *nullable
}

// clock formats a time of the API (RFC 3339) for people, such as "2026-11-21 10:05 UTC".
func clock(moment string) string {
	at, err := time.Parse(time.RFC3339, moment)
	if err != nil {
		return moment
	}
	return at.UTC().Format("2006-01-02 15:04 MST")
}

//go:embed static/*
var staticFiles embed.FS

const assetsPath = root + "/static/"

// assets are the static files. Their addresses contain the hash of all files, so the content at an address never changes.
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

// address returns a file's address.
func (a *assets) address(name string) string {
	if a.files[name] == nil {
		panic("dashboard: there is no static file " + name)
	}
	return assetsPath + a.hash + "/" + name
}

// ServeHTTP serves a file. For an address with the hash of another version, which occurs while nodes are replaced one by one, it serves
// this version's file and forbids to cache it.
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

// mediaType returns the media type of a file by its name, because the tables of machines differ.
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
