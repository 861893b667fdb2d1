// Package verify checks the signatures of inbound webhooks and the subscription handshake of the social platform
// (docs/contract.md#signatures).
//
// It has one pure function per platform over the request's headers, the raw body and the configured secrets. An empty header
// name stands for the contract's; real platforms use other names.
//
// Invariants:
//
//   - The raw bytes are hashed, never a parsed or re-encoded form of them.
//   - A comparison with a secret takes the same time wherever the values differ. Only lengths show.
//   - Every failure is the same [ErrSignature], which doesn't reveal the part that was wrong.
//   - A secret that isn't configured matches nothing.
//   - A header given twice matches nothing, even if both values are right: it is unclear which one other software reads.
//   - Hexadecimal digits are lower case, as the platforms send them.
//
// It doesn't find the channel or the secrets, bound the body, or parse it, except for the timestamp that the local chat
// platform hashes. It imports no other package of this module.
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

// ErrSignature reports that a delivery isn't proven to come from the platform: the signature is wrong, missing, repeated or
// malformed, or no secret is configured. Handlers answer 401 unauthenticated.
var ErrSignature = errors.New("the webhook signature does not match")

// The contract's header names, used where a function is given none.
const (
	BotHeader       = "X-Bot-Api-Secret-Token"
	SocialHeader    = "X-Hub-Signature-256"
	LocalChatHeader = "X-Localchat-Event-Signature"
	MarketAHeader   = "Authorization"
	MarketBHeader   = "Authorization"
)

// Bot checks a delivery of the bot platform: the header carries the secret token that was set when the webhook was registered.
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
// registered one, from the configuration, never from the request.
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

// HasDigest reports whether the headers have one signature in the form that the platforms send: prefix and a SHA-256 sum in lower-case
// hexadecimal. It costs no hash.
func HasDigest(h http.Header, header, prefix string) bool {
	values := h.Values(header)
	if len(values) != 1 {
		return false
	}
	digest, prefixed := strings.CutPrefix(values[0], prefix)
	return prefixed && len(digest) == 64 && strings.Trim(digest, "0123456789abcdef") == ""
}

// only returns the value of the header name, or of contract when name is empty, if there is exactly one.
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

// matchesSum reports whether signature is sum in lower-case hexadecimal. It compares the text, so that no other spelling of the
// same bytes passes.
func matchesSum(signature string, sum []byte) bool {
	want := make([]byte, 0, 2*sha256.Size)
	return subtle.ConstantTimeCompare([]byte(signature), hex.AppendEncode(want, sum)) == 1
}

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

// ErrHandshake reports a handshake with another verify token. Handlers answer 403 forbidden.
var ErrHandshake = errors.New("the verify token of the handshake does not match")

// Handshake checks the subscription handshake of the social platform: hub.mode must be subscribe and hub.verify_token the
// configured token; an empty configured token matches nothing. It returns hub.challenge, which the handler echoes as plain
// text. Repeated parameters are refused.
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
