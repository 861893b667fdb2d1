package platforms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxTemplates is the greatest number of templates on a page.
	MaxTemplates = 25
	// MaxTemplateBody is the greatest length of a template's text in bytes.
	MaxTemplateBody = 16 << 10
	// MaxTemplateVariables is the greatest number of a template's variables.
	MaxTemplateVariables = 64
	// MaxTemplateValue is the greatest length of a variable's value in characters.
	MaxTemplateValue = 1024
	// maxTemplateWord is the greatest length of names, languages and categories in bytes.
	maxTemplateWord = 512
)

// Templater is a platform with message templates: texts with variables that it has approved, and that may be sent after a channel
// type's window. One or more of its channel types have [TemplateRequired] as AfterWindow; these types have templates.
type Templater interface {
	// Templates returns a page of the channel's templates that may be sent now. The error is an [*Error].
	Templates(ctx context.Context, channel *Channel, query TemplateQuery) (TemplatePage, error)
}

// TemplateQuery selects templates.
type TemplateQuery struct {
	// Name selects the templates with this name, one for each language. Empty means all. The platform may also return other
	// templates.
	Name string
	// After is the Next of the previous page. Empty means the first page. It comes from a client: up to [MaxID] visible ASCII
	// characters.
	After string
}

// TemplatePage is a page of templates.
type TemplatePage struct {
	// Templates has up to [MaxTemplates] elements.
	Templates []Template
	// Next is the platform's name of the next page: up to [MaxID] visible ASCII characters. It is empty on the last page.
	Next string
}

// Template is a text with variables that the platform has approved. Templates with the same name differ in their language.
type Template struct {
	Name, Language string
	// Category is the platform's word for the purpose of the template, such as "utility". It may be empty.
	Category string
	// Body is the text, in which each variable is written as {{name}}.
	Body string
	// Variables are the names of the body's variables, each once, in the order of the values in [Outgoing.Template].
	Variables []string
	// Needs names a part of the template, beside the variables, that can't be given here, such as "a picture in its header". It is
	// empty for a template that can be sent.
	Needs string
}

// FilledTemplate is a template with values, as it is sent to a customer. It is stored as JSON.
type FilledTemplate struct {
	Name     string `json:"name"`
	Language string `json:"language"`
	// Variables are in the order of the [Template].
	Variables []TemplateVariable `json:"variables"`
}

// TemplateVariable is a variable with its value.
type TemplateVariable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

var variablePlace = regexp.MustCompile(`\{\{\s*([A-Za-z0-9_]+)\s*\}\}`)

// VariablesIn returns the names of the variables in a text, each once. They are in the order of their first use, or in numeric
// order if all are numbers.
func VariablesIn(text string) (names []string) {
	numbers := true
	for _, place := range variablePlace.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, place[1]) {
			names = append(names, place[1])
			numbers = numbers && IsDigits(place[1])
		}
	}
	if numbers {
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	}
	return names
}

// Fill returns the template with values for its variables, and its text with these values. A value has 1 to [MaxTemplateValue]
// characters, and no line breaks or other control characters. The error is a [*FieldError]. Its field is the name of a variable,
// or empty if a value has no variable.
func (t *Template) Fill(values map[string]string) (filled FilledTemplate, text string, err error) {
	filled = FilledTemplate{Name: t.Name, Language: t.Language, Variables: []TemplateVariable{}}
	for _, name := range t.Variables {
		value, given := values[name]
		if problem := valueProblem(value, given); problem != "" {
			return filled, "", &FieldError{Field: name, Problem: problem}
		}
		filled.Variables = append(filled.Variables, TemplateVariable{name, value})
	}
	if len(values) > len(t.Variables) {
		has := cmp.Or(strings.Join(t.Variables, ", "), "none")
		return filled, "", &FieldError{Problem: "has one that the template doesn't have, which has " + has}
	}
	return filled, FillIn(t.Body, values), nil
}

// FillIn returns a text with the values in place of its variables. Variables without a value remain as they are.
func FillIn(text string, values map[string]string) string {
	return variablePlace.ReplaceAllStringFunc(text, func(place string) string {
		if value, given := values[variablePlace.FindStringSubmatch(place)[1]]; given {
			return value
		}
		return place
	})
}

func valueProblem(value string, given bool) string {
	switch {
	case !given:
		return "is missing"
	case strings.TrimSpace(value) == "":
		return "is blank"
	case utf8.RuneCountInString(value) > MaxTemplateValue:
		return fmt.Sprintf("has more than %d characters", MaxTemplateValue)
	case strings.ContainsFunc(value, unicode.IsControl):
		return "contains a line break or another control character"
	}
	return ""
}

// CheckTemplatePage returns an error if a page breaks the contract. The error quotes nothing.
func CheckTemplatePage(page *TemplatePage) error {
	if len(page.Templates) > MaxTemplates {
		return errors.New("a page has too many templates")
	}
	if len(page.Next) > MaxID || page.Next != "" && !ConsistsOf(page.Next, isVisible) {
		return errors.New("the name of the next page is too long, or isn't made of visible ASCII characters")
	}
	for i := range page.Templates {
		if err := page.Templates[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (t *Template) check() error {
	switch {
	case t.Name == "" || t.Language == "" || !storable(t.Name, maxTemplateWord) || !storable(t.Language, maxTemplateWord),
		!storable(t.Category, maxTemplateWord), !storable(t.Needs, maxTemplateWord):
		return errors.New("a template has no name or language, or a word of it is too long or isn't UTF-8 without NUL")
	case strings.TrimSpace(t.Body) == "" || !storable(t.Body, MaxTemplateBody):
		return errors.New("the text of a template is blank or too long, or isn't UTF-8 without NUL")
	case len(t.Variables) > MaxTemplateVariables || !slices.Equal(t.Variables, VariablesIn(t.Body)):
		return errors.New("a template has too many variables, or others than its text")
	}
	return nil
}
