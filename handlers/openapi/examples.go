package openapi

import (
	"cmp"
	_ "embed" // for recordedExamples
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
)

// recordedExamples are requests and the answers that a server gave. TestDocumentedExamples of tests sends them all, in
// this order, and compares; with -update it writes the answers anew.
//
//go:embed examples.json
var recordedExamples []byte

// Example is one exchange of the description.
type Example struct {
	// Operation is the operation's id, Name distinguishes several examples of one operation.
	Operation string `json:"operation"`
	Name      string `json:"name,omitempty"`
	// Parameters are the parameters of the path, the query and the headers, by name.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Request is the body. Nil means no body.
	Request any `json:"request,omitempty"`
	Status  int `json:"status"`
	// Response is the body: JSON, or the text of another media type. Nil means no body.
	Response any `json:"response,omitempty"`
}

// Examples are the recorded exchanges in the order in which they build on each other.
func Examples() ([]Example, error) {
	var examples []Example
	if err := json.Unmarshal(recordedExamples, &examples); err != nil {
		return nil, fmt.Errorf("reading examples.json: %w", err)
	}
	return examples, nil
}

// addExamples puts the recorded exchanges into their operations.
func (d *describer) addExamples() {
	examples, err := Examples()
	if err != nil {
		d.faults = append(d.faults, err)
		return
	}
	operations := make(map[string]*huma.Operation)
	for _, operation := range operationsOf(d.document) {
		operations[operation.OperationID] = operation
	}
	for i := range examples {
		example := &examples[i]
		operation := operations[example.Operation]
		if operation == nil || !example.addTo(operation) {
			d.faults = append(d.faults, fmt.Errorf("examples.json: %s %s has no place in the description", example.Operation, example.Name))
		}
	}
}

// addTo reports whether the operation has a place for all of the example.
func (e *Example) addTo(operation *huma.Operation) bool {
	if e.Request != nil {
		if operation.RequestBody == nil {
			return false
		}
		body := *operation.RequestBody
		body.Content = map[string]*huma.MediaType{"application/json": e.in(body.Content["application/json"], e.Request)}
		operation.RequestBody = &body
	}
	parameters := make([]*huma.Param, len(operation.Parameters))
	for i, parameter := range operation.Parameters {
		parameters[i] = parameter
		if value, given := e.Parameters[parameter.Name]; given && parameter.Example == nil {
			copied := *parameter
			copied.Example = typed(parameter.Schema, value)
			parameters[i] = &copied
		}
	}
	operation.Parameters = parameters
	response := operation.Responses[strconv.Itoa(e.Status)]
	if response == nil || e.Response == nil {
		return response != nil
	}
	mediaType := "application/json"
	if _, isText := e.Response.(string); isText {
		others := slices.DeleteFunc(slices.Sorted(maps.Keys(response.Content)), func(other string) bool { return other == mediaType })
		mediaType = slices.Concat(others, []string{""})[0]
	}
	media, has := response.Content[mediaType]
	if has {
		response.Content[mediaType] = e.in(media, e.Response)
	}
	return has
}

// typed returns a parameter's text as a value of its schema's type.
func typed(schema *huma.Schema, text string) any {
	switch schema.Type {
	case huma.TypeInteger:
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			return number
		}
	case huma.TypeBoolean:
		if truth, err := strconv.ParseBool(text); err == nil {
			return truth
		}
	}
	return text
}

// in is the media type with the value as one more of its examples.
func (e *Example) in(media *huma.MediaType, value any) *huma.MediaType {
	copied := *media
	copied.Examples = map[string]*huma.Example{cmp.Or(e.Name, "usual"): {Value: value}}
	maps.Copy(copied.Examples, media.Examples)
	return &copied
}
