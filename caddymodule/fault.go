package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// fault is one thing wrong with a configuration: where, as a path in the words of the Caddyfile
// (`svc.provider[openai].base_url`), and what is allowed there.
type fault struct {
	path string
	text string
}

func (f fault) String() string { return f.path + ": " + f.text }

// faults collects what is wrong, so that it can be told all at once. The zero value is ready for use.
type faults []fault

// addf notes one fault at path.
func (fs *faults) addf(path, format string, args ...any) {
	*fs = append(*fs, fault{path: path, text: fmt.Sprintf(format, args...)})
}

// between notes a fault if value lies outside lowest..highest.
func (fs *faults) between(path string, value, lowest, highest int64) {
	if value < lowest || value > highest {
		fs.addf(path, "%d is out of range; allowed: %d to %d", value, lowest, highest)
	}
}

// optionalBetween is between for an optional number.
func (fs *faults) optionalBetween(path string, value *int64, lowest, highest int64) {
	if value != nil {
		fs.between(path, *value, lowest, highest)
	}
}

// requiredBetween is between for a number that must be given, 0 too.
func (fs *faults) requiredBetween(path string, value *int64, lowest, highest int64) {
	if value == nil {
		fs.addf(path, "missing; give an integer from %d to %d", lowest, highest)
		return
	}
	fs.between(path, *value, lowest, highest)
}

// longestDuration bounds every duration of the configuration.
const longestDuration = 24 * time.Hour

// duration notes a fault if d is negative or longer than [longestDuration]. Zero stands for "not given".
func (fs *faults) duration(path string, d caddy.Duration) {
	if d < 0 || time.Duration(d) > longestDuration {
		fs.addf(path, "%s is out of range; allowed: more than 0, at most %s", time.Duration(d), longestDuration)
	}
}

// nameless notes an element of a list that is null or has no name.
func (fs *faults) nameless(list string, index int) {
	fs.addf(indexed(list, index), "the name is missing")
}

// err joins all faults into one error of several lines, or nil.
func (fs *faults) err() error {
	lines := make([]string, len(*fs))
	for i, f := range *fs {
		lines[i] = f.String()
	}
	return joinLines(lines)
}

// joinLines makes one error out of the lines: the line itself if there is one, else a count and a list.
func joinLines(lines []string) error {
	switch len(lines) {
	case 0:
		return nil
	case 1:
		return errors.New(lines[0])
	default:
		return fmt.Errorf("%d faults:\n  %s", len(lines), strings.Join(lines, "\n  "))
	}
}

// simpleName matches what may stand in a path without quotes.
var simpleName = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]{1,160}$`)

// element is the path of the element called name in a list of the svc block: svc.plan[free]. A name that may hold
// anything, control characters too, is quoted and cut.
func element(list, name string) string {
	if !simpleName.MatchString(name) {
		if len(name) > 64 {
			name = name[:64] + "…"
		}
		name = strconv.Quote(name)
	}
	return "svc." + list + "[" + name + "]"
}

// repeated is the path of the count-th element with the same path, counted from 1: svc.plan[free], svc.plan[free#2].
func repeated(path string, count int) string {
	if count == 1 {
		return path
	}
	return strings.TrimSuffix(path, "]") + "#" + strconv.Itoa(count) + "]"
}

// indexed is the path of a nameless element of a list, counted from 0: svc.plan[#0].
func indexed(list string, index int) string {
	return "svc." + list + "[#" + strconv.Itoa(index) + "]"
}

// listed renders the names for "there are: a, b, c"; "none" if there are none.
func listed[S ~string](names []S) string {
	if len(names) == 0 {
		return "none"
	}
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

// sortedBy returns a copy of the list in ascending order of key.
func sortedBy[T any](list []T, key func(T) string) []T {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	return sorted
}
