// Package config has what every part of the configuration needs, in JSON and in the Caddyfile: faults that are collected
// by path and reported together, and references to secrets. The settings themselves are the exported structs of package
// caddymodule.
package config

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Fault is one error in a configuration. Path is where it is, in the words of the Caddyfile
// (`svc.provider[openai].base_url`), and Text describes the error and the allowed values.
type Fault struct {
	Path string
	Text string
}

func (f Fault) String() string { return f.Path + ": " + f.Text }

// Faults collects the errors of a configuration, so that all are reported together. The zero value is ready for use.
type Faults []Fault

// Addf adds a fault at path.
func (fs *Faults) Addf(path, format string, args ...any) {
	*fs = append(*fs, Fault{Path: path, Text: fmt.Sprintf(format, args...)})
}

// Between adds a fault if value lies outside lowest..highest.
func (fs *Faults) Between(path string, value, lowest, highest int64) {
	if value < lowest || value > highest {
		fs.Addf(path, "%d is out of range; allowed: %d to %d", value, lowest, highest)
	}
}

// LongestDuration is the upper bound of every duration of the configuration.
const LongestDuration = 24 * time.Hour

// Duration adds a fault if d is negative or longer than [LongestDuration]. Zero means that no duration was given.
func (fs *Faults) Duration(path string, d caddy.Duration) {
	if d < 0 || time.Duration(d) > LongestDuration {
		fs.Addf(path, "%s is out of range; allowed: more than 0, at most %s", time.Duration(d), LongestDuration)
	}
}

// Err returns all faults as one error, or nil if there are none.
func (fs *Faults) Err() error {
	lines := make([]string, len(*fs))
	for i, f := range *fs {
		lines[i] = f.String()
	}
	return JoinLines(lines)
}

// JoinLines returns an error with all lines below their count, only the line if there is one, or nil if there is none.
func JoinLines(lines []string) error {
	switch len(lines) {
	case 0:
		return nil
	case 1:
		return errors.New(lines[0])
	default:
		return fmt.Errorf("%d faults:\n  %s", len(lines), strings.Join(lines, "\n  "))
	}
}

// simpleName matches names that paths show without quotes. A length in an expression would be compiled as often as it counts.
var simpleName = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]+$`)

const maxSimpleName = 160

// Element returns the path of the element called name in a list of the svc block: svc.plan[free]. Other names than
// [simpleName] matches are quoted and cut, since they may hold anything, even control characters.
func Element(list, name string) string {
	if len(name) > maxSimpleName || !simpleName.MatchString(name) {
		if len(name) > 64 {
			name = name[:64] + "…"
		}
		name = strconv.Quote(name)
	}
	return "svc." + list + "[" + name + "]"
}

// Repeated returns the path of the count-th element with the path of [Element], counted from 1: svc.plan[free],
// svc.plan[free#2].
func Repeated(path string, count int) string {
	if count == 1 {
		return path
	}
	return strings.TrimSuffix(path, "]") + "#" + strconv.Itoa(count) + "]"
}

// Listed joins names for a message with commas. It returns "none" if there are none.
func Listed[S ~string](names []S) string {
	if len(names) == 0 {
		return "none"
	}
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

// Quoted returns text from a configuration for a message: in quotes, control characters escaped, cut after 64 bytes.
func Quoted(text string) string {
	const most = 64
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strconv.Quote(text)
}
