package dashboard

import (
	"embed"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
)

//go:embed templates/*.html
var templateFiles embed.FS

// The templates that are no page's own.
const (
	layoutTemplate  = "layout"
	failureTemplate = "failure"
	endedTemplate   = "ended"
)

// parseTemplates makes the templates of all pages: each the layout, with the page's file as its content. They are part of
// the binary, so one that is wrong panics in every test.
func parseTemplates(pages []page) map[string]*template.Template {
	read := func(name string) string {
		text, err := templateFiles.ReadFile("templates/" + name + ".html")
		if err != nil {
			panic(fmt.Sprintf("dashboard: the template %s: %v", name, err))
		}
		return string(text)
	}
	assets := newAssets()
	functions := template.FuncMap{"credits": credits, "count": count, "clock": clock, "asset": assets.address}
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

// microsPerCredit: amounts of the API are millionths of a credit.
const microsPerCredit = 1_000_000

// credits is an amount of micros as a person reads it, exactly: "12.50", "-0.000123". What is no amount stays as it is.
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

// count is a number with what is counted.
func count(number int, one, several string) string {
	if number == 1 {
		return "1 " + one
	}
	return strconv.Itoa(number) + " " + several
}

// clock is a moment of the API (RFC 3339) as a person reads it: "2026-11-21 10:05 UTC".
func clock(moment string) string {
	at, err := time.Parse(time.RFC3339, moment)
	if err != nil {
		return moment
	}
	return at.UTC().Format("2006-01-02 15:04 MST")
}
