package knowledge

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	acme  = "org_acme"
	other = "org_other"
	shop  = "kb_shop" // of acme
	staff = "kb_staff"
	alien = "kb_alien" // of other
)

// library is one over a database with two organizations and their bases. It is closed when the test ends.
func library(t *testing.T, db *store.DB) *Library {
	t.Helper()
	for _, org := range []string{acme, other} {
		require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: org, Name: org, Plan: "free"}))
	}
	for base, org := range map[string]string{shop: acme, staff: acme, alien: other} {
		require.NoError(t, db.KnowledgeBases.Create(t.Context(), "test", store.KnowledgeBase{ID: base, OrgID: org, Name: base}))
	}
	l := New(db, nil)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

// onEach runs a test with a library on each engine.
func onEach(t *testing.T, run func(t *testing.T, l *Library)) {
	t.Helper()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) { run(t, library(t, db)) })
}

// add takes a document in and waits until it has ended.
func add(t *testing.T, l *Library, org, base, name string, media MediaType, content string) store.Document {
	t.Helper()
	document, err := l.Ingest(t.Context(), "test", Upload{
		OrgID: org, KnowledgeBaseID: base, Name: name, MediaType: media, Content: content,
	}, -1)
	require.NoError(t, err)
	l.running.Wait()
	document, err = l.Document(t.Context(), org, base, document.ID)
	require.NoError(t, err)
	return document
}
