package endpoint

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

type noted struct {
	PathID

	Days  int  `query:"days"  minimum:"1" maximum:"9" doc:"How many"`
	Exact bool `query:"exact"`
	Body  struct {
		Name  string   `json:"name"            maxLength:"5" doc:"Its name"`
		Kind  *string  `json:"kind,omitempty"  enum:"a,b"`
		Words []string `json:"words,omitempty" maxItems:"2"`
		Count *int64   `json:"count,omitempty" writeOnly:"true"`
	}
}

type notes struct{ seen []noted }

func (n *notes) note(_ context.Context, principal *identity.Principal, in *noted) (*JSON[string], error) {
	n.seen = append(n.seen, *in)
	return Answer(principal.Actor()), nil
}

var note Any[*notes] = Op[*notes, noted, JSON[string]]{
	Operation: Operation{ID: "note", Route: handlers.Route{
		Method: http.MethodPost, Path: "/notes/{id}", Scope: identity.AgentsWrite, Role: handlers.RoleMember,
	}},
	Do: func(n *notes, ctx context.Context, principal *identity.Principal, in *noted) (*JSON[string], error) {
		return n.note(ctx, principal, in)
	},
}

func TestFields(t *testing.T) {
	t.Parallel()
	require.Equal(t, []Field{
		{Name: "id", In: "path", Type: TextField, Required: true},
		{Name: "days", In: "query", Doc: "How many", Type: NumberField},
		{Name: "exact", In: "query", Type: BooleanField},
		{Name: "name", In: "body", Doc: "Its name", Type: TextField, Required: true, MaxLength: 5},
		{Name: "kind", In: "body", Type: TextField, Enum: []string{"a", "b"}},
		{Name: "words", In: "body", Type: TextsField},
		{Name: "count", In: "body", Type: NumberField, Secret: true},
	}, note.Fields())
}

type searched struct {
	Query string `query:"q"     required:"true" minLength:"2"`
	Limit int    `query:"limit" minimum:"1"     default:"6"`
	Order string `query:"order" enum:"a,b"      default:"b"`
}

// TestRunCompletesParameters: a parameter that is absent has its default, and a required one is refused, as on the route.
func TestRunCompletesParameters(t *testing.T) {
	t.Parallel()
	var seen searched
	search := Op[*notes, searched, JSON[string]]{
		Operation: Operation{ID: "search", Route: handlers.Route{Method: http.MethodGet, Path: "/search", Scope: identity.AgentsRead, Role: handlers.RoleMember}},
		Do: func(_ *notes, _ context.Context, _ *identity.Principal, in *searched) (*JSON[string], error) {
			seen = *in
			return Answer(""), nil
		},
	}
	operator := &identity.Principal{OrgID: "org_1", Operator: "cli:lan", OperatorScopes: identity.CommandLineScopes}
	for _, absent := range []Values{{"q": "xy"}, {"q": "xy", "limit": "", "order": ""}} {
		_, err := search.Run(t.Context(), new(notes), operator, absent)
		require.NoError(t, err)
		require.Equal(t, searched{Query: "xy", Limit: 6, Order: "b"}, seen)
	}
	for _, missing := range []Values{{}, {"q": ""}, {"q": "x"}} {
		_, err := search.Run(t.Context(), new(notes), operator, missing)
		require.Equal(t, "q", handlertest.RequireInvalid(t, err).Field)
	}
}

