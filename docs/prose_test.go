package docs

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// habits are ways of writing that make a reader stop, each with the better way. A comment says to a colleague who does what and why.
var habits = []struct {
	pattern *regexp.Regexp
	write   string
}{
	{
		regexp.MustCompile(`\b[Ww]hat (is|was|has|have|had|stands|waits|else|a|an|the|it|its|they|people|platforms|customers|one|this|that|follows|came|can)\b`),
		"name the thing",
	},
	{regexp.MustCompile(`\b(takes|tells|knows|asks|wants|sees|learns)\b`), "code is no person: returns, reports, accepts, has, requires"},
	{regexp.MustCompile(`\bthose (that|of|who|which|with|in)\b`), "name the things"},
	{regexp.MustCompile(`\b(somebody|nobody|someone|whoever)\b`), "name the caller, the customer, the person"},
	{regexp.MustCompile(`\b(the one|one that|ones that|such a)\b`), "name the thing"},
	{
		regexp.MustCompile(`("" is|\b0 is|\bnil is)\b`),
		`a sentence: "Empty means no agent." "0 means unlimited."`,
	},
	{regexp.MustCompile(`, (or|with) \[?Err`), `"It returns [ErrX] if …"`},
	{regexp.MustCompile(`\bat once\b`), "immediately, or in one transaction"},
	{regexp.MustCompile(`\bstands? (in|for|at|still|below|beside|here|there|elsewhere)\b`), "is, replaces, or the state's name"},
	{
		regexp.MustCompile(`\b(so many|so long|as it was|any more|but for|meanwhile|for good)\b|, too[.,;]|\bthen[.;]`),
		"no longer, permanently, except, while …, also; or nothing",
	},
}

// notCounted matches files whose comments may be written in any way: suites, fakes and tools, as tests.
var notCounted = regexp.MustCompile(`_test\.go$|^(tests|tools|packaging)/|^(platforms/platformtest|internal/platformfake|providers/providertest|` +
	`internal/store/storetest|handlers/handlertest|internal/markup/markuptest)/`)

// TestProse: the comments that were added since the branch left main have none of the habits. On main these are the last commit's. Without a
// history, as in an archive of the source, there are none.
func TestProse(t *testing.T) {
	t.Parallel()
	base := ""
	for _, arguments := range [][]string{
		{"merge-base", "HEAD", "origin/main"}, {"merge-base", "HEAD", "main"}, {"rev-parse", "--verify", "--quiet", "HEAD^"},
	} {
		if found := git(t, arguments...); found != "" && found != git(t, "rev-parse", "HEAD") {
			base = found
			break
		}
	}
	if base != "" {
		require.Empty(t, badHabits(git(t, "diff", "-U0", "-M", "--no-color", "--no-ext-diff", base, "--", "*.go")))
	}
}

// TestBadHabits: comments that were added to the product are judged, across their lines; tests, code and moved comments are not.
func TestBadHabits(t *testing.T) {
	t.Parallel()
	const moved = "// nobody waits for it\n"
	diff := "diff --git a/a/b.go b/a/b.go\n--- a/a/b.go\n+++ b/a/b.go\n@@ -3 +3,3 @@ x\n-" + moved +
		"+// Of returns the limit. It is the\n+// one of the plan.\n+x := \"nobody\"\n@@ -9,0 +12,2 @@\n+" + moved + "+\t// 0 is none.\n" +
		"+++ b/a/b_test.go\n@@ -0,0 +1 @@\n+// somebody\n+++ b/tests/c.go\n@@ -0,0 +1 @@\n+// somebody\n+++ /dev/null\n"
	require.Equal(t, []string{
		`a/b.go:3: "the one": name the thing`,
		`a/b.go:13: "0 is": a sentence: "Empty means no agent." "0 means unlimited."`,
	}, badHabits(diff))
	for _, clean := range []string{
		"Empty means no agent.", "It returns [ErrNotFound] if the row is missing.", "addDraft loads the pending draft.",
		"A request waits for at most 5 s.", "Both answers are compared.",
	} {
		require.Empty(t, badHabits("+++ b/a.go\n@@ -0,0 +1 @@\n+// "+clean+"\n"), clean)
	}
}

// badHabits returns the habits in the comments that a diff without context adds to the product.
func badHabits(diff string) (found []string) {
	removed := map[string]bool{}
	for line := range strings.Lines(diff) {
		if text, ok := strings.CutPrefix(line, "-"); ok {
			removed[strings.TrimSpace(text)] = true
		}
	}
	path, number, first, comment := "", 0, 0, ""
	judge := func() {
		for _, habit := range habits {
			for _, match := range habit.pattern.FindAllString(comment, -1) {
				found = append(found, fmt.Sprintf("%s:%d: %q: %s", path, first, match, habit.write))
			}
		}
		comment = ""
	}
	hunk := regexp.MustCompile(`^@@ -\S+ \+(\d+)`)
	for line := range strings.Lines(diff) {
		added, ok := strings.CutPrefix(line, "+")
		text := strings.TrimSpace(added)
		words, isComment := strings.CutPrefix(text, "// ")
		counted := ok && isComment && !removed[text] && !notCounted.MatchString(path)
		if !counted {
			judge()
		}
		switch name, isFile := strings.CutPrefix(line, "+++ b/"); {
		case isFile:
			path = strings.TrimSpace(name)
		case hunk.MatchString(line):
			number, _ = strconv.Atoi(hunk.FindStringSubmatch(line)[1])
		case counted:
			if comment == "" {
				first = number
			}
			comment += words + " "
			number++
		case ok:
			number++
		}
	}
	judge()
	return found
}

// git returns what git prints, and "" if it fails.
func git(t *testing.T, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", arguments...)
	command.Dir = ".."
	printed, err := command.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(printed))
}
