package inbox

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPoliciesAreDocumented: the table of docs/channels.md and that of the code say the same.
func TestPoliciesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/channels.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "\n### What stands, and until when\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n### ")
	endings := map[string]Ending{
		"by itself, when the cause is gone": EndsWithCause, "by itself, in time": EndsInTime,
		"when the customer writes again": EndsByText, "by the operator": EndsByOperator,
		"by a person": EndsByPerson,
	}
	documented := map[string]Policy{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		code := strings.Trim(strings.TrimSpace(cells[0]), "`")
		if len(cells) != 5 || code == "attention" || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`") {
			continue
		}
		ends, known := endings[strings.TrimSpace(cells[2])]
		require.True(t, known, line)
		policy := Policy{Ends: ends, Told: Audience(strings.TrimSpace(cells[4]))}
		switch life := strings.TrimSpace(cells[3]); life {
		case "24 h":
			policy.For = standingLife
		default:
			require.Equal(t, "–", life, line)
		}
		documented[code] = policy
	}
	require.Equal(t, Policies, documented)
}

// TestUnknownCodesAreTheOperators: another version may have written them.
func TestUnknownCodesAreTheOperators(t *testing.T) {
	t.Parallel()
	require.Equal(t, Policy{EndsByOperator, 0, TellOperator}, PolicyOf("something_new"))
}
