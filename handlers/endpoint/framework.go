package endpoint

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/validation"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// frameworkConfig makes the framework leave errors, the description's address and the spelling of JSON to the service. It changes none of the
// framework's package variables.
func frameworkConfig() huma.Config {
	config := huma.DefaultConfig("caddy-svc", "1")
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	// The default hook adds $schema members and Link headers to every answer.
	config.CreateHooks = nil
	config.AllowAdditionalPropertiesByDefault = true
	config.Components.Schemas = huma.NewMapRegistry(SchemaPrefix, SchemaName)
	format := huma.Format{
		Marshal: func(w io.Writer, v any) error {
			text := handlers.Marshal(v)
			if answer, whole := w.(*answer); whole && answer.body == nil {
				answer.body = text // nobody else has it, so it need not be copied
				return nil
			}
			_, err := w.Write(text)
			return err
		},
		Unmarshal: func(text []byte, v any) error { return json.Unmarshal(text, v) },
	}
	// The framework looks up "json" for application/problem+json, the type of its own errors.
	config.Formats = map[string]huma.Format{"application/json": format, "json": format}
	config.Transformers = []huma.Transformer{keepRefusal}
	return config
}

// refusal carries an operation's error through the framework, which requires errors with a status.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// GetStatus is never sent: the error's code decides.
func (*refusal) GetStatus() int { return http.StatusInternalServerError }

// keepRefusal removes errors from the answers that the framework writes. The framework calls it for every answer before encoding it.
func keepRefusal(ctx huma.Context, _ string, v any) (any, error) {
	answer, err := answerOf(ctx)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *refusal:
		answer.err = v.err
	case *huma.ErrorModel:
		answer.err = refusedByFramework(v)
	default:
		return v, nil
	}
	return struct{}{}, nil
}

// answerOf returns the answer that the framework writes to.
func answerOf(ctx huma.Context) (*answer, error) {
	_, w := humago.Unwrap(ctx)
	answer, ok := w.(*answer)
	if !ok {
		return nil, errors.New("the request did not come through API.Serve")
	}
	return answer, nil
}

// refusedByFramework returns the public form of the framework's own errors: of the first parameter or member that breaks its
// rule. The text never quotes the value, which may be a secret.
func refusedByFramework(fault *huma.ErrorModel) *handlers.Error {
	if fault.Status >= http.StatusInternalServerError {
		return handlers.Internal(fmt.Errorf("huma: %w", fault))
	}
	if len(fault.Errors) == 0 {
		return handlers.InvalidRequest("", "The request is not valid: %s.", fault.Detail)
	}
	first := fault.Errors[0]
	in, field, _ := strings.Cut(first.Location, ".")
	if name, missing := requiredMember(first.Message); missing {
		field = strings.TrimPrefix(field+"."+name, ".")
		return handlers.InvalidRequest(field, "%s is required.", field)
	}
	if field == "" {
		return handlers.InvalidRequest("", "The %s is not valid.", in)
	}
	return handlers.InvalidRequest(field, "%s is not valid: %s.", field, first.Message)
}

// requiredMember reads the name out of the framework's words for a member that is missing; the location of that fault is
// the object around it.
func requiredMember(message string) (name string, missing bool) {
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	name, missing = strings.CutPrefix(message, before)
	if !missing {
		return "", false
	}
	return strings.CutSuffix(name, after)
}

// SchemaPrefix is where the description keeps its schemas.
const SchemaPrefix = "#/components/schemas/"

// SchemaName returns a type's name in the description: Agent for AgentObject, AgentList for a page of them.
func SchemaName(t reflect.Type, hint string) string {
	name := strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Object")
	if element, isList := strings.CutPrefix(name, "ListObject"); isList {
		return element + "List"
	}
	return name
}
