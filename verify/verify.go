// Package verify checks the signatures of inbound webhooks and the subscription handshake of the social platform
// (docs/contract.md#signatures).
//
// It has one pure function per platform over the request's headers, the raw body and the configured secrets. An empty header name
// means the contract's name; real platforms use other names.
//
// Invariants:
//
//   - The raw bytes are hashed, never a parsed or re-encoded form of them.
//   - The time of a comparison with a secret depends only on the lengths of the values.
//   - Every failure is the same [ErrSignature], which doesn't reveal the part that was wrong.
//   - A secret that isn't configured matches nothing.
//   - A repeated header matches nothing, even if both values are right, because other software may read either of them.
//   - Hexadecimal digits are lower case, as the platforms send them.
//
// It doesn't find the channel or the secrets, limit the body, or parse it, except for the timestamp that the local chat platform
// hashes. It imports no other package of this module.
package verify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrSignature reports that a delivery isn't proven to come from the platform, because the signature is wrong, missing, repeated
// or malformed, or because no secret is configured. Handlers answer 401 unauthenticated.
var ErrSignature = errors.New("the webhook signature does not match")

// The contract's header names, which are used if a function is called with an empty name.
const (
	BotHeader       = "X-Bot-Api-Secret-Token"
	SocialHeader    = "X-Hub-Signature-256"
	LocalChatHeader = "X-Localchat-Event-Signature"
	MarketAHeader   = "Authorization"
	MarketBHeader   = "Authorization"
)

// Bot checks a delivery of the bot platform. The header contains the secret token that was set when the webhook was registered.
func Bot(h http.Header, header, secretToken string) error {
	got, ok := only(h, header, BotHeader)
	if !ok || secretToken == "" || subtle.ConstantTimeCompare([]byte(got), []byte(secretToken)) != 1 {
		return ErrSignature
	}
	return nil
}

// Social checks a delivery of the social platform: sha256=<hex> of HMAC-SHA256(appSecret, body).
func Social(h http.Header, header, appSecret string, body []byte) error {
	got, ok := only(h, header, SocialHeader)
	got, prefixed := strings.CutPrefix(got, "sha256=")
	if !ok || !prefixed || appSecret == "" || !matchesMAC(got, appSecret, "", body) {
		return ErrSignature
	}
	return nil
}

// MarketA checks a delivery of marketplace A: bare hex of HMAC-SHA256(partnerKey, callbackURL + "|" + body). callbackURL is the
// registered address from the configuration, never the address of the request.
func MarketA(h http.Header, header, partnerKey, callbackURL string, body []byte) error {
	got, ok := only(h, header, MarketAHeader)
	if !ok || partnerKey == "" || callbackURL == "" || !matchesMAC(got, partnerKey, callbackURL+"|", body) {
		return ErrSignature
	}
	return nil
}

// MarketB checks a delivery of marketplace B: bare hex of HMAC-SHA256(appSecret, appKey + body).
func MarketB(h http.Header, header, appKey, appSecret string, body []byte) error {
	got, ok := only(h, header, MarketBHeader)
	if !ok || appKey == "" || appSecret == "" || !matchesMAC(got, appSecret, appKey, body) {
		return ErrSignature
	}
	return nil
}

// HasDigest reports whether the headers have one signature in the form that the platforms send: prefix and a SHA-256 sum in
// lower-case hexadecimal. It computes no hash.
func HasDigest(h http.Header, header, prefix string) bool {
	values := h.Values(header)
	if len(values) != 1 {
		return false
	}
	digest, prefixed := strings.CutPrefix(values[0], prefix)
	return prefixed && len(digest) == 64 && strings.Trim(digest, "0123456789abcdef") == ""
}

// only returns the value of the header name, or of contract if name is empty. ok is false unless there is exactly one value.
func only(h http.Header, name, contract string) (value string, ok bool) {
	if name == "" {
		name = contract
	}
	values := h.Values(name)
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

// matchesMAC reports whether signature is the HMAC-SHA256 of prefix and body under key.
func matchesMAC(signature, key, prefix string, body []byte) bool {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(prefix))
	mac.Write(body)
	return matchesSum(signature, mac.Sum(nil))
}

// matchesSum reports whether signature is sum in lower-case hexadecimal. It compares texts, so that no other spelling of the same
// bytes passes.
func matchesSum(signature string, sum []byte) bool {
	want := make([]byte, 0, 2*sha256.Size)
	return subtle.ConstantTimeCompare([]byte(signature), hex.AppendEncode(want, sum)) == 1
}

// LocalChatTimestampHeader contains the timestamp of deliveries that have none in the body, as in some configurations of the real
// platform.
const LocalChatTimestampHeader = "X-ZEvent-Timestamp"

// LocalChat checks a delivery of the local chat platform: mac=<hex> of SHA-256(appID + body + timestamp + appSecret). timestamp
// is the body's member of that name, or else the value of [LocalChatTimestampHeader]. A delivery without a timestamp fails, and
// so does a body that isn't a JSON object.
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

// timestamp returns the digits of the member timestamp, a string or a number, as they are written in the body: 1763650003354 must
// not become 1.763650003354e+12. The digits are empty if there is no such member. timestamp reads the whole body, because bytes
// after it that aren't JSON could otherwise be moved between the body and the timestamp without a change of the hash. It keeps no
// other member: the sender isn't authenticated yet, and a body of 8 MiB can have a million.
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
		if found { // the last of repeated members counts, as in most JSON readers
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

// names reports whether a JSON string is the name, with any escapes.
func names(quoted []byte, name string) bool {
	const escaped = len(`\u0000`)
	if len(quoted) > len(name)*escaped+len(`""`) {
		return false
	}
	var text [64]byte
	unquoted, err := jsontext.AppendUnquote(text[:0], quoted)
	return err == nil && string(unquoted) == name
}

// ErrHandshake reports a handshake with a wrong verify token. Handlers answer 403 forbidden.
var ErrHandshake = errors.New("the verify token of the handshake does not match")

// Handshake checks the subscription handshake of the social platform. hub.mode must be subscribe, and hub.verify_token must be
// the configured token; an empty configured token matches nothing. Handshake returns hub.challenge, which the handler sends back
// as plain text. Repeated parameters are refused.
func Handshake(query url.Values, verifyToken string) (challenge string, err error) {
	mode, token := query["hub.mode"], query["hub.verify_token"]
	if len(mode) != 1 || len(token) != 1 || len(query["hub.challenge"]) > 1 || mode[0] != "subscribe" {
		return "", ErrHandshake
	}
	if verifyToken == "" || subtle.ConstantTimeCompare([]byte(token[0]), []byte(verifyToken)) != 1 {
		return "", ErrHandshake
	}
	return query.Get("hub.challenge"), nil
}
