package caddymodule

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A plan of no bytes is a limit; a plan without the word has the default, as of channels.
func TestPlanLimits(t *testing.T) {
	t.Parallel()
	none, some := int64(0), int64(10<<20)
	app := &App{Plans: []*Plan{{Name: "free", KnowledgeBytes: &none}, {Name: "pro", KnowledgeBytes: &some}, {Name: "max"}}}
	require.Zero(t, app.KnowledgeLimit("free"))
	require.Equal(t, some, app.KnowledgeLimit("pro"))
	require.EqualValues(t, 1<<30, app.KnowledgeLimit("max"))
	require.EqualValues(t, 1000, app.ChannelLimit("max"))
	require.Zero(t, app.KnowledgeLimit("gone from the file"), "the first plan is the default")
	require.EqualValues(t, 1<<30, new(App).KnowledgeLimit("any"))
	require.EqualValues(t, 1000, new(App).ChannelLimit("any"))
}
