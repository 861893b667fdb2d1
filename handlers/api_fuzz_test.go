package handlers

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever a body is, it is refused in the contract's words, or what the framework gets is one plain object of known names.
func FuzzAPIBody(f *testing.F) {
	for _, seed := range []string{
		`{"name":"Lan","model":"echo/a"}`, `{"name":"a\u0000","model":7}`, `{"NAME":"x","name":null,"credentials":{"name":["\u0000"],"x":{}}}`,
		`{"maxTokens":10.0,"temperature":1e400}`, `{"a":1,"\u0061":2}`, `[`, ``, `{"name":"\ud83d\ude00"}`, `{"name":1}{"name":2}`, "{\"name\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	a := &API{members: map[string]bool{"name": true, "model": true, "maxTokens": true, "temperature": true, "credentials": true}}
	f.Fuzz(func(t *testing.T, body []byte) {
		clean, err := a.readObject(body)
		if err != nil {
			requireInvalid(t, err)
			return
		}
		var before, after map[string]any
		require.NoError(t, json.Unmarshal(body, &before))
		require.NoError(t, json.Unmarshal(clean, &after))
		require.NotContains(t, string(clean), `\u0000`)
		for name := range after {
			require.True(t, a.members[name])
			require.Contains(t, before, name)
		}
		for name := range before {
			if a.members[name] {
				require.Contains(t, after, name)
			}
		}
		again, err := a.readObject(clean)
		require.NoError(t, err)
		require.JSONEq(t, string(clean), string(again))
	})
}

// Any cursor is an id, or refused.
func FuzzCursor(f *testing.F) {
	for _, seed := range []string{"", "YWd0XzE", "!", "YQ==", strings.Repeat("a", 300), "AA"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		page, err := PageQuery{Cursor: cursor}.page()
		if err != nil {
			require.Equal(t, "cursor", requireInvalid(t, err).Field)
			return
		}
		require.True(t, cursor == "" || wellFormedID(page.After))
		require.Equal(t, defaultPageLimit+1, page.Limit)
	})
}
