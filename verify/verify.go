// Package verify checks the signatures of inbound webhooks and the subscription handshake of the social platform
// (docs/contract.md#signatures).
//
// It has one pure function per platform over the request's headers, the raw body and the configured secrets. An empty header name
// means the contract's name; real platforms use other names. [HMAC] and [Matches] are for guest modules.
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
	"cmp"
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
	return Matches(h, cmp.Or(header, BotHeader), secretToken)
}

// Social checks a delivery of the social platform: sha256=<hex> of HMAC-SHA256(appSecret, body).
func Social(h http.Header, header, appSecret string, body []byte) error {
	return HMAC(h, cmp.Or(header, SocialHeader), "sha256=", appSecret, body)
}

// MarketA checks a delivery of marketplace A: bare hex of HMAC-SHA256(partnerKey, callbackURL + "|" + body). callbackURL is the
// registered address from the configuration, never the address of the request.
func MarketA(h http.Header, header, partnerKey, callbackURL string, body []byte) error {
	if callbackURL == "" {
		return ErrSignature
	}
	return HMAC(h, cmp.Or(header, MarketAHeader), "", partnerKey, []byte(callbackURL+"|"), body)
}

// MarketB checks a delivery of marketplace B: bare hex of HMAC-SHA256(appSecret, appKey + body).
func MarketB(h http.Header, header, appKey, appSecret string, body []byte) error {
	if appKey == "" {
		return ErrSignature
	}
	return HMAC(h, cmp.Or(header, MarketBHeader), "", appSecret, []byte(appKey), body)
}

// HMAC checks the signature of any platform that signs with prefix and the lower-case hex of HMAC-SHA256(key, signed), where signed are
// the parts of the signed text in their order. An empty key matches nothing. It hashes nothing if the header has another form.
func HMAC(h http.Header, header, prefix, key string, signed ...[]byte) error {
	if key == "" || !HasDigest(h, header, prefix) {
		return ErrSignature
	}
	mac := hmac.New(sha256.New, []byte(key))
	for _, part := range signed {
		mac.Write(part)
	}
	return Matches(h, header, prefix+hex.EncodeToString(mac.Sum(nil)))
}

// Matches checks that the headers have one value of the name header, which is want: a secret, or a signature that was made with a key that isn't
// empty. Empty matches nothing.
func Matches(h http.Header, header, want string) error {
	values := h.Values(header)
	if len(values) != 1 || want == "" || subtle.ConstantTimeCompare([]byte(values[0]), []byte(want)) != 1 {
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

// LocalChatTimestampHeader contains the timestamp of deliveries that have none in the body, as in some configurations of the real
// platform.
const LocalChatTimestampHeader = "X-ZEvent-Timestamp"

// LocalChat checks a delivery of the local chat platform: mac=<hex> of SHA-256(appID + body + timestamp + appSecret). timestamp
// is the body's member of that name, or else the value of [LocalChatTimestampHeader]. A delivery without a timestamp fails, and
// so does a body that isn't a JSON object.
func LocalChat(h http.Header, header, appID, appSecret string, body []byte) error {
	const prefix = "mac="
	header = cmp.Or(header, LocalChatHeader)
	if appID == "" || appSecret == "" || !HasDigest(h, header, prefix) {
		return ErrSignature
	}
	stamp, ok := timestamp(body)
	if sent := h.Values(LocalChatTimestampHeader); ok && stamp == "" && len(sent) == 1 {
		stamp = sent[0]
	}
	if !ok || !isDigits(stamp) {
		return ErrSignature
	}
	sum := sha256.New()
	sum.Write([]byte(appID))
	sum.Write(body)
	sum.Write([]byte(stamp))
	sum.Write([]byte(appSecret))
	return Matches(h, header, prefix+hex.EncodeToString(sum.Sum(nil)))
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
