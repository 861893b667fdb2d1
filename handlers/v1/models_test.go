package v1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func testModels() handlertest.ModelList {
	return handlertest.ModelList{
		{
			ID: "acme/pro", OwnedBy: "acme", DisplayName: `Pro "X"`, FriendlyName: "Pro", Tier: "economy",
			Created: 1_700_000_000, ContextWindow: 128_000, Upstream: "secret-upstream-name",
		},
		{ID: "acme/std", OwnedBy: "acme", DisplayName: "Std", FriendlyName: "Std", Tier: "economy", Created: 1_700_000_001, ContextWindow: 8000},
		{ID: "local/a/b", OwnedBy: "local", DisplayName: "AB", FriendlyName: "AB", Tier: "x", Created: 1_700_000_002, ContextWindow: 1, VNHosted: true},
	}
}

const pro = `{"id":"acme/pro","object":"model","created":1700000000,"owned_by":"acme","display_name":"Pro \"X\"",` +
	`"friendly_name":"Pro","tier":"economy","context_window":128000,"vn_hosted":false}`

// without is a ModelExceptions in which the organization has these exceptions.
func without(exceptions map[string]bool) ModelExceptions {
	return handlertest.ExceptionsFunc(func(_ context.Context, orgID string) (map[string]bool, error) {
		if orgID != "org_1" {
			return nil, errors.New("asked for " + orgID)
		}
		return exceptions, nil
	})
}

func ids(t *testing.T, text string) []string {
	t.Helper()
	var list struct {
		Object string
		Data   []struct{ ID string }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	require.Equal(t, "list", list.Object)
	require.NotNil(t, list.Data)
	found := make([]string, 0, len(list.Data))
	for _, m := range list.Data {
		found = append(found, m.ID)
	}
	return found
}

func TestModelsList(t *testing.T) {
	t.Parallel()
	m := NewModels(testModels(), without(nil))
	text := handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get("/v1/models?limit=1&after=x&order=asc"), handlertest.Someone()))
	require.Equal(t, []string{"acme/pro", "acme/std", "local/a/b"}, ids(t, text))
	require.Contains(t, text, `{"object":"list","data":[`+pro+`,{`)
	require.Contains(t, text, `"vn_hosted":true`)
	require.NotContains(t, text, "secret")
	require.Equal(t, `{"object":"list","data":[]}`, handlertest.OkText(t, NewModels(handlertest.ModelList{}, without(nil)).Serve, handlertest.As(handlertest.Get("/v1/models"), handlertest.Someone())))
}

func TestModelsHonoursExceptions(t *testing.T) {
	t.Parallel()
	m := NewModels(testModels(), without(map[string]bool{"acme/std": false, "acme/pro": true, "gone/x": true}))
	require.Equal(t, []string{"acme/pro", "local/a/b"}, ids(t, handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get("/v1/models"), handlertest.Someone()))))
	handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get("/v1/models/acme/pro"), handlertest.Someone()))
	handlertest.RefusedWith(t, errcode.NotFound, m.Serve, handlertest.As(handlertest.Get("/v1/models/acme/std"), handlertest.Someone()))
	handlertest.RefusedWith(t, errcode.NotFound, m.Serve, handlertest.As(handlertest.Get("/v1/models/gone/x"), handlertest.Someone()))
	all := map[string]bool{"acme/std": false, "acme/pro": false, "local/a/b": false}
	require.Empty(t, ids(t, handlertest.OkText(t, NewModels(testModels(), without(all)).Serve, handlertest.As(handlertest.Get("/v1/models"), handlertest.Someone()))))
}

// A model that is closed to test keys is unknown to them, with exceptions and without.
// The models of a key are those that it names, as far as its organization may use them.
func TestModelsOfAKey(t *testing.T) {
	t.Parallel()
	m := NewModels(testModels(), without(map[string]bool{"acme/std": false}))
	for _, c := range []struct{ key, seen []string }{
		{nil, []string{"acme/pro", "local/a/b"}},
		{[]string{}, []string{}},
		{[]string{"local/a/b", "acme/std", "gone/x"}, []string{"local/a/b"}},
		{[]string{"acme", "local/a/b\nacme"}, []string{"local/a/b"}},
	} {
		key := handlertest.Someone()
		key.KeyModels = store.NewKeyModels(c.key)
		require.Equal(t, c.seen, ids(t, handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get("/v1/models"), key))))
		if !key.KeyModels.Allow("acme/pro") {
			handlertest.RefusedWith(t, errcode.NotFound, m.Serve, handlertest.As(handlertest.Get("/v1/models/acme/pro"), key))
		}
	}
}

