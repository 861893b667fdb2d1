// Package ui is the design system of the pages for people: tokens, style, font, icons, the frame of a page, and the parts of which pages are
// made. The dashboard of organizations and the console of the operator use it, so that both look and behave alike.
//
// # How pages are made of it
//
//	assets := ui.NewAssets("/console/static/", ownFiles)       // style, script, font and icons, with the package's own files
//	parts := ui.Parse(assets, functions)                        // the templates below
//	template.Must(parts.New(ui.PageTemplate("keys")).Parse(text))
//	ui.WritePage(w, parts, "keys", &struct{ ui.Shell; Data any }{shell, data})
//
// [WritePage] writes the frame around a page. The h1 is the frame's; a page begins with h2. All pages are in one set of templates, because a copy
// of the parts for each page would be most of an idle process's memory. Templates:
//
//	{{template "icon" "inbox"}}        a symbol of static/icons.svg; the words beside it say the same
//	{{template "form" .}}              a [Form]; "field" one [Field]
//	{{template "figures" .}}           []Figure: cards with a number and its comparison
//	{{template "plot" .}}              a [Drawing], from [Plot.Draw]: SVG with a sentence and its table
//	{{template "spark" .}}             a [Spark]
//	{{template "moment" .}}            an RFC 3339 time
//	{{template "copy" "#id"}}          a button that copies the text of an element
//	{{template "pager" .}}             anything with First and Next, addresses or empty
//
// Parts without a template are classes: section.card (h2 inside; .card-head with a link on the right), .split (a wide and a narrow column),
// .grid (equal columns), div.table around a table (td.number), .badge with good, warn, bad, accent or assist, .notice, .alert, .warning,
// .info, .empty, .button on links, details.menu, ul.choices, .steps, dl.facts, .quiet and .hint.
//
// # Invariants
//
//   - Everything works under default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'
//     ([SecurityPolicy]). There is no style attribute: lengths are attributes of SVG.
//   - Addresses of static files contain the hash of all files, so browsers keep them forever.
//   - A colour never says anything alone; an icon or a word is beside it.
package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// SecurityPolicy is the Content-Security-Policy of all pages. It allows our own files only, and no frame around a page.
const SecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

//go:embed static
var staticFiles embed.FS

//go:embed templates/*.html
var templateFiles embed.FS

// PageTemplate returns the name of a page's template.
func PageTemplate(page string) string { return "page " + page }

// WritePage writes a page in its frame. data is a pointer to a struct that embeds a [Shell]. The place beside the heading has the template
// "PAGE actions" if there is one, otherwise "actions". Its errors are errors of templates or of w.
func WritePage(w io.Writer, parts *template.Template, page string, data any) error {
	actions := page + " actions"
	if parts.Lookup(actions) == nil {
		actions = "actions"
	}
	for _, name := range []string{"shell", actions, "shell-main", PageTemplate(page), "shell-end"} {
		if err := parts.ExecuteTemplate(w, name, data); err != nil {
			return fmt.Errorf("writing the page %s: %w", page, err)
		}
	}
	return nil
}

// Parse returns the templates of this package with functions, such as the functions of a [text.Printer]; without them texts are English. They are
// part of the binary, so a faulty one panics in every test.
func Parse(assets *Assets, functions template.FuncMap) *template.Template {
	own := text.New(text.English, "").Functions()
	own["asset"] = assets.Address
	t := template.New("ui").Funcs(own).Funcs(functions).Option("missingkey=error")
	return template.Must(t.ParseFS(templateFiles, "templates/*.html"))
}

// Assets are static files, with their addresses below a path. The addresses contain the hash of all files, so the content at an address never
// changes.
type Assets struct {
	root, hash string
	files      map[string][]byte
}

// NewAssets returns the files of this package and the files of each folder in more. root is their path, which ends in a slash. The files are
// part of the binary, so a missing folder panics in every test.
func NewAssets(root string, more ...fs.FS) *Assets {
	a := &Assets{root: root, files: make(map[string][]byte)}
	sum := sha256.New()
	for _, files := range append([]fs.FS{staticFiles}, more...) {
		err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(files, name)
			a.files[path.Base(name)] = text
			sum.Write([]byte(name + "\x00" + strconv.Itoa(len(text)) + "\x00"))
			sum.Write(text)
			return err
		})
		if err != nil {
			panic("ui: the static files: " + err.Error())
		}
	}
	const length = 8
	a.hash = hex.EncodeToString(sum.Sum(nil)[:length])
	return a
}

