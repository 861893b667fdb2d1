// Package described makes the checks of handlertest require that the interface description names every error code that a test
// gets. Tests import it for its effect.
package described

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/docs"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/openapi"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

//nolint:gochecknoinits // the tests of a room import this package for it
func init() { handlertest.Described = requireDescribed }

type operation struct {
	path        string
	addresses   *regexp.Regexp
	OperationID string `json:"operationId"`
	Responses   map[string]struct {
		Codes []string `json:"x-codes"`
	} `json:"responses"`
}

// description has the operations by method in lower case.
var description = sync.OnceValues(func() (map[string][]*operation, error) {
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	if err != nil {
		return nil, err
	}
	served, err := openapi.New(api.New(api.Deps{Catalog: catalog}),
		openapi.Config{BaseURL: "https://svc.example", Catalog: catalog, FailureModes: docs.FailureModes})
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if err := served.Serve(w, httptest.NewRequest(http.MethodGet, "/docs/openapi.json", nil)); err != nil {
		return nil, err
	}
	var document struct {
		Paths map[string]map[string]*operation `json:"paths"`
	}
	err = json.Unmarshal(w.Body.Bytes(), &document)
	byMethod := map[string][]*operation{}
	for path, methods := range document.Paths {
		addresses := regexp.MustCompile("^" + segment.ReplaceAllString(path, "[^/]+") + "$")
		for method, o := range methods {
			o.path, o.addresses = path, addresses
			byMethod[method] = append(byMethod[method], o)
		}
	}
	return byMethod, err
})

var segment = regexp.MustCompile(`\{[^}]+\}`)

// requireDescribed requires the description to name the code for the request's operation, if the request has one.
func requireDescribed(t testing.TB, r *http.Request, code string) {
	t.Helper()
	operations, err := description()
	require.NoError(t, err)
	var found *operation
	for _, o := range operations[strings.ToLower(r.Method)] {
		if o.addresses.MatchString(r.URL.Path) && (found == nil || o.path == r.URL.Path) {
			found = o
		}
	}
	if found == nil || code == string(errcode.NotFound) && !strings.Contains(found.path, "{") {
		return // every address is not_found where it isn't mounted
	}
	for _, response := range found.Responses {
		if slices.Contains(response.Codes, code) {
			return
		}
	}
	t.Fatalf("%s answers %s, which is not described", found.OperationID, code)
}
