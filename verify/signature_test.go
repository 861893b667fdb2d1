package verify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPublicVectors holds digests that others published, so that a mistake which signer and verifier share shows.
func TestPublicVectors(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct{ key, message, digest string }{
		"nyaruka/courier TestSigning, first":  {"sesame", "hello world", "f39034b29165ec6a5104d9aef27266484ab26c8caa7bca8bcb2dd02e8be61b17"},
		"nyaruka/courier TestSigning, second": {"sesame", "hello world2", "60905fdf409d0b4f721e99f6f25b31567a68a6b45e933d814e17a246be4c5a53"},
		"frain-dev/convoy":                    {"Convoy", "Test Payload Body", "d7a154547e7c35e31c4c820e20237650939c3d34dae136e30a7757ca61abb4cf"},
		"GitHub webhook documentation":        {"It's a Secret to Everybody", "Hello, World!", "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
		"RFC 4231, test case 2":               {"Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signed := header(SocialHeader, "sha256="+v.digest)
			require.NoError(t, Social(signed, "", v.key, []byte(v.message)))
			require.ErrorIs(t, Social(signed, "", v.key, []byte(v.message+" ")), ErrSignature)
			require.ErrorIs(t, Social(signed, "", v.key+"x", []byte(v.message)), ErrSignature)
		})
	}
}

// TestMarketBVector is the vendor's own example; the dots are literal (open.lazada.com, push guide, SignatureUtil).
func TestMarketBVector(t *testing.T) {
	t.Parallel()
	body := []byte(`{"seller_id":"1234567", "message_type":0, "data":{...}..}`)
	signed := header("Authorization", "f3d2ca947f16a50b577c036adecd18bec126ea19cadedd59816e255d3b6104ab")
	require.NoError(t, MarketB(signed, "", "123456", "3412gyo124goi3124", body))
	require.ErrorIs(t, MarketB(signed, "", "1234567", "3412gyo124goi3124", body), ErrSignature)
}

func TestBot(t *testing.T) {
	t.Parallel()
	require.NoError(t, Bot(header(BotHeader, "s3cret_TOKEN-1"), "", "s3cret_TOKEN-1"))
	for name, bad := range map[string]http.Header{
		"missing":             {},
		"empty":               header(BotHeader, ""),
		"another channel's":   header(BotHeader, "s3cret_TOKEN-2"),
		"other case":          header(BotHeader, "S3CRET_TOKEN-1"),
		"a part of it":        header(BotHeader, "s3cret"),
		"more than it":        header(BotHeader, "s3cret_TOKEN-1x"),
		"with a blank":        header(BotHeader, "s3cret_TOKEN-1 "),
		"twice":               header(BotHeader, "s3cret_TOKEN-1", "s3cret_TOKEN-1"),
		"in two, one wrong":   header(BotHeader, "s3cret_TOKEN-1", "x"),
		"under another name":  header("X-Telegram-Bot-Api-Secret-Token", "s3cret_TOKEN-1"),
		"in an Authorization": header("Authorization", "s3cret_TOKEN-1"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, Bot(bad, "", "s3cret_TOKEN-1"), ErrSignature)
		})
	}
}

// hashed is a verifier over a body, with everything but the headers and the body configured, and how its platform signs.
type hashed struct {
	name, header, prefix string
	check                func(h http.Header, header string, body []byte) error
	sign                 func(body []byte) string
}

const callback = "https://svc.example/webhooks/market-a"

func hashedVerifiers() []hashed {
	return []hashed{
		{
			"social", SocialHeader, "sha256=",
			func(h http.Header, header string, body []byte) error { return Social(h, header, "app secret", body) },
			func(body []byte) string { return mac("app secret", string(body)) },
		},
		{
			"localchat", LocalChatHeader, "mac=",
			func(h http.Header, header string, body []byte) error {
				return LocalChat(h, header, "255", "secret", body)
			},
			func(body []byte) string { return sum("255" + string(body) + "1763650003354" + "secret") },
		},
		{
			"market a", "Authorization", "",
			func(h http.Header, header string, body []byte) error {
				return MarketA(h, header, "partner key", callback, body)
			},
			func(body []byte) string { return mac("partner key", callback+"|"+string(body)) },
		},
		{
			"market b", "Authorization", "",
			func(h http.Header, header string, body []byte) error {
				return MarketB(h, header, "key", "secret", body)
			},
			func(body []byte) string { return mac("secret", "key"+string(body)) },
		},
	}
}

