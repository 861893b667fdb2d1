package openapi

import (
	"bytes"
	_ "embed" // for the page's template, style and script
	"fmt"
	"html/template"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed page.html
var docsTemplate string

//go:embed page.css
var docsStyle []byte

//go:embed page.js
var docsScript []byte

type docsPage struct {
	Title, Summary, Introduction string
	BaseURL, Style, Script       string
	Groups                       []docsGroup
	Schemes                      []docsScheme
	Schemas                      []docsSchema
	Codes                        []docsCode
	// First is the shell command of the first operation that calls a model. It is empty if there is none.
	First string
}

type docsGroup struct {
	ID, Name, Description string
	Operations            []docsOperation
}

type docsOperation struct {
	ID, Method, Path, Summary, Description string
	// Access lists the accepted credentials.
	Access     []docsAccess
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

// docsAccess is one kind of credentials: a security scheme and the scope or role that it needs.
type docsAccess struct{ Scheme, Needs string }

type docsResponse struct {
	Status, Description string
	Codes               []string
	Media               []docsMedia
}

type docsMedia struct {
	MediaType string
	Type      docsType
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

type docsCode struct {
	codeDoc

	Status int
}

// firstOperation is the operation that a newcomer tries first.
const firstOperation = "createChatCompletion"

// renderDocsPage renders the page of the description. style and script are the paths of the files that it loads.
func renderDocsPage(document *huma.OpenAPI, codes []codeDoc, style, script string) ([]byte, error) {
	page := docsPage{
		Title: document.Info.Title, Summary: headline, Introduction: document.Info.Description,
		BaseURL: document.Servers[0].URL, Style: style, Script: script,
		Schemes: docsSchemes(document), Schemas: docsSchemas(document),
	}
	for _, code := range codes {
		page.Codes = append(page.Codes, docsCode{codeDoc: code, Status: code.Code.Status()})
	}
	groups := make(map[string]*docsGroup, len(document.Tags))
	for _, operation := range operationsOf(document) {
		name := operation.Tags[0]
		if groups[name] == nil {
			groups[name] = &docsGroup{}
		}
		shown := showDocsOperation(document, operation)
		groups[name].Operations = append(groups[name].Operations, shown)
		if shown.ID == firstOperation && len(shown.Examples) > 0 {
			page.First = shown.Examples[len(shown.Examples)-1].Command // that of the answer in one piece
		}
	}
	for _, tag := range document.Tags {
		if group := groups[tag.Name]; group != nil {
			group.ID = "group-" + strings.ReplaceAll(strings.ToLower(tag.Name), " ", "-")
			group.Name, group.Description = tag.Name, tag.Description
			page.Groups = append(page.Groups, *group)
		}
	}
	parsed, err := template.New("docs").Funcs(template.FuncMap{"text": withCode, "paragraphs": paragraphs}).Parse(docsTemplate)
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
