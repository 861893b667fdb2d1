// Package openapi serves the interface description: OpenAPI 3.1 as JSON and YAML, and a page made of it.
//
// The operations of the endpoint groups are described by huma from the types that they read and write; the other routes
// (/v1, webhooks, the widget's files, the description itself) are described here. A route without a description, a
// description without a route, and an error code without an entry in docs/failure-modes.md are errors of [New].
//
// It is built once per configuration and is not used by other handlers.
package openapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the page's template, style and script
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/yaml"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

// Config holds the facts of the interface description that don't follow from the routes.
type Config struct {
	// BaseURL is the service's own address, without a trailing slash.
	BaseURL string
	// SignatureHeaders has the header with the signature, by the name of each platform for which the operator changed it.
	SignatureHeaders map[string]string
	// Catalog has the platforms with webhooks to describe. Nil means none.
	Catalog *messaging.Catalog
	// FailureModes is docs/failure-modes.md.
	FailureModes string
	// Version is the program's; empty means a build without one.
	Version string
	// Operator: the description is of the operator's interface, under /operator/docs.
	Operator bool
}

// path returns the path of the description.
func (c *Config) path() string {
	if c.Operator {
		return operatorPath + docsPath
	}
	return docsPath
}

// operatorPath is the beginning of all paths of the operator's interface.
const operatorPath = "/operator"

// IsOperatorDocs reports whether a path is one of the description of the operator's interface.
func IsOperatorDocs(path string) bool { return strings.HasPrefix(path, operatorPath+docsPath) }

// Docs serves the interface description as OpenAPI 3.1 in JSON and YAML, and as a page, which loads only its own style and script.
// The script lets a reader try a call with a key, and is not needed for anything else. Everything is rendered once. It is safe for
// concurrent use.
type Docs struct {
	page, json, yaml *rendition
	path             string
	// assets are the files that the page loads, by paths with the content's hash, so that clients may cache them
	// without end.
	assets map[string]*rendition
}

// rendition is one answer with its validator.
type rendition struct {
	mediaType, etag, cache string
	text                   []byte
}

// URL returns the address of the page of the service with this base URL. With # and a code it leads to the text of an error.
func URL(baseURL string) string { return baseURL + docsPath }

// New describes the routes of server, which may already be serving, and the routes with hand-written handlers. The
// error names routes without a description and error codes without an entry in docs/failure-modes.md.
func New(server *endpoint.Server, config Config) (*Docs, error) {
	if config.Catalog == nil {
		config.Catalog, _ = messaging.NewCatalog(nil) // the widget's description has no fault
	}
	codes, err := readCodeDocs(config.FailureModes)
	if err != nil {
		return nil, fmt.Errorf("reading failure-modes.md: %w", err)
	}
	document, err := describe(server, config, codes)
	if err != nil {
		return nil, fmt.Errorf("describing the interface: %w", err)
	}
	text, err := json.Marshal(document, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("writing the description: %w", err)
	}
	var yamlText bytes.Buffer
	if err := yaml.Convert(&yamlText, bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("writing the description as YAML: %w", err)
	}
	const checked, forEver = "no-cache", "public, max-age=31536000, immutable"
	path := config.path()
	style, script := path+"/"+hashOf(docsStyle)+".css", path+"/"+hashOf(docsScript)+".js"
	page, err := renderDocsPage(document, codes, path, style, script)
	if err != nil {
		return nil, err
	}
	return &Docs{
		path: path,
		page: newRendition("text/html; charset=utf-8", checked, page),
		json: newRendition("application/json", checked, text),
		yaml: newRendition("application/yaml", checked, yamlText.Bytes()),
		assets: map[string]*rendition{
			style:  newRendition("text/css; charset=utf-8", forEver, docsStyle),
			script: newRendition("text/javascript; charset=utf-8", forEver, docsScript),
		},
	}, nil
}

func hashOf(text []byte) string {
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:8])
}

func newRendition(mediaType, cache string, text []byte) *rendition {
	return &rendition{mediaType: mediaType, etag: `"` + hashOf(text) + `"`, cache: cache, text: text}
}

