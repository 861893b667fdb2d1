// Package config has what every part of the configuration needs, in JSON and in the Caddyfile: faults that are collected
// by path and reported together, and references to secrets. The settings themselves are the exported structs of package
// caddymodule.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// Secret is the reference to a secret: exactly one placeholder `{env.NAME}` or `{file.PATH}`. Anything else is refused
// when the configuration is loaded, and never quoted in the error, because it may be the secret itself. The JSON form,
// `GET /config/` and Caddy's autosave show the reference. The secret is read when the configuration is loaded; a
// variable or file that changes takes effect with the next reload.
type Secret string

// secretReference matches the two forms. Names of variables have the portable form only, which leaves no room for a
// default value: it would be a secret in clear text.
var secretReference = regexp.MustCompile(`^\{(?:env\.[A-Za-z_][A-Za-z0-9_]*|file\.[^{}\x00-\x1f]+)\}$`)

// ReferenceForms describes the two forms of a reference in messages.
const ReferenceForms = "exactly one {env.NAME} or {file.PATH}"

// IsReference reports whether s has one of the two forms. Only then may messages quote it.
func (s Secret) IsReference() bool { return secretReference.MatchString(string(s)) }

// Check adds a fault if s is no reference. The message continues with or, which names other allowed values, e.g. ", or
// none".
func (s Secret) Check(fs *Faults, path, or string) {
	if !s.IsReference() {
		fs.Addf(path, "must be %s%s; the secret itself must not be in the configuration", ReferenceForms, or)
	}
}

// CheckRequired is [Secret.Check] for a secret that must be given.
func (s Secret) CheckRequired(fs *Faults, path string) {
	if s == "" {
		fs.Addf(path, "missing; give %s", ReferenceForms)
		return
	}
	s.Check(fs, path, "")
}

// Resolve reads the secret with repl, which needs Caddy's env and file placeholders ([caddy.NewReplacer]), and trims
// white space around it. It fails if s is no reference, the variable isn't set, the file can't be read, or the secret is
// empty. The error names the reference and never holds a secret.
func (s Secret) Resolve(repl *caddy.Replacer) (string, error) {
	if !s.IsReference() {
		return "", errors.New("the secret must be " + ReferenceForms)
	}
	value, err := repl.ReplaceOrErr(string(s), true, true)
	if err == nil {
		if value = strings.TrimSpace(value); value != "" {
			return value, nil
		}
	}
	if after, ok := strings.CutPrefix(string(s), "{file."); ok {
		if cause := unreadable(strings.TrimSuffix(after, "}")); cause != nil {
			return "", fmt.Errorf("%s can't be read or is empty: %w", string(s), cause)
		}
		return "", fmt.Errorf("%s can't be read or is empty", string(s))
	}
	return "", fmt.Errorf("%s is not set", string(s))
}

// unreadable returns why the file can't be opened, without its path, or nil if it can be opened.
func unreadable(path string) error {
	file, err := os.Open(path)
	if err == nil {
		_ = file.Close() // opened for reading only
		return nil
	}
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err
	}
	return err
}

// Identifier is an id that isn't secret, or a reference to it, `{env.NAME}` or `{file.PATH}`, for operators who keep ids
// and secrets in one place.
type Identifier string

// IdentifierForms describes an [Identifier] in messages.
const IdentifierForms = "1 to 128 visible ASCII characters, or " + ReferenceForms

// Check adds a fault if i is missing or has another form. The message never quotes it, because it may be a secret in the
// wrong place.
func (i Identifier) Check(fs *Faults, path string) {
	switch {
	case i == "":
		fs.Addf(path, "missing; give %s", IdentifierForms)
	case Secret(i).IsReference():
	case strings.ContainsAny(string(i), "{}"), !IsIdentifier(string(i)):
		fs.Addf(path, "must be %s", IdentifierForms)
	}
}

// Resolve returns the id, read with repl if i is a reference. The error never contains the value behind the reference.
func (i Identifier) Resolve(repl *caddy.Replacer) (string, error) {
	if !Secret(i).IsReference() {
		return string(i), nil
	}
	read, err := Secret(i).Resolve(repl)
	if err != nil {
		return "", err
	}
	if !IsIdentifier(read) {
		return "", fmt.Errorf("what %s holds is no identifier; allowed: 1 to 128 visible ASCII characters", string(i))
	}
	return read, nil
}

// IsIdentifier reports whether text can be an id in an address or a header: 1 to 128 visible ASCII characters.
func IsIdentifier(text string) bool { return text != "" && len(text) <= 128 && VisibleASCII(text) }

// VisibleASCII reports whether text has visible ASCII characters only, so that it can be sent in a header.
func VisibleASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// Printable reports whether text has up to longest characters, none of them a control character.
func Printable(text string, longest int) bool {
	count := 0
	for _, r := range text {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return false
		}
		count++
	}
	return count <= longest
}
