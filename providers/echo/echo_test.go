package echo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

func ask(text string, stream bool) *providers.Request {
	return &providers.Request{Messages: []providers.Message{
		{Role: "system", Content: providers.Quote("be brief")},
		{Role: "user", Content: providers.Quote("first")},
		{Role: "user", Content: providers.Quote(text)},
		{Role: "assistant", Content: providers.Quote("so?")},
	}, Stream: stream}
}

func TestContract(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Suite{Driver: Driver{}})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"": 0, "  \n": 0, "a": 1, "abcd": 1, "abcde": 2, "abcdefgh": 2, "hi there": 3, "Hello, you!": 5,
		"xin chào": 2, "日本語だよ": 2, "👋👋": 2, "a\xffb": 3, " end ": 1,
	} {
		require.Equal(t, want, Tokens(text), "%q", text)
	}
}

func TestEcho(t *testing.T) {
	t.Parallel()
	// You said : hi \n there  +  be brie f, first, hi there, so ? with 4 for each message
	usage := &providers.Usage{PromptTokens: 3 + 2 + 3 + 2 + 4*4, CompletionTokens: 6}
	for _, test := range []struct {
		change func(*providers.Request)
		want   providertest.Answer
	}{
		{func(*providers.Request) {}, providertest.Answer{Text: "You said: hi\nthere", FinishReason: "stop", Usage: usage}},
		{func(r *providers.Request) { r.MaxTokens = 6 }, providertest.Answer{Text: "You said: hi\nthere", FinishReason: "stop", Usage: usage}},
		{func(r *providers.Request) { r.MaxTokens = 4 }, providertest.Answer{Text: "You said: hi", FinishReason: "length", Usage: &providers.Usage{PromptTokens: 26, CompletionTokens: 4}}},
		{func(r *providers.Request) { r.MaxTokens = 1 }, providertest.Answer{Text: "You", FinishReason: "length", Usage: &providers.Usage{PromptTokens: 26, CompletionTokens: 1}}},
		{func(r *providers.Request) { r.Stop = []string{"there", "\n", ""} }, providertest.Answer{Text: "You said: hi", FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 26, CompletionTokens: 4}}},
		{func(r *providers.Request) { r.Stop = []string{"Y"} }, providertest.Answer{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 26}}},
		{func(r *providers.Request) { r.Stop, r.MaxTokens = []string{"hi"}, 2 }, providertest.Answer{Text: "You said", FinishReason: "length", Usage: &providers.Usage{PromptTokens: 26, CompletionTokens: 2}}},
		{func(r *providers.Request) { r.Messages = r.Messages[3:] }, providertest.Answer{Text: "You said: ", FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 6, CompletionTokens: 3}}},
	} {
		for _, stream := range []bool{false, true} {
			req := ask("hi\nthere", stream)
			test.change(req)
			require.Equal(t, test.want, providertest.Ask(t, &Echo{}, req))
		}
	}
}

func TestEchoStreamsByWords(t *testing.T) {
	t.Parallel()
	events, err := (&Echo{}).Open(t.Context(), ask("one  two", true))
	require.NoError(t, err)
	defer events.Close()
	var pieces []string
	for {
		require.True(t, events.Buffered())
		event, err := events.Next()
		if err != nil {
			break
		}
		pieces = append(pieces, event.Text)
	}
	require.Equal(t, "You |said: |one | |two|", strings.Join(pieces, "|"))
}

func TestEchoDelayAndCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Echo{Delay: time.Second}
		started := time.Now()
		require.Equal(t, "You said: hi", providertest.Ask(t, p, ask("hi", true)).Text)
		require.Equal(t, 4*time.Second, time.Since(started), "three words and the end")

		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		events, err := p.Open(ctx, ask("hi", true))
		require.NoError(t, err)
		require.False(t, events.Buffered())
		time.AfterFunc(1500*time.Millisecond, func() { cancel(gone) })
		came := providertest.Read(t, events)
		require.Equal(t, "You ", came.Text)
		require.ErrorIs(t, providertest.RequireFailure(t, came.Err, providers.FailureCanceled), gone)
		events.Close()
		_, err = p.Open(ctx, ask("hi", false))
		require.ErrorIs(t, providertest.RequireFailure(t, err, providers.FailureCanceled), gone)

		events, err = p.Open(t.Context(), ask("hi", true))
		require.NoError(t, err)
		events.Close()
		events.Close()
		providertest.RequireFailure(t, providertest.Read(t, events).Err, providers.FailureCanceled)
	})
}