// Address returns a file's address.
func (a *Assets) Address(name string) string {
	if a.files[name] == nil {
		panic("ui: there is no static file " + name)
	}
	return a.root + a.hash + "/" + name
}

// Register adds the route of the files.
func (a *Assets) Register(mux *http.ServeMux) { mux.Handle("GET "+a.root+"{hash}/{file}", a) }

// ServeHTTP serves a file. For an address with the hash of another version, which occurs while nodes are replaced one by one, it serves
// this version's file and forbids to cache it.
func (a *Assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	h.Set("Content-Type", mediaTypes[path.Ext(name)])
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(text) // the browser may be gone
	}
}

// mediaTypes are the media types of static files by the end of their names, because the tables of machines differ.
var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".woff2": "font/woff2",
}

// Link is a link of a frame: a tab, a step of the trail.
type Link struct{ Path, Label string }

// Section is an entry of the navigation.
type Section struct {
	Link

	// Icon is a symbol of static/icons.svg.
	Icon string
	// Tabs are the pages of the section, if it has more than one.
	Tabs []Link
	// Count is shown beside the label, empty for none. CountID is its id. CountLabel is its name for screen readers, and makes it red.
	Count, CountID, CountLabel string
	// Bar is the label in the bar of phones, which has room for four entries. Empty means that the entry stands behind "More".
	Bar string
}

// Shell is the frame of a page.
type Shell struct {
	// Lang is the page's language. Empty means English.
	Lang string
	// Scheme is "light" or "dark". Empty means the system's.
	Scheme string
	// Title is the page's heading. Product follows it in the browser's tab.
	Title, Product string
	// Operator: the page is the console's, with a dark sidebar and a badge.
	Operator bool
	// Home is the address of the first page, Owner and Note the two lines beside the mark: an organization and its environment.
	Home, Owner, Note string
	// Sections are the entries of the navigation for the person, without any on public pages. Section is the path of the page's entry, or that
	// of its tab.
	Sections []Section
	Section  string
	// Trail leads from the section to the page.
	Trail []Link
	// Help is the address of the interface description, empty for none.
	Help string
	// Person is the signed-in person with a page at PersonPath, and Role a second word about them. SignOut is the form.
	Person, PersonPath, Role string
	SignOut                  Form
	// Scripts are the addresses of the scripts of the page alone.
	Scripts []string
	// Notice reports a success, Alert a failure.
	Notice, Alert string
}

// Tabs returns the tabs of the page's section. It returns nil if there are none.
func (s *Shell) Tabs() []Link {
	for i := range s.Sections {
		if s.Sections[i].Has(s.Section) && len(s.Sections[i].Tabs) > 1 {
			return s.Sections[i].Tabs
		}
	}
	return nil
}

// Has reports whether the page at path belongs to the section.
func (s Section) Has(path string) bool {
	return s.Path == path || slices.ContainsFunc(s.Tabs, func(tab Link) bool { return tab.Path == path })
}

// Initials returns the first letter of a person's name or address.
func (s *Shell) Initials() string {
	for _, r := range s.Person {
		return strings.ToUpper(string(r))
	}
	return ""
}

// Figure is a card with a number.
type Figure struct {
	// ID is the id of the number, empty for none.
	ID string
	// Label is the name of Value. Icon is a symbol, empty for none. Path leads to the counted things.
	Label, Value, Icon, Path string
	// Micros is the exact amount of a Value that is money.
	Micros string
	// Note compares it. Change is the part of the comparison that is good or bad, by Trend: "good", "warn" or "bad".
	Note, Change, Trend string
	// Spark shows the last values. It needs no Note.
	Spark *Spark
}

// Pager has the addresses of the first and the next page of a list, empty for none.
type Pager struct{ First, Next string }

// NewPager returns the pager of a page at path with this query. Other parameters than the cursor, the notice and the fragment stay.
func NewPager(path string, query url.Values, nextCursor *string) (p Pager) {
	query.Del("done")
	query.Del("fragment")
	if query.Has("cursor") {
		query.Del("cursor")
		p.First = path + strings.TrimSuffix("?"+query.Encode(), "?")
	}
	if nextCursor != nil {
		query.Set("cursor", *nextCursor)
		p.Next = path + "?" + query.Encode()
	}
	return p
}
