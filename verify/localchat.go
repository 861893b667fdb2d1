package verify

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// LocalChatTimestampHeader has the timestamp of deliveries whose body has none.
const LocalChatTimestampHeader = "X-ZEvent-Timestamp"

// LocalChat checks a delivery of the local chat platform: mac=<hex> of SHA-256(appID + body + timestamp + appSecret), where
// timestamp is the body's member of that name, or, where there is none, [LocalChatTimestampHeader]. A body that is no JSON object
// fails, and one without any timestamp.
func LocalChat(h http.Header, header, appID, appSecret string, body []byte) error {
	got, ok := only(h, header, LocalChatHeader)
	got, prefixed := strings.CutPrefix(got, "mac=")
	if !ok || !prefixed || appID == "" || appSecret == "" {
		return ErrSignature
	}
	stamp, ok := timestamp(body)
	if ok && stamp == "" {
		stamp, ok = only(h, "", LocalChatTimestampHeader)
		ok = ok && isDigits(stamp)
	}
	if !ok {
		return ErrSignature
	}
	sum := sha256.New()
	sum.Write([]byte(appID))
	sum.Write(body)
	sum.Write([]byte(stamp))
	sum.Write([]byte(appSecret))
	if !matchesSum(got, sum.Sum(nil)) {
		return ErrSignature
	}
	return nil
}

// timestamp returns the digits of the member timestamp as they are written in the body, as a string or as a number:
// 1763650003354 must not become 1.763650003354e+12; "" if there is no such member. It reads the whole body, because bytes behind it that
// are no JSON could otherwise be moved between the body and the timestamp without changing what is hashed. The sender isn't
// authenticated yet, so no member is kept: a body of 8 MiB can have a million.
func timestamp(body []byte) (digits string, ok bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if opening, err := d.ReadToken(); err != nil || opening.Kind() != '{' {
		return "", false
	}
	var written []byte
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil {
			return "", false
		}
		found := names(name, "timestamp")
		value, err := d.ReadValue()
		if err != nil {
			return "", false
		}
		if found { // the last of repeated members counts, as for most JSON readers
			written = append(written[:0], value...)
		}
	}
	if closing, err := d.ReadToken(); err != nil || closing.Kind() != '}' {
		return "", false
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return "", false
	}
	if written == nil {
		return "", true
	}
	digits = string(written)
	if bytes.HasPrefix(written, []byte(`"`)) {
		unquoted, err := jsontext.AppendUnquote(nil, written)
		if err != nil {
			return "", false
		}
		digits = string(unquoted)
	}
	return digits, isDigits(digits)
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// names reports whether the JSON string is the name, however its characters are escaped.
func names(quoted []byte, name string) bool {
	const escaped = len(`\u0000`)
	if len(quoted) > len(name)*escaped+len(`""`) {
		return false
	}
	var text [64]byte
	unquoted, err := jsontext.AppendUnquote(text[:0], quoted)
	return err == nil && string(unquoted) == name
}
