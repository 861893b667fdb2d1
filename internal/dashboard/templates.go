package dashboard

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"strconv"
	"strings"

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
func parseTemplates(pages []page, assets *ui.Assets) map[string]*template.Template {
	functions := template.FuncMap{
		"count": count, "text": text, "size": size, "mediaType": mediaTypeName,
		"next":         func(position int64) int64 { return position + 1 },
		"channelState": channelStateLabel, "works": channelWorks,
		"customer": customer, "conversationState": conversationState, "paused": paused, "waits": waits, "attention": attention, "need": need,
		"handover": func(reason *string) string { return handoverReasons[text(reason)] },
		"author":   author, "delivery": func(state string) string { return cmp.Or(deliveryTexts[state], state) }, "undelivered": undelivered,
		"fileLabel": fileLabel, "fileSize": fileSize, "missingFile": missingFile,
		"picture": func(mediaType *string) bool { return strings.HasPrefix(text(mediaType), "image/") },
	}
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

//go:embed static
var staticFiles embed.FS
