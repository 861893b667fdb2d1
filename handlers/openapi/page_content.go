package openapi

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

func showDocsOperation(document *huma.OpenAPI, operation *huma.Operation) docsOperation {
	shown := docsOperation{Operation: operation, Examples: docsExamples(document, operation), Try: docsTryOf(operation)}
	for _, parameter := range operation.Parameters {
		shown.Parameters = append(shown.Parameters, docsField{
			Name: parameter.Name, In: parameter.In, Description: parameter.Description, Required: parameter.Required,
			Type: docsTypeOf(parameter.Schema), Rules: docsRules(parameter.Schema),
		})
	}
	if operation.RequestBody != nil {
		for _, media := range operation.RequestBody.Content {
			shown.Body = docsTypeOf(media.Schema)
		}
	}
	for _, status := range slices.Sorted(maps.Keys(operation.Responses)) {
		shown.Responses = append(shown.Responses, showDocsResponse(status, operation.Responses[status]))
	}
	return shown
}

// docsTryOf returns the form of an operation, or nil if a key can't call the operation. The body is the shortest of the
// examples.
func docsTryOf(operation *huma.Operation) *docsTry {
	byKey := func(way map[string][]string) bool { return way[schemeBearer] != nil }
	if !slices.ContainsFunc(operation.Security, byKey) {
		return nil
	}
	try := &docsTry{}
	for _, parameter := range operation.Parameters {
		field := docsTryField{Name: parameter.Name, In: parameter.In, Required: parameter.Required}
		if parameter.Example != nil {
			field.Example = fmt.Sprint(parameter.Example)
		}
		for _, value := range parameter.Schema.Enum {
			field.Options = append(field.Options, fmt.Sprint(value))
		}
		if parameter.Schema.Type == huma.TypeBoolean {
			field.Options = []string{"true", "false"}
		}
		try.Fields = append(try.Fields, field)
	}
	if operation.RequestBody == nil {
		return try
	}
	for _, media := range operation.RequestBody.Content {
		for _, name := range slices.Sorted(maps.Keys(media.Examples)) {
			if text := exampleText(media.Examples[name].Value); try.Body == "" || len(text) < len(try.Body) {
				try.Body = text
			}
		}
	}
	return try
}

func showDocsResponse(status string, response *huma.Response) docsResponse {
	if codes, isError := response.Extensions[codesKey].([]string); isError {
		return docsResponse{Status: status, Codes: codes}
	}
	return docsResponse{Status: status, Description: response.Description, Content: response.Content}
}

func docsTypeOf(schema *huma.Schema) docsType {
	if schema == nil {
		return docsType{}
	}
	if name, isRef := strings.CutPrefix(schema.Ref, endpoint.SchemaPrefix); isRef {
		return docsType{Text: name, Ref: name}
	}
	if schema.Type == huma.TypeArray {
		element := docsTypeOf(schema.Items)
		element.List = true
		return element
	}
	return docsType{Text: schema.Type}
}

// docsRules returns the bounds of a value in words.
func docsRules(schema *huma.Schema) []string {
	if schema == nil {
		return nil
	}
	var rules []string
	say := func(format string, args ...any) { rules = append(rules, fmt.Sprintf(format, args...)) }
	if schema.Nullable {
		say("or null")
	}
	if schema.Format != "" && schema.Type == huma.TypeString {
		say("%s", schema.Format)
	}
	if len(schema.Enum) > 0 && len(schema.Enum) < len(errcode.All()) {
		values := make([]string, len(schema.Enum))
		for i, value := range schema.Enum {
			values[i] = fmt.Sprintf("`%v`", value)
		}
		say("one of %s", strings.Join(values, ", "))
	}
	if schema.PatternDescription != "" {
		say("%s", schema.PatternDescription)
	}
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	rules = appendBounds(rules, schema.Minimum, schema.Maximum, number, "")
	rules = appendBounds(rules, schema.MinLength, schema.MaxLength, strconv.Itoa, " characters")
	rules = appendBounds(rules, schema.MinItems, schema.MaxItems, strconv.Itoa, " elements")
	if schema.Default != nil {
		say("default `%v`", schema.Default)
	}
	return rules
}

