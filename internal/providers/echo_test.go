package providers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func ask(text string, stream bool) *Request {
	return &Request{Messages: []Message{
		{Role: "system", Content: Quote("be brief")},
		{Role: "user", Content: Quote("first")},
		{Role: "user", Content: Quote(text)},
		{Role: "assistant", Content: Quote("so?")},
	}, Stream: stream}
}

func TestEchoTokens(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"": 0, "  \n": 0, "a": 1, "abcd": 1, "abcde": 2, "abcdefgh": 2, "hi there": 3, "Hello, you!": 5,
		"xin chào": 2, "日本語だよ": 2, "👋👋": 2, "a\xffb": 3, " end ": 1,
	} {
		require.Equal(t, want, EchoTokens(text), "%q", text)
	}
}

func TestEcho(t *testing.T) {
	t.Parallel()
	// You said : hi \n there  +  be brie f, first, hi there, so ? with 4 for each message
	usage := &Usage{PromptTokens: 3 + 2 + 3 + 2 + 4*4, CompletionTokens: 6}
	for _, test := range []struct {
		change func(*Request)
		want   whatCame
	}{
		{func(*Request) {}, whatCame{"You said: hi\nthere", "stop", usage, nil}},
		{func(r *Request) { r.MaxTokens = 6 }, whatCame{"You said: hi\nthere", "stop", usage, nil}},
		{func(r *Request) { r.MaxTokens = 4 }, whatCame{"You said: hi", "length", &Usage{26, 4, 0, 0}, nil}},
		{func(r *Request) { r.MaxTokens = 1 }, whatCame{"You", "length", &Usage{26, 1, 0, 0}, nil}},
		{func(r *Request) { r.Stop = []string{"there", "\n", ""} }, whatCame{"You said: hi", "stop", &Usage{26, 4, 0, 0}, nil}},
		{func(r *Request) { r.Stop = []string{"Y"} }, whatCame{"", "stop", &Usage{26, 0, 0, 0}, nil}},
		{func(r *Request) { r.Stop, r.MaxTokens = []string{"hi"}, 2 }, whatCame{"You said", "length", &Usage{26, 2, 0, 0}, nil}},
		{func(r *Request) { r.Messages = r.Messages[3:] }, whatCame{"You said: ", "stop", &Usage{6, 3, 0, 0}, nil}},
	} {
		for _, stream := range []bool{false, true} {
			req := ask("hi\nthere", stream)
			test.change(req)
			require.Equal(t, test.want, call1(t, NewEcho(), req))
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
		require.Equal(t, "You said: hi", call1(t, p, ask("hi", true)).text)
		require.Equal(t, 4*time.Second, time.Since(started), "three words and the end")

		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		events, err := p.Open(ctx, ask("hi", true))
		require.NoError(t, err)
		require.False(t, events.Buffered())
		time.AfterFunc(1500*time.Millisecond, func() { cancel(gone) })
		came := readOut(t, events)
		require.Equal(t, "You ", came.text)
		require.ErrorIs(t, requireFailure(t, came.err, FailureCanceled), gone)
		events.Close()
		_, err = p.Open(ctx, ask("hi", false))
		require.ErrorIs(t, requireFailure(t, err, FailureCanceled), gone)

		events, err = p.Open(t.Context(), ask("hi", true))
		require.NoError(t, err)
		events.Close()
		events.Close()
		requireFailure(t, readOut(t, events).err, FailureCanceled)
	})
}
