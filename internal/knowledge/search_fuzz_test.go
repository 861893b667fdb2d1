package knowledge

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// hostile are queries in the languages of the engines, and what breaks naive readers of text.
var hostile = []string{
	`hà nội`, `"`, `""`, `*`, `a* OR b`, `NEAR(a b, 3)`, `words:a`, `{a b}:c`, `-a`, `a AND NOT b`, `^a`, `a + b`, `'a' & !'b' | <->`, `a:*B`, `\`, `$1`, `%s`,
	"\x00", "\xff", `;DROP TABLE chunks`, `退款`, `ภาษา`, "😀 👩‍👩‍👧", "½ ㏂", "\u0344\u0345", `giao' | 'hang`,
}

// No query is an engine's query language, and none fails, on either engine.
func TestHostileQueries(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		fill(t, l)
		for _, query := range hostile {
			searched(t, l, query)
		}
	})
}

// searched checks what holds for every query.
func searched(t *testing.T, l *Library, query string) {
	t.Helper()
	snippets, err := l.Search(t.Context(), acme, []string{shop}, query, 10)
	require.NoError(t, err, "%q", query)
	asked := map[string]bool{}
	for _, folded := range foldedWords(query) {
		asked[folded] = true
	}
	for _, s := range snippets {
		require.Equal(t, shop, s.KnowledgeBaseID)
		has := false
		for _, folded := range foldedWords(s.Text) {
			has = has || asked[folded]
		}
		require.True(t, has, "%q found what has none of its words: %q", query, s.Text)
	}
}

// FuzzSearch: whatever is asked, no search fails, and what is found has a word of it.
func FuzzSearch(f *testing.F) {
	for _, seed := range hostile {
		f.Add(seed)
	}
	db := storetest.Open(f, store.SQLite)
	require.NoError(f, db.Organizations.Create(f.Context(), "test", store.Organization{ID: acme, Name: acme, Plan: "free"}))
	require.NoError(f, db.KnowledgeBases.Create(f.Context(), "test", store.KnowledgeBase{ID: shop, OrgID: acme, Name: shop}))
	l := New(db, nil)
	for name, text := range corpus {
		_, err := l.Ingest(f.Context(), "test", upload(name, text), -1)
		require.NoError(f, err)
	}
	f.Fuzz(func(t *testing.T, query string) { searched(t, l, query) })
}
