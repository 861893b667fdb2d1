package verify

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHandshake(t *testing.T) {
	t.Parallel()
	for query, challenge := range map[string]string{
		"hub.mode=subscribe&hub.verify_token=token&hub.challenge=1158201444":             "1158201444",
		"hub.challenge=0012345678901234567890&hub.verify_token=token&hub.mode=subscribe": "0012345678901234567890",
		"hub.mode=subscribe&hub.verify_token=token&hub.challenge=%3Cb%3E%26%20x":         "<b>& x",
		"hub.mode=subscribe&hub.verify_token=token&hub.challenge=":                       "",
		"hub.mode=subscribe&hub.verify_token=token":                                      "",
		"hub.mode=subscribe&hub.verify_token=token&hub.challenge=1&other=2":              "1",
	} {
		got, err := Handshake(parsed(t, query), "token")
		require.NoError(t, err, query)
		require.Equal(t, challenge, got)
	}
}

func TestHandshakeRefused(t *testing.T) {
	t.Parallel()
	for _, query := range []string{
		"",
		"hub.challenge=1",
		"hub.verify_token=token&hub.challenge=1",
		"hub.mode=&hub.verify_token=token&hub.challenge=1",
		"hub.mode=unsubscribe&hub.verify_token=token&hub.challenge=1",
		"hub.mode=Subscribe&hub.verify_token=token&hub.challenge=1",
		"hub.mode=subscribe&hub.challenge=1",
		"hub.mode=subscribe&hub.verify_token=&hub.challenge=1",
		"hub.mode=subscribe&hub.verify_token=TOKEN&hub.challenge=1",
		"hub.mode=subscribe&hub.verify_token=toke&hub.challenge=1",
		"hub.mode=subscribe&hub.verify_token=token%00&hub.challenge=1",
		"hub.mode=subscribe&hub.verify_token=token&hub.verify_token=token&hub.challenge=1",
		"hub.mode=subscribe&hub.mode=subscribe&hub.verify_token=token&hub.challenge=1",
		"hub.mode=subscribe&hub.verify_token=token&hub.challenge=1&hub.challenge=2",
		"hub_mode=subscribe&hub_verify_token=token&hub_challenge=1",
	} {
		challenge, err := Handshake(parsed(t, query), "token")
		require.ErrorIs(t, err, ErrHandshake, query)
		require.Empty(t, challenge)
	}
	for _, query := range []string{"hub.mode=subscribe&hub.challenge=1", "hub.mode=subscribe&hub.verify_token=&hub.challenge=1"} {
		_, err := Handshake(parsed(t, query), "")
		require.ErrorIs(t, err, ErrHandshake, "a token that isn't configured matches nothing")
	}
}

func parsed(t *testing.T, query string) url.Values {
	t.Helper()
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	return values
}
