package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/openapi"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

// contract is the interface description, for judging answers by it.
type contract struct {
	document   map[string]any
	operations []documented
}

// documented is one operation of the description.
type documented struct {
	Method, Path string
	pattern      *regexp.Regexp
	operation    map[string]any
}

// described is the description of the code under test. It needs no store: nothing in it depends on one.
var described = sync.OnceValues(func() (*contract, error) {
	page, err := os.ReadFile("../docs/failure-modes.md")
	if err != nil {
		return nil, err
	}
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	if err != nil {
		return nil, err
	}
	api := api.New(api.Deps{Catalog: catalog})
	docs, err := openapi.New(api, openapi.Config{Catalog: catalog, FailureModes: string(page)})
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if err := docs.Serve(w, httptest.NewRequest(http.MethodGet, "/docs/openapi.json", http.NoBody)); err != nil {
		return nil, err
	}
	return parseContract(w.Body.Bytes())
})

var variable = regexp.MustCompile(`\{[^}]+\}`)

func parseContract(text []byte) (*contract, error) {
	c := &contract{}
	if err := json.Unmarshal(text, &c.document); err != nil {
		return nil, err
	}
	paths, _ := c.document["paths"].(map[string]any)
	for path, item := range paths {
		pattern := variable.ReplaceAllString(path, "[^/]+")
		if path == "/v1/models/{id}" { // whose slash may be sent as it is
			pattern = "/v1/models/.+"
		}
		for method, operation := range item.(map[string]any) {
			c.operations = append(c.operations, documented{
				Method: strings.ToUpper(method), Path: path, pattern: regexp.MustCompile("^" + pattern + "$"),
				operation: operation.(map[string]any),
			})
		}
	}
	// A fixed word is more exact than a variable.
	slices.SortFunc(c.operations, func(a, b documented) int {
		return strings.Count(a.Path, "{") - strings.Count(b.Path, "{")
	})
	return c, nil
}

// find is the operation of a request, nil for none.
func (c *contract) find(method, path string) *documented {
	for i := range c.operations {
		if o := &c.operations[i]; o.Method == method && o.pattern.MatchString(path) {
			return o
		}
	}
	return nil
}

// undescribed are the prefixes of what people see, which is no part of the description.
var undescribed = []string{"/dashboard", "/widget/"}

// judge reports where an answer isn't what the description says. It is stricter than a client may be: an answer has no
// member that isn't described. Streams are for requireStream.
func (c *contract) judge(r *http.Request, a answer) error {
	o := c.find(r.Method, r.URL.EscapedPath())
	switch {
	case o == nil && a.Status < 300 && !slices.ContainsFunc(undescribed, func(p string) bool { return strings.HasPrefix(r.URL.Path, p) }):
		return errors.New("the address is not described")
	case o == nil:
		return nil
	case a.Status == http.StatusNotModified, len(a.Body) == 0 && strings.HasPrefix(r.URL.Path, "/webhooks/"): // `ack empty`
		return nil
	}
	response, ok := o.operation["responses"].(map[string]any)[strconv.Itoa(a.Status)].(map[string]any)
	if !ok && a.Status == http.StatusNotFound {
		return nil // not every deployment mounts all of it
	}
	if !ok {
		return fmt.Errorf("the status %d is not described", a.Status)
	}
	content, _ := response["content"].(map[string]any)
	if len(content) == 0 {
		if len(a.Body) > 0 {
			return errors.New("no body is described")
		}
		return nil
	}
	mediaType, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	media, ok := content[mediaType].(map[string]any)
	if !ok {
		return fmt.Errorf("the media type %q is not described", mediaType)
	}
	if mediaType != "application/json" {
		return nil
	}
	var body any
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return fmt.Errorf("the body is no JSON: %w", err)
	}
	if err := c.check(media["schema"].(map[string]any), body, "body"); err != nil {
		return err
	}
	return checkCode(response, body)
}

