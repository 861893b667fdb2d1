package verify

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
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
