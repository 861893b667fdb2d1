package providers

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestLogLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Incorrect API key provided: sk-upstream-secret-1234.":              "Incorrect API key provided: [masked]",
		"Incorrect API key provided: sk-proj-********************abcd, see": "Incorrect API key provided: [masked], see",
		"header was Authorization: Bearer abc.def-ghi, no":                  "header was Authorization: [masked], no",
		"key gsk_0123456789 and AIzaSyD-0123 and ck_live_abcdef":            "key [masked] and [masked] and [masked]",
		"jwt eyJhbGciOiJIUzI1NiJ9.e30.sig":                                  "jwt [masked]",
		"hex 0123456789abcdef0123456789abcdef end":                          "hex [masked] end",
		"your own key operators-word was wrong":                             "your own key [masked] was wrong",
		"model gpt-4o-mini-2024-07-18 not found in org-x":                   "model gpt-4o-mini-2024-07-18 not found in org-x",
		"two\r\nlines\tand\x00\x1b[31m nul\u0085":                           "two lines and [31m nul",
		"bad \xff utf-8": "bad \uFFFD utf-8",
	} {
		require.Equal(t, want, logLine(text, "operators-word"))
	}
	// Masked before it is cut, cut between characters.
	require.NotContains(t, logLine(strings.Repeat("é ", 167)+"x sk-upstream-secret-1234", ""), "sk-")
	cut := logLine(strings.Repeat("é!", 500), "")
	require.LessOrEqual(t, len(cut), maxDetail)
	require.Greater(t, len(cut), maxDetail-4)
	require.True(t, utf8.ValidString(cut))
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	cause := http.ErrAbortHandler
	e := &Error{Failure: FailureRefused, Status: 401, Detail: "no", Cause: cause}
	require.Equal(t, "model call failed (refused, status 401): "+cause.Error(), e.Error())
	require.ErrorIs(t, e, cause)
	require.Equal(t, "model call failed (timeout)", (&Error{Failure: FailureTimeout}).Error())
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"https://api.example.com/v1":     "https://api.example.com/v1/chat/completions",
		"https://api.example.com/v1/":    "https://api.example.com/v1/chat/completions",
		"http://127.0.0.1:11434":         "http://127.0.0.1:11434/chat/completions",
		"http://127.0.0.1:11434/":        "http://127.0.0.1:11434/chat/completions",
		"http://host/openai/deployments": "http://host/openai/deployments/chat/completions",
		"https://x/a%2Fb/v1?version=1":   "https://x/a%2Fb/v1/chat/completions?version=1",
	} {
		u, err := endpoint(base)
		require.NoError(t, err)
		require.Equal(t, want, u.String())
		require.Equal(t, "/", u.RequestURI()[:1])
	}
}

// A stream that sends more than any answer can be long ends as no answer.
func TestCappedReader(t *testing.T) {
	t.Parallel()
	got, err := io.ReadAll(&cappedReader{strings.NewReader("12345"), 5})
	require.NoError(t, err)
	require.Equal(t, "12345", string(got))
	_, err = io.ReadAll(&cappedReader{strings.NewReader("123456"), 5})
	require.ErrorIs(t, err, errAnswerTooLarge)
}

// Whatever a dialect reports, its error keeps the contract.
func FuzzTidy(f *testing.F) {
	f.Add("overloaded", "Please retry\r\n sk-upstream-secret-1234", int64(34), "key")
	f.Add("", "<html>\xff", int64(-1), "")
	f.Add("refused", strings.Repeat("é", 600), int64(time.Hour), "\x00")
	f.Fuzz(func(t *testing.T, failure, detail string, retry int64, apiKey string) {
		e := tidy(&Error{Failure: Failure(failure), Detail: detail, RetryAfter: time.Duration(retry)}, 500, apiKey)
		require.NotEmpty(t, e.Failure)
		require.Equal(t, 500, e.Status)
		require.LessOrEqual(t, len(e.Detail), maxDetail)
		require.True(t, utf8.ValidString(e.Detail))
		require.False(t, strings.ContainsAny(e.Detail, "\r\n\x00\x1b"))
		if e.RetryAfter != 0 {
			require.Equal(t, FailureOverloaded, e.Failure)
			require.GreaterOrEqual(t, e.RetryAfter, time.Second)
			require.LessOrEqual(t, e.RetryAfter, time.Minute)
		}
	})
}

// A model's name reaches traces, so it is short and printable.
func TestPlainModel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "", "gpt-5-2026-08-07": "gpt-5-2026-08-07", "accounts/acme/models/m@1:free+x": "accounts/acme/models/m@1:free+x",
		"two words": "", "a\nb": "", "\x7f": "", "é": "", strings.Repeat("m", 128): strings.Repeat("m", 128), strings.Repeat("m", 129): "",
	} {
		require.Equal(t, want, plainModel(name))
	}
}

// The text of an error of any other type may quote the vendor.
func TestAsError(t *testing.T) {
	t.Parallel()
	e := asError(errors.New("unhappy with operators-word"), 200, "operators-word")
	require.Equal(t, &Error{Failure: FailureRefused, Elsewhere: true, Status: 200, Detail: "unhappy with [masked]"}, e)
	require.NotContains(t, e.Error(), "unhappy")
	refused := Unwritable("stop", "At most 4.")
	require.Same(t, refused, asError(fmt.Errorf("write the request: %w", refused), 0, ""))
}

// A finish reason reaches the client, so it is one of OpenAI's words.
func TestPlainReason(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"": "stop", "stop": "stop", "length": "length", "content_filter": "content_filter", "LENGTH": "stop", "model_length": "stop",
		"tool_calls": "stop", "two words": "stop", "\x00": "stop", "length\n": "stop",
	} {
		require.Equal(t, want, plainReason(reason))
	}
}

// endpoint is the address that requests of the OpenAI-compatible interface go to.
func endpoint(base string) (*url.URL, error) { return Endpoint(base, "chat/completions") }
