package caddymodule

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A plan of no bytes is a limit; a plan without the word is none.
func TestKnowledgeLimit(t *testing.T) {
	t.Parallel()
	none, some := int64(0), int64(10<<20)
	app := &App{Plans: []*Plan{{Name: "free", KnowledgeBytes: &none}, {Name: "pro", KnowledgeBytes: &some}, {Name: "max"}}}
	require.Zero(t, app.KnowledgeLimit("free"))
	require.Equal(t, some, app.KnowledgeLimit("pro"))
	require.Negative(t, app.KnowledgeLimit("max"))
	require.Zero(t, app.KnowledgeLimit("gone from the file"), "the first plan is the default")
	require.Negative(t, new(App).KnowledgeLimit("any"))
}