// TestRun: an operation that runs as a function has the same checks as its route.
func TestRun(t *testing.T) {
	t.Parallel()
	operator := &identity.Principal{OrgID: "org_1", Operator: "cli:lan", OperatorScopes: identity.CommandLineScopes, Suspended: true}
	var n notes
	body, err := note.Run(t.Context(), &n, operator, Values{
		"id": "not_1", "days": "3", "exact": "true", "name": "chợ", "kind": "b", "words": []any{"x", "y"}, "count": 4.0, "other": "ignored",
	})
	require.NoError(t, err)
	require.Equal(t, "cli:lan", *body.(*string))
	require.Len(t, n.seen, 1)
	in := n.seen[0]
	require.Equal(t, "not_1 3 true chợ b", in.ID+" "+string(rune('0'+in.Days))+" true "+in.Body.Name+" "+*in.Body.Kind)
	require.True(t, in.Exact)
	require.Equal(t, []string{"x", "y"}, in.Body.Words)
	require.EqualValues(t, 4, *in.Body.Count)

	for field, values := range map[string]Values{
		"days":     {"days": "0", "name": "a"},
		"exact":    {"exact": "perhaps", "name": "a"},
		"name":     {"name": "longer"},
		"kind":     {"name": "a", "kind": "c"},
		"words":    {"name": "a", "words": []any{"x", "y", "z"}},
		"words[0]": {"name": "a", "words": []any{1.0}},
		"count":    {"name": "a", "count": "four"},
	} {
		_, err := note.Run(t.Context(), &n, operator, values)
		require.Equal(t, field, handlertest.RequireInvalid(t, err).Field)
	}
	for _, values := range []Values{{}, {"name": nil}, {"name": "a\x00"}, {"name": "\xff"}} {
		_, err := note.Run(t.Context(), &n, operator, values)
		require.Equal(t, "name", handlertest.RequireInvalid(t, err).Field)
	}
	for _, large := range []float64{1e19, -1e300} { // the schema has no bounds
		_, err := note.Run(t.Context(), &n, operator, Values{"name": "a", "count": large})
		require.Equal(t, "count", handlertest.RequireInvalid(t, err).Field)
	}
	_, err = note.Run(t.Context(), &n, operator, Values{"id": "../x", "name": "a"})
	requireCode(t, errcode.NotFound, err)

	for _, refused := range []struct {
		who  identity.Principal
		code errcode.Code
	}{
		{identity.Principal{KeyID: "key_1", Env: store.Live, Scopes: identity.ScopesOf(identity.AgentsRead)}, errcode.InsufficientScope},
		{identity.Principal{KeyID: "key_1", Env: store.Test, Scopes: identity.ScopesOf(identity.AgentsWrite)}, errcode.Forbidden},
		{identity.Principal{KeyID: "key_1", Env: store.Live, Scopes: identity.ScopesOf(identity.AgentsWrite), Suspended: true}, errcode.OrganizationSuspended},
		{identity.Principal{UserID: "usr_1"}, errcode.Forbidden},
		{identity.Principal{}, errcode.InsufficientScope},
	} {
		_, err := note.Run(t.Context(), &n, &refused.who, Values{"name": "a"})
		requireCode(t, refused.code, err)
	}
	require.Len(t, n.seen, 1)
}

// TestAsk: a page runs an operation with the checks of a request.
func TestAsk(t *testing.T) {
	t.Parallel()
	var n notes
	s := New(nil, nil, nil)
	s.Rates = Rates{Windows: limit.NewMemory(newClock().now)}
	note.Register(s, &n)
	person := &identity.Principal{OrgID: "org_1", UserID: "usr_1", Role: identity.Member}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/dashboard/notes", nil)
	ask := func(person *identity.Principal, in Values) error {
		answer, err := s.Ask(w, r, person, "note", in)
		if err == nil {
			require.Equal(t, person.UserID, answer.(*JSON[string]).Body)
		}
		return err
	}
	in := Values{"id": "not_1", "name": "chợ", "days": ""}
	for range PersonChangesPerMinute {
		require.NoError(t, ask(person, in))
	}
	refused := handlers.AsError(ask(person, in))
	require.Equal(t, errcode.RateLimited, refused.Code)
	require.Equal(t, handlers.Caller{OrgID: "org_1", UserID: "usr_1"}, refused.Caller)
	other := &identity.Principal{OrgID: "org_1", UserID: "usr_2", Role: identity.Member}
	require.Equal(t, "name", handlertest.RequireInvalid(t, ask(other, Values{"id": "not_1", "name": "longer"})).Field)
	requireCode(t, errcode.NotFound, ask(other, Values{"id": "", "name": "a"}))
	requireCode(t, errcode.Forbidden, ask(&identity.Principal{OrgID: "org_1", UserID: "usr_3"}, in))
	requireCode(t, errcode.OrganizationSuspended, ask(&identity.Principal{UserID: "usr_4", Role: identity.Owner, Suspended: true}, in))
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r.Method = method
		requireCode(t, errcode.InternalError, ask(other, in))
	}
	require.Len(t, n.seen, PersonChangesPerMinute)
}

func TestMembers(t *testing.T) {
	t.Parallel()
	type inner struct {
		Words []string `json:"words"`
	}
	name := "Lan"
	require.Equal(t, map[string]any{"words": []string{"a"}, "name": "Lan", "none": nil, "count": 2}, Members(&struct {
		inner

		Name  *string `json:"name"`
		None  *string `json:"none"`
		Count int     `json:"count,omitempty"`
	}{inner{[]string{"a"}}, &name, nil, 2}))
}

func requireCode(t *testing.T, code errcode.Code, err error) {
	t.Helper()
	refused, ok := errors.AsType[*handlers.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code, refused.Code)
}