func TestModelsForTestKeys(t *testing.T) {
	t.Parallel()
	models := testModels()
	models[1].LiveOnly = true
	closed := models[1].ID
	testKey := handlertest.Someone()
	testKey.Env = store.Test
	for _, exceptions := range []map[string]bool{nil, {closed: true}} {
		m := NewModels(models, without(exceptions))
		require.Contains(t, ids(t, handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get("/v1/models"), handlertest.Someone()))), closed)
		require.Len(t, ids(t, handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get("/v1/models"), testKey))), len(models)-1)
		handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get("/v1/models/"+closed), handlertest.Someone()))
		handlertest.RefusedWith(t, errcode.NotFound, m.Serve, handlertest.As(handlertest.Get("/v1/models/"+closed), testKey))
	}
}

func TestModelsOne(t *testing.T) {
	t.Parallel()
	m := NewModels(testModels(), without(nil))
	for _, path := range []string{"/v1/models/acme/pro", "/v1/models/acme%2Fpro", "/v1/models/acme%2fpro"} {
		require.Equal(t, pro, handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get(path), handlertest.Someone())))
	}
	handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get("/v1/models/local%2Fa%2Fb"), handlertest.Someone()))
	for _, path := range []string{
		"/v1/models/", "/v1/models/acme", "/v1/models/acme/pro/", "/v1/models//acme/pro", "/v1/models/acme%252Fpro", "/v1/models/ACME/pro",
		"/v1/models/nobody/x", "/v1/modelsacme/pro", "/v1/modelsx", "/v1/model", "/models",
	} {
		handlertest.RefusedWith(t, errcode.NotFound, m.Serve, handlertest.As(handlertest.Get(path), handlertest.Someone()))
	}
}

func TestModelsOtherMethods(t *testing.T) {
	t.Parallel()
	m := NewModels(testModels(), without(nil))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, http.MethodHead, "TRACE", "get"} {
		for _, path := range []string{"/v1/models", "/v1/models/acme/pro"} {
			handlertest.RefusedWith(t, errcode.NotFound, m.Serve, handlertest.As(httptest.NewRequest(method, path, nil), handlertest.Someone()))
		}
	}
}

func TestModelsFailureIsOurs(t *testing.T) {
	t.Parallel()
	m := NewModels(testModels(), handlertest.ExceptionsFunc(func(context.Context, string) (map[string]bool, error) {
		return nil, errors.New("disk I/O error")
	}))
	for _, path := range []string{"/v1/models", "/v1/models/acme/pro"} {
		require.NotContains(t, handlertest.RefusedWith(t, errcode.InternalError, m.Serve, handlertest.As(handlertest.Get(path), handlertest.Someone())).Text, "disk")
	}
}

func TestModelsWithTheStoreAndCatalog(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	catalog, err := gateway.NewCatalog([]gateway.Model{{ID: "p/b", Provider: "p"}, {ID: "p/a", Provider: "p"}}, []gateway.ProviderEntry{{Name: "p"}})
	require.NoError(t, err)
	require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: "org_1", Name: "a", Plan: "free", CreatedAt: 1}))
	m := NewModels(catalog, db.Organizations)
	list := func() []string {
		return ids(t, handlertest.OkText(t, m.Serve, handlertest.As(handlertest.Get("/v1/models"), handlertest.Someone())))
	}
	require.Equal(t, []string{"p/a", "p/b"}, list())
	require.NoError(t, db.Organizations.SetModel(t.Context(), "test", "org_1", "p/a", false))
	require.Equal(t, []string{"p/b"}, list())
	require.NoError(t, db.Organizations.SetModel(t.Context(), "test", "org_1", "p/a", true))
	require.Equal(t, []string{"p/a", "p/b"}, list())
}
