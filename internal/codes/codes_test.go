package codes

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// section returns the part of docs/channels.md under a heading.
func section(t *testing.T, heading string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/channels.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n### "+heading+"\n")
	require.True(t, found)
	rest, _, _ = strings.Cut(rest, "\n### ")
	return rest
}

// TestPoliciesAreDocumented: the table of docs/channels.md and that of the code say the same of each code.
func TestPoliciesAreDocumented(t *testing.T) {
	t.Parallel()
	endings := map[string]Ending{
		"by itself, when the cause is gone": WithCause, "by itself, in time": InTime, "when the customer writes again": ByText,
		"by the operator": ByOperator, "by a person": ByPerson,
	}
	type policy struct {
		ends Ending
		life time.Duration
		told Audience
	}
	documented, defined := map[string]policy{}, map[string]policy{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|.*\\| ([^|]+) \\| (24 h|–) \\| (organization|operator) \\|$")
	for _, cells := range row.FindAllStringSubmatch(section(t, "What stands, and until when"), -1) {
		if cells[1] == "attention" {
			continue
		}
		require.Contains(t, endings, cells[2], cells[0])
		p := policy{ends: endings[cells[2]], told: Audience(cells[4])}
		if cells[3] == "24 h" {
			p.life = Life
		}
		documented[cells[1]] = p
	}
	for code, reason := range All {
		defined[code] = policy{reason.Ends, reason.For, reason.Told}
	}
	require.Equal(t, defined, documented)
}

// TestCodesOfMessagesAreDocumented: docs/channels.md names the codes with which messages fail.
func TestCodesOfMessagesAreDocumented(t *testing.T) {
	t.Parallel()
	documented, defined := map[string]bool{}, map[string]bool{}
	for _, cells := range regexp.MustCompile("(?m)^\\| `(?:failed|delivery_unknown)` \\| `([a-z_]+)` \\|").FindAllStringSubmatch(section(t, "Messages"), -1) {
		documented[cells[1]] = true
	}
	for code, reason := range All {
		if reason.Message != "" {
			defined[code] = true
		}
	}
	require.Equal(t, defined, documented)
}

// TestEveryCodeHasWords: staff never read a code, also not one of another version. Words say what happened and what to do, which takes two clauses.
func TestEveryCodeHasWords(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"unknown": Of("something_new").Conversation, "unknown message": Of("something_new").Message}
	for code, reason := range All {
		require.NotEmpty(t, reason.Ends, code)
		require.NotEmpty(t, reason.Told, code)
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
	require.Equal(t, TellOperator, unknown.Told)
	require.Zero(t, unknown.For)
}