// A signature in the form of a platform may be wrong; what isn't in that form never is a signature.
func TestHasDigest(t *testing.T) {
	t.Parallel()
	digest := mac("another secret", "body")
	for _, v := range hashedVerifiers() {
		require.True(t, HasDigest(header(v.header, v.prefix+digest), v.header, v.prefix), v.name)
		for name, values := range map[string][]string{
			"missing": nil, "empty": {""}, "another prefix": {"x" + v.prefix + digest}, "bearer": {"Bearer " + digest}, "short": {v.prefix + digest[1:]},
			"long": {v.prefix + digest + "0"}, "upper case": {v.prefix + strings.ToUpper(digest)}, "no digit": {v.prefix + digest[1:] + "g"},
			"twice": {v.prefix + digest, v.prefix + digest},
		} {
			require.False(t, HasDigest(header(v.header, values...), v.header, v.prefix), "%s: %s", v.name, name)
			require.ErrorIs(t, v.check(header(v.header, values...), "", signedBody), ErrSignature, "%s: %s", v.name, name)
		}
	}
}

var signedBody = []byte(`{"text":"Ch\u00e0o \/ <b>",  "timestamp":"1763650003354","emoji":"` + "\U0001F600" + `"}` + "\n")

func TestHashedSignatures(t *testing.T) {
	t.Parallel()
	for _, v := range hashedVerifiers() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			digest := v.sign(signedBody)
			require.NoError(t, v.check(header(v.header, v.prefix+digest), "", signedBody))
			require.NoError(t, v.check(header("X-Elsewhere", v.prefix+digest), "x-elsewhere", signedBody), "the header's name can be set")
			require.ErrorIs(t, v.check(header(v.header, v.prefix+digest), "X-Elsewhere", signedBody), ErrSignature)

			raw, err := hex.DecodeString(digest)
			require.NoError(t, err)
			for name, values := range map[string][]string{
				"missing":               nil,
				"empty":                 {""},
				"the prefix alone":      {v.prefix},
				"another prefix":        {"sha1=" + digest},
				"the prefix in capital": {strings.ToUpper(v.prefix) + "x" + digest},
				"the prefix twice":      {v.prefix + "sha256=" + digest},
				"upper case":            {v.prefix + strings.ToUpper(digest)},
				"cut short":             {v.prefix + digest[:62]},
				"too long":              {v.prefix + digest + "00"},
				"one digit off":         {v.prefix + flipLast(digest)},
				"base64":                {v.prefix + base64.StdEncoding.EncodeToString(raw)},
				"raw bytes":             {v.prefix + string(raw)},
				"with a blank":          {v.prefix + " " + digest},
				"bearer":                {"Bearer " + v.prefix + digest},
				"twice":                 {v.prefix + digest, v.prefix + digest},
				"one good, one bad":     {v.prefix + digest, "x"},
				"two in one":            {v.prefix + digest + ", " + v.prefix + digest},
			} {
				require.ErrorIs(t, v.check(header(v.header, values...), "", signedBody), ErrSignature, name)
			}
			for name, body := range map[string]string{
				"none":          "",
				"cut short":     string(signedBody[:len(signedBody)-2]),
				"no line end":   strings.TrimSuffix(string(signedBody), "\n"),
				"re-serialised": strings.ReplaceAll(string(signedBody), `\u00e0`, "à"),
				"slash":         strings.ReplaceAll(string(signedBody), `\/`, "/"),
				"blanks":        strings.ReplaceAll(string(signedBody), "  ", " "),
				"html-escaped":  strings.ReplaceAll(string(signedBody), "<", `\u003c`),
				"more behind":   string(signedBody) + " ",
			} {
				require.ErrorIs(t, v.check(header(v.header, v.prefix+digest), "", []byte(body)), ErrSignature, name)
			}
		})
	}
}

// TestPrefixIsNeeded: a digest without its prefix is no signature of the platforms that have one.
func TestPrefixIsNeeded(t *testing.T) {
	t.Parallel()
	for _, v := range hashedVerifiers() {
		if v.prefix == "" {
			require.ErrorIs(t, v.check(header(v.header, "sha256="+v.sign(signedBody)), "", signedBody), ErrSignature, v.name)
			continue
		}
		require.ErrorIs(t, v.check(header(v.header, v.sign(signedBody)), "", signedBody), ErrSignature, v.name)
	}
}

