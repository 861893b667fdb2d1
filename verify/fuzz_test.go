package verify

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzHashedSignatures signs any body by each rule: what verifies must not verify any more once a byte of the body or of
// the digest is another, a byte is missing, or one was added.
func FuzzHashedSignatures(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `{"timestamp":"1763650003354"}`, string(signedBody), "\x00\xff", `{"timestamp":"1763650003354"}1`,
		`{"object":"page","entry":[]}`, strings.Repeat("a", 1000),
	} {
		f.Add([]byte(body), uint16(0), byte(1))
		f.Add([]byte(body), uint16(13), byte(0x20))
	}
	f.Fuzz(func(t *testing.T, body []byte, place uint16, change byte) {
		for _, v := range hashedVerifiers() {
			digest := v.sign(body)
			err := v.check(header(v.header, v.prefix+digest), "", body)
			if stamp, ok := timestamp(body); v.name == "localchat" && (!ok || stamp != "1763650003354") {
				require.ErrorIs(t, err, ErrSignature, v.name)
				continue
			}
			require.NoError(t, err, v.name)
			for _, other := range mutations(body, place, change) {
				require.ErrorIs(t, v.check(header(v.header, v.prefix+digest), "", other), ErrSignature, v.name)
			}
			for _, other := range mutations([]byte(digest), place, change) {
				require.ErrorIs(t, v.check(header(v.header, v.prefix+string(other)), "", body), ErrSignature, v.name)
			}
		}
	})
}

// mutations are b with the byte at a place changed, left out and doubled (as something else), and with one behind.
func mutations(b []byte, place uint16, change byte) [][]byte {
	change = max(change, 1)
	all := [][]byte{append(append([]byte{}, b...), change)}
	if len(b) == 0 {
		return all
	}
	i := int(place) % len(b)
	flipped := append([]byte{}, b...)
	flipped[i] ^= change
	without := append(append([]byte{}, b[:i]...), b[i+1:]...)
	with := append(append(append([]byte{}, b[:i]...), b[i]^change), b[i:]...)
	return append(all, flipped, without, with)
}

// FuzzSignatureHeader gives every verifier any header: none may panic or let it pass unless it is the one digest.
func FuzzSignatureHeader(f *testing.F) {
	for _, value := range []string{"", "sha256=", "mac=", "sha256=" + strings.Repeat("0", 64), mac("k", "b"), "Bearer x", "\x00"} {
		f.Add(value, "secret", []byte(`{"timestamp":1}`))
		f.Add(value, "", []byte(``))
	}
	f.Fuzz(func(t *testing.T, value, secret string, body []byte) {
		require.Equal(t, secret != "" && value == secret, Bot(header(BotHeader, value), "", secret) == nil)
		require.Equal(t, secret != "" && value == "sha256="+mac(secret, string(body)), Social(header(SocialHeader, value), "", secret, body) == nil)
		require.Equal(t, secret != "" && value == mac(secret, callback+"|"+string(body)), MarketA(header("Authorization", value), "", secret, callback, body) == nil)
		require.Equal(t, secret != "" && value == mac(secret, "key"+string(body)), MarketB(header("Authorization", value), "", "key", secret, body) == nil)
		stamp, ok := timestamp(body)
		require.Equal(t, ok && stamp != "" && secret != "" && value == "mac="+sum("app"+string(body)+stamp+secret),
			LocalChat(header(LocalChatHeader, value), "", "app", secret, body) == nil)
	})
}

// FuzzHandshake: a challenge comes back only for the one token, and unchanged.
func FuzzHandshake(f *testing.F) {
	f.Add("hub.mode=subscribe&hub.verify_token=token&hub.challenge=1", "token")
	f.Add("hub.mode=subscribe&hub.verify_token=&hub.challenge=1", "")
	f.Add("hub.mode=subscribe&hub.mode=subscribe", "x")
	f.Add("%zz", "x")
	f.Fuzz(func(t *testing.T, query, token string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		challenge, err := Handshake(values, token)
		if err != nil {
			require.ErrorIs(t, err, ErrHandshake)
			require.Empty(t, challenge)
			return
		}
		require.NotEmpty(t, token)
		require.Equal(t, []string{token}, values["hub.verify_token"])
		require.Equal(t, []string{"subscribe"}, values["hub.mode"])
		require.Equal(t, values.Get("hub.challenge"), challenge)
	})
}
