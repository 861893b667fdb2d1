package caddymodule

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// Secret is the reference to a secret: wholly one `{env.NAME}` or `{file.PATH}` placeholder (design §4 "Secrets").
// Anything else is refused at load, and never quoted in the refusal, because it may be the secret itself. The
// reference stays as it is in the JSON form, in `GET /config/` and in Caddy's autosave; the secret behind it is read
// when the configuration is loaded, and a changed variable or file counts from the next reload on.
type Secret string

// secretReference matches the two forms. Variable names are held to the portable form, which leaves no room for a
// default value, where a secret would stand in clear.
var secretReference = regexp.MustCompile(`^\{(?:env\.[A-Za-z_][A-Za-z0-9_]*|file\.[^{}\x00-\x1f]+)\}$`)

// referenceForms is how messages name what is allowed.
const referenceForms = "exactly one {env.NAME} or {file.PATH}"

// wellFormed reports whether s is a reference. Its text may be quoted in messages only if it is.
func (s Secret) wellFormed() bool { return secretReference.MatchString(string(s)) }

// faults notes whether s can stand at path; allowed names what else may stand there, e.g. " or none".
func (s Secret) faults(fs *faults, path, allowed string) {
	if !s.wellFormed() {
		fs.addf(path, "must be %s%s; a secret itself doesn't belong into the configuration", referenceForms, allowed)
	}
}

// Resolve reads the secret behind the reference with repl, which needs Caddy's env and file placeholders
// ([caddy.NewReplacer]). White space around the secret is cut off. The error names the reference and never holds a
// secret: the reference is malformed, the variable is not set, the file can't be read, or what was read is empty.
func (s Secret) Resolve(repl *caddy.Replacer) (string, error) {
	if !s.wellFormed() {
		return "", errors.New("the secret must be " + referenceForms)
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

// unreadable says why the file can't be opened, without its path, which the reference names; nil if it can.
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

// Identifier is a name that isn't secret, as it stands, or the reference to it: wholly one `{env.NAME}` or `{file.PATH}`,
// for operators who keep ids and secrets in one place.
type Identifier string

const identifierForm = "1 to 128 visible ASCII characters, or " + referenceForms

// faults notes whether the identifier can stand at path. It is never quoted: it could be a secret in the wrong place.
func (i Identifier) faults(fs *faults, path string) {
	switch {
	case i == "":
		fs.addf(path, "missing; give %s", identifierForm)
	case Secret(i).wellFormed():
	case strings.ContainsAny(string(i), "{}"), !identifier(string(i)):
		fs.addf(path, "must be %s", identifierForm)
	}
}

// identifier reports whether text can be an id in an address or a header.
func identifier(text string) bool { return text != "" && len(text) <= 128 && headerSafe(text) }

// Resolve returns the identifier, read with repl if it is a reference. The error names the reference only.
func (i Identifier) Resolve(repl *caddy.Replacer) (string, error) {
	if !Secret(i).wellFormed() {
		return string(i), nil
	}
	read, err := Secret(i).Resolve(repl)
	if err != nil {
		return "", err
	}
	if !identifier(read) {
		return "", fmt.Errorf("what %s holds is no identifier; allowed: 1 to 128 visible ASCII characters", string(i))
	}
	return read, nil
}
