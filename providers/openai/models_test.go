package openai_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
)

// lister starts a vendor whose list of models is answered by serve, and returns its adapter.
func lister(t *testing.T, serve http.HandlerFunc) providers.Lister {
	t.Helper()
	vendor := httptest.NewServer(serve)
	t.Cleanup(vendor.Close)
	made, err := openai.Driver{}.New(&providers.Config{BaseURL: vendor.URL + "/v1"})
	require.NoError(t, err)
	return made.(providers.Lister)
}

// TestListModels guarantees that the lists of OpenAI and of vendors like it are read, with the days on which models end.
func TestListModels(t *testing.T) {
	t.Parallel()
	day := time.Date(2027, 1, 14, 0, 0, 0, 0, time.UTC)
	for body, want := range map[string][]providers.ListedModel{
		`{"object":"list","data":[{"id":"a","object":"model","created":1,"owned_by":"o"}]}`:       {{Name: "a"}},
		`{"data":[{"id":"a","shutdown_date":"2027-01-14"},{"id":"b","shutdown_date":null}]}`:      {{Name: "a", Shutdown: day}, {Name: "b"}},
		`{"data":[{"id":"a","aliases":["a-latest"],"deprecation":"2027-01-14T07:00:00+07:00"}]}`:  {{Name: "a", Aliases: []string{"a-latest"}, Shutdown: day}},
		`{"data":[{"id":"a","shutdown_date":"2027-01-14","deprecation":"2028-01-01T00:00:00Z"}]}`: {{Name: "a", Shutdown: day}},
		`{"data":[{"id":"a","shutdown_date":"2028-01-01","deprecation":"2027-01-14T00:00:00"}]}`:  {{Name: "a", Shutdown: day}},
		`{"data":[{"id":"a","shutdown_date":1799884800,"deprecation":"soon"}]}`:                   {{Name: "a"}},
		`{"data":[]}`:          {},
		"\n" + ` [{"id":"a"}]`: {{Name: "a"}},
		`{"data":[{"id":"a",` + strings.Repeat(" ", 1<<20) + `"x":1}]}`: {{Name: "a"}},
	} {
		list := lister(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer sk-planted" || r.Header["Content-Type"] != nil {
				http.Error(w, "another request", http.StatusTeapot)
			}
			_, _ = fmt.Fprint(w, body)
		})
		models, err := list.ListModels(t.Context(), "sk-planted")
		require.NoError(t, err, "%.100s", body)
		require.Equal(t, want, models, "%.100s", body)
	}
}

// TestListsThatFail guarantees an error of a call for everything else than a list, and that a list without end is not read on.
func TestListsThatFail(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		serve http.HandlerFunc
		want  providers.Error
	}{
		"no list": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"models":[]}`) },
			providers.Error{Failure: providers.FailureRefused, Status: 200, Elsewhere: true, Detail: "the list of models has an unexpected form"},
		},
		"a page": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `<html>`) },
			providers.Error{Failure: providers.FailureRefused, Status: 200, Elsewhere: true, Detail: "the list of models has an unexpected form"},
		},
		"a wrong key": {
			func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, `{"error":{"message":"no such key sk-planted"}}`, http.StatusUnauthorized)
			},
			providers.Error{Failure: providers.FailureRefused, Status: 401, Permanent: true, Elsewhere: true, Detail: "no such key [masked]"},
		},
	} {
		_, err := lister(t, test.serve).ListModels(t.Context(), "sk-planted")
		failed := new(providers.Error)
		require.ErrorAs(t, err, &failed, name)
		require.Equal(t, &test.want, failed, name)
	}
	endless := lister(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	_, err := endless.ListModels(t.Context(), "")
	require.ErrorContains(t, err, "refused")
}
