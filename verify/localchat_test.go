package verify

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLocalChatTimestamp: the digits are hashed as the body writes them.
func TestLocalChatTimestamp(t *testing.T) {
	t.Parallel()
	for body, digits := range map[string]string{
		`{"timestamp":"1763650003354"}`:                                        "1763650003354",
		`{"timestamp":1763650003354}`:                                          "1763650003354",
		"{\r\n \"timestamp\" : 1763650003354 }\n":                              "1763650003354",
		`{"t\u0069mestamp":"1"}`:                                               "1",
		`{"timestamp":"1","timestamp":"2"}`:                                    "2",
		`{"timestamp":"017"}`:                                                  "017",
		`{"timestamp":92233720368547758080}`:                                   "92233720368547758080",
		`{"timestamp":"\u0031\u0037"}`:                                         "17",
		`{"message":{"timestamp":"1"},"timestamp":"2"}`:                        "2",
		`{"timestamp":"2","Timestamp":"3","TIMESTAMP":"4"}`:                    "2",
		"{\"text\":\"\xff\xfe \\ud800\",\"timestamp\":\"5\"}":                  "5",
		`{"text":"` + strings.Repeat("x", 300_000) + `","timestamp":"123456"}`: "123456",
	} {
		signed := header(LocalChatHeader, "mac="+sum("app"+body+digits+"secret"))
		require.NoError(t, LocalChat(signed, "", "app", "secret", []byte(body)), body)
	}
}

// TestLocalChatUnhashable: what has no timestamp can't be signed, however it is hashed.
func TestLocalChatUnhashable(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		``, `{`, `null`, `[]`, `"x"`, `{}`, `[{"timestamp":"1"}]`,
		`{"timestamp":null}`, `{"timestamp":""}`, `{"timestamp":true}`, `{"timestamp":{}}`, `{"timestamp":["1"]}`,
		`{"timestamp":"x"}`, `{"timestamp":" 1"}`, `{"timestamp":-1}`, `{"timestamp":1.5}`, `{"timestamp":1e3}`,
		`{"Timestamp":"1"}`, `{"message":{"timestamp":"1"}}`,
		`{"timestamp":"1"}}`, `{"timestamp":"1"} 1`, `{"timestamp":"1"`,
	} {
		for _, digits := range []string{"", "1", "null", "true", "{}", `["1"]`, "x", " 1", "-1", "1.5", "1e3"} {
			signed := header(LocalChatHeader, "mac="+sum("app"+body+digits+"secret"))
			require.ErrorIs(t, LocalChat(signed, "", "app", "secret", []byte(body)), ErrSignature, "%s with %q", body, digits)
		}
	}
}

// TestLocalChatTimestampInAHeader: a body without a timestamp is hashed with the header's; one that has its own with that, and what
// can't be hashed stays so.
func TestLocalChatTimestampInAHeader(t *testing.T) {
	t.Parallel()
	signed := func(body, digits string, stamps ...string) error {
		h := header(LocalChatHeader, "mac="+sum("app"+body+digits+"secret"))
		for _, stamp := range stamps {
			h.Add(LocalChatTimestampHeader, stamp)
		}
		return LocalChat(h, "", "app", "secret", []byte(body))
	}
	const without, with = `{"event_name":"user_send_text"}`, `{"timestamp":"2"}`
	require.NoError(t, signed(without, "1763650003354", "1763650003354"))
	require.NoError(t, signed(with, "2", "1763650003354"))
	for _, stamps := range [][]string{nil, {""}, {"x"}, {"1763650003354", "1763650003354"}, {"1763650003355"}, {" 1763650003354"}} {
		require.ErrorIs(t, signed(without, "1763650003354", stamps...), ErrSignature, stamps)
	}
	for _, stamp := range []string{"", "x", "-1", "1.5", "1x"} {
		require.ErrorIs(t, signed(without, stamp, stamp), ErrSignature, "%q has other than digits", stamp)
	}
	require.ErrorIs(t, signed(with, "1", "1"), ErrSignature, "the body's counts")
	require.ErrorIs(t, signed(without+"17", "63", "63"), ErrSignature)
	require.ErrorIs(t, signed(without, "1763", "63"), ErrSignature)
	for _, body := range []string{``, `{`, `null`, `[]`, `"x"`, `{"timestamp":null}`, `{"timestamp":""}`, `{"timestamp":1.5}`, `{} 1`} {
		require.ErrorIs(t, signed(body, "1", "1"), ErrSignature, body)
	}
}

// TestLocalChatShiftedBytes: digits moved from the timestamp to the end of the body hash to the same sum.
func TestLocalChatShiftedBytes(t *testing.T) {
	t.Parallel()
	body := `{"timestamp":"1712"}`
	signed := header(LocalChatHeader, "mac="+sum("app"+body+"1712"+"secret"))
	require.NoError(t, LocalChat(signed, "", "app", "secret", []byte(body)))
	for _, moved := range []string{body + "1", body + "17", body + "171", body + "1712"} {
		require.ErrorIs(t, LocalChat(signed, "", "app", "secret", []byte(moved)), ErrSignature, moved)
	}
}

// TestLocalChatIsNoHMAC: the rule is a plain hash.
func TestLocalChatIsNoHMAC(t *testing.T) {
	t.Parallel()
	body := `{"timestamp":"1"}`
	for _, message := range []string{"app" + body + "1", "app" + body + "1secret", body} {
		signed := header(LocalChatHeader, "mac="+mac("secret", message))
		require.ErrorIs(t, LocalChat(signed, "", "app", "secret", []byte(body)), ErrSignature)
	}
}

// TestLocalChatKeepsNothingOfABody: a body is read before its signature is verified, so its members cost nothing
// beside the bytes themselves.
func TestLocalChatKeepsNothingOfABody(t *testing.T) {
	const members = 50_000
	body := []byte(`{"timestamp":"1"` + strings.Repeat(`,"a":1,"b":"c"`, members/2) + `}`)
	signed := header(LocalChatHeader, "mac="+sum("app"+string(body)+"1"+"secret"))
	allocations := testing.AllocsPerRun(5, func() {
		require.NoError(t, LocalChat(signed, "", "app", "secret", body))
	})
	require.Less(t, allocations, 100.0)
}