// TestNothingConfigured signs with the empty secret, as an attacker could, and must not get in.
func TestNothingConfigured(t *testing.T) {
	t.Parallel()
	body, plain := signedBody, string(signedBody)
	require.ErrorIs(t, Bot(header(BotHeader, ""), "", ""), ErrSignature)
	require.ErrorIs(t, Bot(http.Header{}, "", ""), ErrSignature)
	require.ErrorIs(t, Social(header(SocialHeader, "sha256="+mac("", plain)), "", "", body), ErrSignature)
	require.ErrorIs(t, LocalChat(header(LocalChatHeader, "mac="+sum("255"+plain+"1763650003354")), "", "255", "", body), ErrSignature)
	require.ErrorIs(t, LocalChat(header(LocalChatHeader, "mac="+sum(plain+"1763650003354secret")), "", "", "secret", body), ErrSignature)
	require.ErrorIs(t, MarketA(header("Authorization", mac("", callback+"|"+plain)), "", "", callback, body), ErrSignature)
	require.ErrorIs(t, MarketA(header("Authorization", mac("partner key", "|"+plain)), "", "partner key", "", body), ErrSignature)
	require.ErrorIs(t, MarketB(header("Authorization", mac("", "key"+plain)), "", "key", "", body), ErrSignature)
	require.ErrorIs(t, MarketB(header("Authorization", mac("secret", plain)), "", "", "secret", body), ErrSignature)
}

// TestMarketACallback: the callback counts to the last slash, and has one separator.
func TestMarketACallback(t *testing.T) {
	t.Parallel()
	for _, base := range []string{callback + "/|", callback, callback + "||", "http://evil.example/webhooks/market-a|", ""} {
		signed := header("Authorization", mac("partner key", base+string(signedBody)))
		require.ErrorIs(t, MarketA(signed, "", "partner key", callback, signedBody), ErrSignature, base)
	}
}

// TestMarketsDoNotMix: neither marketplace takes the other's rule, even with the same secret.
func TestMarketsDoNotMix(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, MarketA(header("Authorization", mac("s", "k"+string(signedBody))), "", "s", callback, signedBody), ErrSignature)
	require.ErrorIs(t, MarketB(header("Authorization", mac("s", callback+"|"+string(signedBody))), "", "k", "s", signedBody), ErrSignature)
	require.ErrorIs(t, MarketB(header("Authorization", mac("s", "k|"+string(signedBody))), "", "k", "s", signedBody), ErrSignature)
}

// header is a header as a server reads it.
func header(name string, values ...string) http.Header {
	h := http.Header{}
	for _, value := range values {
		h.Add(name, value)
	}
	return h
}

func mac(key, message string) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(message))
	return hex.EncodeToString(m.Sum(nil))
}

func sum(message string) string {
	digest := sha256.Sum256([]byte(message))
	return hex.EncodeToString(digest[:])
}

func flipLast(digest string) string {
	last := "0"
	if strings.HasSuffix(digest, "0") {
		last = "1"
	}
	return digest[:len(digest)-1] + last
}

// TestOfGuests guarantees that the functions for other platforms accept the one signature, in its one header, and nothing without a key.
func TestOfGuests(t *testing.T) {
	t.Parallel()
	const name = "X-Guest-Signature"
	parts := [][]byte{[]byte("v0:"), []byte("17:"), []byte("{}")}
	good := "v0=" + mac("key", "v0:17:{}")
	require.NoError(t, HMAC(header(name, good), name, "v0=", "key", parts...))
	require.NoError(t, Matches(header(name, good), name, good))
	for _, wrong := range []string{"", "v0=", good + "0", good[:len(good)-1], "v1=" + good[3:], "v0=" + strings.ToUpper(good[3:]), "v0=" + mac("", "v0:17:{}")} {
		require.ErrorIs(t, HMAC(header(name, wrong), name, "v0=", "key", parts...), ErrSignature, wrong)
		require.ErrorIs(t, Matches(header(name, wrong), name, good), ErrSignature, wrong)
	}
	require.ErrorIs(t, HMAC(header(name, "v0="+mac("", "v0:17:{}")), name, "v0=", "", parts...), ErrSignature, "an empty key")
	require.ErrorIs(t, HMAC(header(name, good), name, "v0=", "key", parts[1:]...), ErrSignature, "another text")
	require.ErrorIs(t, Matches(header(name, ""), name, ""), ErrSignature, "nothing to compare with")
	twice := header(name, good)
	twice.Add(name, good)
	require.ErrorIs(t, HMAC(twice, name, "v0=", "key", parts...), ErrSignature)
	require.ErrorIs(t, Matches(twice, name, good), ErrSignature)
}