// asDescribed is the answer, unless it isn't what the interface description says.
func asDescribed(r *http.Request, a answer) (answer, error) {
	c, err := described()
	if err == nil && a.Broken == nil {
		err = c.judge(r, a)
	}
	if err != nil {
		return answer{}, fmt.Errorf("%s %s answered %d with %.500s, and the description says otherwise: %w", r.Method, r.URL, a.Status, a.Body, err)
	}
	return a, nil
}

// checkCode requires an error's code to be one that the description names for this answer.
func checkCode(response map[string]any, body any) error {
	codes, isError := response["x-codes"].([]any)
	if !isError {
		return nil
	}
	code := body.(map[string]any)["error"].(map[string]any)["code"]
	if !slices.Contains(codes, code) {
		return fmt.Errorf("the code %v is not described", code)
	}
	return nil
}

// check validates a value by the words of JSON Schema that the description uses; it refuses a word that it doesn't know.
func (c *contract) check(schema map[string]any, value any, at string) error {
	if ref, isRef := schema["$ref"].(string); isRef {
		schemas := c.document["components"].(map[string]any)["schemas"].(map[string]any)
		target, ok := schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: there is no schema %s", at, ref)
		}
		return c.check(target, value, at)
	}
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%s: %s: %.200v", at, fmt.Sprintf(format, args...), value)
	}
	if !hasType(schema["type"], value) {
		return fault("is not %v", schema["type"])
	}
	for word, limit := range schema {
		switch number, isNumber := value.(float64); word {
		case "type", "description", "default", "examples", "x-enum-descriptions", "required", "properties", "additionalProperties", "items",
			"contentEncoding", "readOnly", "title":
		case "anyOf":
			fits := func(one any) bool { return c.check(one.(map[string]any), value, at) == nil }
			if !slices.ContainsFunc(limit.([]any), fits) {
				return fault("is none of %v", limit)
			}
		case "enum":
			if value != nil && !slices.Contains(limit.([]any), value) {
				return fault("is none of %v", limit)
			}
		case "minimum":
			if isNumber && number < limit.(float64) {
				return fault("is below %v", limit)
			}
		case "maximum":
			if isNumber && number > limit.(float64) {
				return fault("is above %v", limit)
			}
		case "minLength", "maxLength", "pattern", "format":
			if text, isText := value.(string); isText && !fits(text, word, limit) {
				return fault("breaks %s %v", word, limit)
			}
		case "minItems", "maxItems":
			if list, isList := value.([]any); isList && (word == "minItems") == (float64(len(list)) < limit.(float64)) && float64(len(list)) != limit {
				return fault("breaks %s %v", word, limit)
			}
		default:
			return fault("its schema has the word %q, which this test doesn't know", word)
		}
	}
	return c.checkParts(schema, value, at)
}

