package providers

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDetail bounds [Error.Detail] in bytes.
const maxDetail = 512

const masked = "[masked]"

// Whatever looks like a key: the usual prefixes (also when the vendor starred a part out), a bearer token, or a long
// run of letters and digits.
var keyShapes = regexp.MustCompile(`(?i)\bbearer\s+[^\s"',;]+` +
	`|\b(?:sk|pk|rk|ck|gsk|xai|hf|pplx|nvapi|fw|tgp|whsec|ghp|api|key)[-_][-_a-z0-9*.]{6,}` +
	`|\bAIza[-_a-z0-9*]{6,}` +
	`|\beyJ[-_a-z0-9]{8,}[-_a-z0-9.]*` +
	`|[a-z0-9_]{32,}`)

// logDetail makes one line for the logs of what the vendor said.
func logDetail(f vendorFault, apiKey string) string {
	text := f.message
	if len(f.words) > 0 {
		text = strings.Join(f.words, ", ") + ": " + text
	}
	if f.quoted != "" {
		text += " / " + f.quoted
	}
	return logLine(text, apiKey)
}

// logLine masks what looks like a key and the key itself, turns control characters and white space into single
// blanks, mends the UTF-8 and cuts at maxDetail bytes.
func logLine(text, apiKey string) string {
	if len(apiKey) >= 4 {
		text = strings.ReplaceAll(text, apiKey, masked)
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = keyShapes.ReplaceAllString(text, masked)
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }), " ")
	if len(text) <= maxDetail {
		return text
	}
	cut := maxDetail
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