// appendBounds appends the bounds of a number of things in words.
func appendBounds[T any](rules []string, least, most *T, written func(T) string, things string) []string {
	switch {
	case least != nil && most != nil:
		return append(rules, written(*least)+" to "+written(*most)+things)
	case least != nil:
		return append(rules, "at least "+written(*least)+things)
	case most != nil:
		return append(rules, "at most "+written(*most)+things)
	}
	return rules
}

// docsSchemas returns the objects in the order of their names.
func docsSchemas(document *huma.OpenAPI) []docsSchema {
	all := document.Components.Schemas.Map()
	var shown []docsSchema
	for _, name := range slices.Sorted(maps.Keys(all)) {
		schema := all[name]
		object := docsSchema{Name: name, Description: schema.Description}
		for _, member := range slices.Sorted(maps.Keys(schema.Properties)) {
			property := schema.Properties[member]
			object.Fields = append(object.Fields, docsField{
				Name: member, Description: property.Description, Required: slices.Contains(schema.Required, member),
				Type: docsTypeOf(property), Rules: docsRules(property),
			})
		}
		// Required members come first.
		optional := slices.DeleteFunc(slices.Clone(object.Fields), func(f docsField) bool { return f.Required })
		object.Fields = append(slices.DeleteFunc(object.Fields, func(f docsField) bool { return !f.Required }), optional...)
		shown = append(shown, object)
	}
	return shown
}

// docsSchemes returns the credentials of programs and people first, then the signatures of platforms by name.
func docsSchemes(document *huma.OpenAPI) []docsScheme {
	var shown []docsScheme
	ids := []string{schemeBearer, schemeAPIKey, schemeSession, schemeVisitor}
	for _, id := range slices.Sorted(maps.Keys(document.Components.SecuritySchemes)) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		scheme := document.Components.SecuritySchemes[id]
		if scheme == nil {
			continue // of the other interface
		}
		where := "header `" + scheme.Name + "`"
		switch {
		case scheme.Type == "http":
			where = "header `Authorization: Bearer …`"
		case scheme.In == "cookie":
			where = "cookie `" + scheme.Name + "`"
		}
		shown = append(shown, docsScheme{ID: id, Where: where, Description: scheme.Description})
	}
	return shown
}

// docsExamples returns the operation's recorded exchanges.
func docsExamples(document *huma.OpenAPI, operation *huma.Operation) []docsExample {
	bodies := map[string]*huma.Example{}
	if operation.RequestBody != nil {
		for _, media := range operation.RequestBody.Content {
			maps.Copy(bodies, media.Examples)
		}
	}
	answers := map[string]docsExample{}
	for status, response := range operation.Responses {
		for _, media := range response.Content {
			for name, example := range media.Examples {
				answers[name] = docsExample{Name: name, Status: status, Answer: exampleText(example.Value)}
			}
		}
	}
	var shown []docsExample
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		example := answers[name]
		example.Command = curl(document, operation, bodies[name])
		shown = append(shown, example)
	}
	return shown
}

func exampleText(value any) string {
	if text, isText := value.(string); isText {
		return text
	}
	text, err := json.Marshal(value, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return ""
	}
	return string(text)
}

// curl returns the operation's request as a shell command.
func curl(document *huma.OpenAPI, operation *huma.Operation, body *huma.Example) string {
	path, query, lines := operation.Path, url.Values{}, []string(nil)
	for _, way := range operation.Security {
		if _, byKey := way[schemeBearer]; byKey {
			lines = append(lines, `-H "Authorization: Bearer $API_KEY"`)
		}
	}
	for _, parameter := range operation.Parameters {
		value := fmt.Sprint(parameter.Example)
		switch {
		case parameter.Example == nil:
		case parameter.In == "path":
			path = strings.ReplaceAll(path, "{"+parameter.Name+"}", url.PathEscape(value))
		case parameter.In == "query":
			query.Set(parameter.Name, value)
		default:
			lines = append(lines, "-H '"+parameter.Name+": "+value+"'")
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if body != nil {
		lines = append(lines, "-d '"+strings.ReplaceAll(exampleText(body.Value), "'", `'\''`)+"'")
	}
	command := "curl '" + document.Servers[0].URL + path + "'"
	if method := operation.Method; method != http.MethodGet && (method != http.MethodPost || body == nil) {
		command = "curl -X " + method + strings.TrimPrefix(command, "curl")
	}
	return strings.Join(append([]string{command}, lines...), " \\\n  ")
}
