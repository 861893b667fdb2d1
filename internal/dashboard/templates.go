package dashboard

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

//go:embed templates/*.html
var templateFiles embed.FS

// The templates that belong to no page.
const (
	failureTemplate = "failure"
	endedTemplate   = "ended"
)

// parseTemplates parses the template of each page, which is the layout with the page's file as its content. The files are part of the binary,
// so a faulty file panics in every test.
func parseTemplates(pages []page, assets *ui.Assets, say *ui.Printer) map[string]*template.Template {
	functions := say.Functions()
	maps.Copy(functions, template.FuncMap{
		"text": text, "next": func(position int64) int64 { return position + 1 },
		"word": func(word any) string {
			text := fmt.Sprint(word)
			if slices.Contains(names, ui.Text(text)) {
				return say.T(ui.Text(text))
			}
			return text
		},
		"size": func(bytes int64) string { return size(say, bytes) }, "mediaType": mediaTypeName,
		"channelState": channelStateLabel, "works": channelWorks,
		"customer": customer, "conversationState": conversationState, "paused": paused, "waits": waits, "attention": attention,
		"need":     func(c *api.ConversationObject) string { return need(say, c) },
		"handover": func(reason *string) ui.Text { return handoverReasons[text(reason)] },
		"author":   author, "undelivered": undelivered,
		"delivery":    func(state string) ui.Text { return cmp.Or(deliveryTexts[state], ui.Text(state)) },
		"fileLabel":   func(f *api.FileObject) string { return fileLabel(say, f) },
		"fileSize":    func(bytes *int64) string { return fileSize(say, bytes) },
		"missingFile": func(f *api.FileObject) string { return missingFile(say, f) },
		"picture":     func(mediaType *string) bool { return strings.HasPrefix(text(mediaType), "image/") },
	})
	read := func(name string) string {
		text, err := templateFiles.ReadFile("templates/" + name + ".html")
		if err != nil {
			panic(fmt.Sprintf("dashboard: the template %s: %v", name, err))
		}
		return string(text)
	}
	shared := template.Must(ui.Parse(assets, functions).New("parts").Parse(read("parts")))
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

// text returns the text of an operation's answer that may be null.
func text(nullable *string) string {
	if nullable == nil {
		return ""
	}
	return *nullable
}

//go:embed static
var staticFiles embed.FS