// checkParts validates the members of an object and the elements of an array.
func (c *contract) checkParts(schema map[string]any, value any, at string) error {
	switch value := value.(type) {
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i, element := range value {
			if err := c.check(items, element, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, there := value[name.(string)]; !there {
				return fmt.Errorf("%s.%s: is missing", at, name)
			}
		}
		for name, member := range value {
			property, isDescribed := properties[name].(map[string]any)
			if !isDescribed && schema["additionalProperties"] == nil {
				return fmt.Errorf("%s.%s: is not described", at, name)
			}
			if !isDescribed {
				continue
			}
			if err := c.check(property, member, at+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}

func hasType(types, value any) bool {
	switch types := types.(type) {
	case nil:
		return true
	case []any:
		return slices.ContainsFunc(types, func(one any) bool { return hasType(one, value) })
	}
	switch value := value.(type) {
	case nil:
		return types == "null"
	case bool:
		return types == "boolean"
	case string:
		return types == "string"
	case float64:
		return types == "number" || types == "integer" && value == float64(int64(value))
	case []any:
		return types == "array"
	default:
		return types == "object"
	}
}

// fits reports whether a text obeys one word of its schema.
func fits(text, word string, limit any) bool {
	switch word {
	case "minLength":
		return float64(utf8.RuneCountInString(text)) >= limit.(float64)
	case "maxLength":
		return float64(utf8.RuneCountInString(text)) <= limit.(float64)
	case "pattern":
		return regexp.MustCompile(limit.(string)).MatchString(text)
	}
	switch limit {
	case "date-time":
		_, err := time.Parse(time.RFC3339, text)
		return err == nil
	case "date":
		_, err := time.Parse(time.DateOnly, text)
		return err == nil
	default:
		return true
	}
}

// TestContractFindsFaults guarantees that the judge above sees what it is there for.
func TestContractFindsFaults(t *testing.T) {
	t.Parallel()
	c, err := described()
	require.NoError(t, err)
	good := `{"environment":"live","balanceMicros":"5","heldMicros":"0"}`
	list := `{"data":[],"nextCursor":null}`
	failed := `{"error":{"code":"forbidden","message":"m","requestId":"req_1"}}`
	for _, tt := range []struct {
		method, path string
		status       int
		mediaType    string
		body, says   string
	}{
		{"GET", "/wallet", 200, "application/json", good, ""},
		{"GET", "/wallet?x=1", 200, "application/json; charset=utf-8", good, ""},
		{"GET", "/wallet", 201, "application/json", good, "status 201"},
		{"GET", "/wallet", 200, "text/plain", good, "media type"},
		{"GET", "/wallet", 200, "application/json", good[:20], "no JSON"},
		{"GET", "/wallet", 200, "application/json", `{"environment":"live","balanceMicros":"5"}`, "heldMicros: is missing"},
		{"GET", "/wallet", 200, "application/json", strings.Replace(good, "{", `{"more":1,`, 1), "more: is not described"},
		{"GET", "/wallet", 200, "application/json", strings.Replace(good, `"5"`, `5`, 1), "balanceMicros: is not string"},
		{"GET", "/wallet", 200, "application/json", strings.Replace(good, "live", "lively", 1), "environment: is none of"},
		{"GET", "/agents", 200, "application/json", list, ""},
		{"GET", "/agents", 200, "application/json", strings.Replace(list, "[]", "null", 1), "data: is not array"},
		{"GET", "/agents", 200, "application/json", strings.Replace(list, "[]", "[{}]", 1), "data[0]"},
		{"GET", "/agents", 403, "application/json", failed, ""},
		{"GET", "/agents", 403, "application/json", strings.Replace(failed, "forbidden", "conflict", 1), "code conflict"},
		{"GET", "/agents", 403, "application/json", strings.Replace(failed, "forbidden", "teapot", 1), "code: is none of"},
		{"DELETE", "/agents/agt_1", 204, "", "", ""},
		{"DELETE", "/agents/agt_1", 204, "application/json", "{}", "no body"},
		{"GET", "/v1/models/acme%2Fstd", 404, "application/json", strings.Replace(failed, "forbidden", "not_found", 1), ""},
		{"GET", "/v1/models/acme/std", 200, "application/json", "{}", "is missing"},
		{"POST", "/webhooks/market-a", 200, "", "", ""},
		{"POST", "/v1/chat/completions", 200, "text/event-stream", "data: x", ""},
		{"GET", "/nothing", 404, "application/json", failed, ""},
		{"GET", "/nothing", 200, "application/json", "{}", "address is not described"},
		{"PUT", "/agents", 200, "application/json", "{}", "address is not described"},
	} {
		r := httptest.NewRequest(tt.method, tt.path, http.NoBody)
		err := c.judge(r, answer{Status: tt.status, Header: http.Header{"Content-Type": {tt.mediaType}}, Body: []byte(tt.body)})
		if tt.says == "" {
			require.NoError(t, err, "%s %s %s", tt.method, tt.path, tt.body)
		} else {
			require.ErrorContains(t, err, tt.says, "%s %s %s", tt.method, tt.path, tt.body)
		}
	}
}

// describing makes a deployment with the whole interface, its description and the endpoint groups included.
func (d *deployment) describing() *deployment {
	d.Whole = true
	return d
}
