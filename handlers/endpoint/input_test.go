package endpoint

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
)

// Every body is refused with an error of the contract, or reaches the decoder as one object with described names only.
func FuzzAPIBody(f *testing.F) {
	for _, seed := range []string{
		`{"name":"Lan","model":"echo/a"}`, `{"name":"a\u0000","model":7}`, `{"NAME":"x","name":null,"credentials":{"name":["\u0000"],"x":{}}}`,
		`{"maxTokens":10.0,"temperature":1e400}`, `{"unknown":1e700}`, `{"a":1,"\u0061":2}`, `[`, ``, `{"name":"\ud83d\ude00"}`, `{"name":1}{"name":2}`, `{"origins":["a",{},[1],"b","c","d"],"name":{"name":[]}}`, "{\"name\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	text, number := &huma.Schema{Type: huma.TypeString}, &huma.Schema{Type: huma.TypeNumber}
	most := 3
	schema := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{
		"name": text, "model": text, "maxTokens": number, "temperature": number,
		"credentials": {Type: huma.TypeObject, Properties: map[string]*huma.Schema{"name": text}},
		"origins":     {Type: huma.TypeArray, Items: text, MaxItems: &most},
	}}
	f.Fuzz(func(t *testing.T, body []byte) {
		clean, err := readObject(body, schema, nil)
		if err != nil {
			handlertest.RequireInvalid(t, err)
			return
		}
		before, after := numbered(t, body), numbered(t, clean)
		require.NotContains(t, string(clean), "\x00")
		for name := range after {
			require.Contains(t, schema.Properties, name)
			require.Contains(t, before, name)
		}
		for name, value := range before {
			if schema.Properties[name] == nil {
				continue
			}
			require.Contains(t, after, name)
			require.IsType(t, value, after[name])
			if _, simple := value.(string); simple {
				require.Equal(t, value, after[name])
			}
		}
		if credentials, ok := after["credentials"].(map[string]any); ok {
			require.Subset(t, []string{"name"}, slices.Collect(maps.Keys(credentials)))
		}
		if origins, ok := after["origins"].([]any); ok {
			require.LessOrEqual(t, len(origins), most+1)
		}
		again, err := readObject(clean, schema, nil)
		require.NoError(t, err)
		require.Equal(t, string(clean), string(again))
	})
}

// A cursor that is no id is refused.
func FuzzCursor(f *testing.F) {
	for _, seed := range []string{"", "YWd0XzE", "!", "YQ==", strings.Repeat("a", 300), "AA"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		page, err := PageQuery{Cursor: cursor}.Page()
		if err != nil {
			require.Equal(t, "cursor", handlertest.RequireInvalid(t, err).Field)
			return
		}
		require.True(t, cursor == "" || handlers.WellFormedID(page.After))
		require.Equal(t, defaultPageLimit+1, page.Limit)
	})
}

func BenchmarkReadObject(b *testing.B) {
	text := &huma.Schema{Type: huma.TypeString}
	schema := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{
		"name": text, "model": text, "systemPrompt": text, "temperature": {Type: huma.TypeNumber}, "origins": {Type: huma.TypeArray, Items: text},
	}}
	body := []byte(`{"name":"Lan","model":"openai/gpt-6-luna","temperature":0.70,"origins":["https://a.example","https://b.example"],"unknown":{"a":[1,2,3]},"systemPrompt":"` +
		strings.Repeat(`Answer in Vietnamese.\n`, 40) + `"}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := readObject(body, schema, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// numbered decodes an object. Its numbers stay texts: one that the filter leaves out may be beyond every type.
func numbered(t *testing.T, object []byte) (members map[string]any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&members))
	return members
}