// Serve responds to GET /docs, /docs/openapi.json, /docs/openapi.yaml and the page's style and script. Other paths and methods
// are not_found.
func (d *Docs) Serve(w http.ResponseWriter, r *http.Request) error {
	r, _ = handlers.EnsureRequestID(w, r)
	answer := d.find(w, r)
	if answer == nil || r.Method != http.MethodGet {
		return handlers.RouteNotFound(r)
	}
	header := w.Header()
	header.Set("Etag", answer.etag)
	header.Set("Cache-Control", answer.cache)
	header.Set("X-Content-Type-Options", "nosniff")
	if strings.Contains(r.Header.Get("If-None-Match"), answer.etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", answer.mediaType)
	w.WriteHeader(http.StatusOK)
	handlers.WriteRest(w, answer.text)
	return nil
}

// docsPolicy lets the page load its style and its script, and call this server. No form is sent but by the script, so a key never
// gets into an address.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// find returns the rendition for the path and the Accept header, or nil if there is none.
func (d *Docs) find(w http.ResponseWriter, r *http.Request) *rendition {
	switch r.URL.Path {
	case d.path:
		w.Header().Set("Vary", "Accept")
		if !handlers.Prefers(strings.Join(r.Header.Values("Accept"), ","), "text/html") {
			return d.json
		}
		w.Header().Set("Content-Security-Policy", docsPolicy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		return d.page
	case d.path + jsonSuffix:
		return d.json
	case d.path + yamlSuffix:
		return d.yaml
	default:
		return d.assets[r.URL.Path]
	}
}

//go:embed page.html
var docsTemplate string

//go:embed page.css
var docsStyle []byte

//go:embed page.js
var docsScript []byte

type docsPage struct {
	Title, Summary, Introduction string
	BaseURL, Style, Script       string
	// Path is the path of the page.
	Path    string
	Groups  []docsGroup
	Schemes []docsScheme
	Schemas []docsSchema
	Codes   []codeDoc
	// First is the shell command of the first operation that calls a model. It is empty if there is none.
	First string
}

type docsGroup struct {
	ID, Name, Description string
	Operations            []docsOperation
}

type docsOperation struct {
	*huma.Operation

	Parameters []docsField
	// Body is the schema of the request, empty for none.
	Body      docsType
	Responses []docsResponse
	Examples  []docsExample
	// Try is the form to call it with a key, nil where a key doesn't do.
	Try *docsTry
}

// docsTry are the fields of a call: the parameters, and the body, empty for none.
type docsTry struct {
	Fields []docsTryField
	Body   string
}

type docsTryField struct {
	Name, In, Example string
	Required          bool
	// Options are the only values, nil where any text goes.
	Options []string
}

type docsResponse struct {
	Status, Description string
	Codes               []string
	Content             map[string]*huma.MediaType
}

// docsExample is a request that can be pasted into a shell, and its answer.
type docsExample struct{ Name, Command, Status, Answer string }

type docsScheme struct{ ID, Where, Description string }

type docsSchema struct {
	Name        string
	Description string
	Fields      []docsField
}

type docsField struct {
	Name, In, Description string
	Required              bool
	Type                  docsType
	// Rules are the bounds of the value in words.
	Rules []string
}

// docsType is the kind of a value; Ref is the schema that it links to.
type docsType struct {
	Text, Ref string
	// List: an array of it.
	List bool
}

// firstOperation is the operation that a newcomer tries first.
const firstOperation = "createChatCompletion"

// renderDocsPage renders the page of the description. path is the page's, style and script are the paths of the files that it loads.
func renderDocsPage(document *huma.OpenAPI, codes []codeDoc, path, style, script string) ([]byte, error) {
	page := docsPage{
		Title: document.Info.Title, Summary: fmt.Sprint(document.Info.Extensions[summaryKey]), Introduction: document.Info.Description,
		Path: path, BaseURL: document.Servers[0].URL, Style: style, Script: script,
		Schemes: docsSchemes(document), Schemas: docsSchemas(document), Codes: codes,
	}
	groups := make(map[string][]docsOperation, len(document.Tags))
	for _, operation := range operationsOf(document) {
		name, shown := operation.Tags[0], showDocsOperation(document, operation)
		groups[name] = append(groups[name], shown)
		if shown.OperationID == firstOperation && len(shown.Examples) > 0 {
			page.First = shown.Examples[len(shown.Examples)-1].Command // that of the answer in one piece
		}
	}
	for _, tag := range document.Tags {
		if operations := groups[tag.Name]; operations != nil {
			id := "group-" + strings.ReplaceAll(strings.ToLower(tag.Name), " ", "-")
			page.Groups = append(page.Groups, docsGroup{id, tag.Name, tag.Description, operations})
		}
	}
	parsed, err := template.New("docs").Funcs(template.FuncMap{"text": withCode, "paragraphs": paragraphs, "typeOf": docsTypeOf}).Parse(docsTemplate)
	if err != nil {
		return nil, fmt.Errorf("reading the template of the page: %w", err)
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, page); err != nil {
		return nil, fmt.Errorf("rendering the page: %w", err)
	}
	return text.Bytes(), nil
}

// withCode is text with its code spans in backticks as HTML.
func withCode(text string) template.HTML {
	var out strings.Builder
	for i, part := range strings.Split(text, "`") {
		escaped := template.HTMLEscapeString(part)
		if i%2 == 1 {
			escaped = "<code>" + escaped + "</code>"
		}
		out.WriteString(escaped)
	}
	return template.HTML(out.String()) //nolint:gosec // everything in it was escaped
}

func paragraphs(text string) []string { return strings.Split(text, "\n\n") }
