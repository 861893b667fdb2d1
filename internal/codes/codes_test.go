package codes

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of codes into docs/conversations.md")

// TestCodesAreDocumented: docs/conversations.md has the table of codes, and -update writes it there.
func TestCodesAreDocumented(t *testing.T) {
	t.Parallel()
	const path = "../../docs/conversations.md"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	const begin, end = "<!-- codes: go test ./internal/codes -update -->\n", "<!-- /codes -->"
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	documented := before + begin + table() + end + after
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(documented), 0o600))
		return
	}
	require.Equal(t, documented, string(page), "go test ./internal/codes -update")
}

// table renders the codes in Markdown, ordered by ending and code.
func table() string {
	order := []Ending{WithCause, InTime, ByText, ByPerson, ByOperator}
	ends := map[Ending]string{WithCause: "with the cause", InTime: "in time", ByText: "by text", ByPerson: "by person", ByOperator: "by operator"}
	sorted := slices.SortedFunc(maps.Keys(All), func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Index(order, All[a].Ends), slices.Index(order, All[b].Ends)), cmp.Compare(a, b))
	})
	rows := "| `attention` | what happened, and what to do | ends | also a message's code |\n|---|---|---|---|\n"
	for _, code := range sorted {
		reason, message := All[code], ""
		ending := ends[reason.Ends]
		if reason.Operator {
			ending += ", marked"
		}
		if reason.Message != "" {
			message = "yes"
		}
		rows += "| `" + code + "` | " + reason.Conversation + " | " + ending + " | " + message + " |\n"
	}
	return rows
}

// TestEveryCodeHasWords: staff never read a code, also not one of another version. Words say what happened and what to do, which takes two clauses.
func TestEveryCodeHasWords(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"unknown": Of("something_new").Conversation, "unknown message": Of("something_new").Message}
	for code, reason := range All {
		require.NotEmpty(t, reason.Ends, code)
		require.NotEmpty(t, reason.Conversation, code)
		texts[code] = reason.Conversation
		if reason.Message != "" {
			texts[code+" message"] = reason.Message
		}
	}
	for code, text := range texts {
		require.NotRegexp(t, `[a-z]_[a-z]`, text, code)
		require.True(t, strings.HasSuffix(text, "."), code)
		require.Regexp(t, `[.:;] |, and `, text, code)
	}
}

// TestUnknownCodesAreTheOperators: another version may have written them.
func TestUnknownCodesAreTheOperators(t *testing.T) {
	t.Parallel()
	unknown := Of("something_new")
	require.Equal(t, ByOperator, unknown.Ends)
	require.True(t, unknown.Operator)
}
