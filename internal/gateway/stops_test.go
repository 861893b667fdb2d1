package gateway_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

func stopping(stops ...string) func(*gateway.Request) {
	return func(r *gateway.Request) { r.Stop = stops }
}

// TestStopsOfTheVendor: the vendor gets the stop sequences that it accepts, in their order, and the call applies the others.
func TestStopsOfTheVendor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		most          int
		refusesBlank  bool
		drop          bool
		stops, sent   []string
		text, applied string
	}{
		"as many as accepted":  {most: 2, stops: []string{"b", "c"}, sent: []string{"b", "c"}, text: "abcde", applied: "abcde"},
		"any number":           {most: -1, stops: []string{"b", "c"}, sent: []string{"b", "c"}, text: "abcde", applied: "abcde"},
		"one more":             {most: 2, stops: []string{"x", "y", "d"}, sent: []string{"x", "y"}, text: "abcde", applied: "abc"},
		"none accepted":        {stops: []string{"d", "c"}, text: "abcde", applied: "ab"},
		"dropped":              {most: -1, drop: true, stops: []string{"d"}, text: "abcde", applied: "abc"},
		"white space":          {most: 2, refusesBlank: true, stops: []string{"\n", "x", "y"}, sent: []string{"x", "y"}, text: "a\nb", applied: "a"},
		"white space accepted": {most: 2, stops: []string{"\n"}, sent: []string{"\n"}, text: "a\nb", applied: "a\nb"},
		"empty":                {stops: []string{""}, text: "ab", applied: "ab"},
		"none":                 {refusesBlank: true, text: "ab", applied: "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: []step{text(test.text), finish("length"), usage(10, 20, 0)}},
				func(m *gateway.Model, p *gateway.ProviderEntry) {
					m.DropStop, p.MaxStops, p.RefusesBlankStops = test.drop, test.most, test.refusesBlank
				})
			result, err := f.Call(t.Context(), request(stopping(test.stops...)), nil)
			require.NoError(t, err)
			require.Equal(t, test.applied, result.Text)
			require.Equal(t, map[bool]string{true: "length", false: "stop"}[test.applied == test.text], result.FinishReason)
			require.Equal(t, test.sent, f.script.seen()[0].Stop)
			require.EqualValues(t, 10+2*20, result.ChargedMicros, "an answer in one piece costs as reported")
		})
	}
}

// TestStopOfAStream: the text ends before the stop sequence, and so does the vendor's call, which costs the text that was made. A text that may
// be the beginning of a stop waits for its decision.
func TestStopOfAStream(t *testing.T) {
	t.Parallel()
	quoted := func(s string) step { return step{event: providers.Event{Quoted: providers.Quote(s)}} }
	const prompt = 12 // a third of 35 bytes
	for name, test := range map[string]struct {
		steps   []step
		text    []string
		finish  string
		charged int64
		source  billing.UsageSource
	}{
		"in two pieces": {
			steps: []step{text("one E"), text("ND two"), {hang: true}}, text: []string{"one "},
			finish: "stop", charged: prompt + 2*4, source: billing.UsageEstimated,
		},
		"in literals": {
			steps: []step{quoted("one\nE"), quoted("ND \"two\""), {hang: true}}, text: []string{"one\n"},
			finish: "stop", charged: prompt + 2*5, source: billing.UsageEstimated,
		},
		"at the beginning": {
			steps: []step{text("END"), {hang: true}}, finish: "stop", charged: prompt + 2, source: billing.UsageEstimated,
		},
		"the prompt reported": {
			steps: []step{usage(7, 1, 0), text("one EN"), text("D"), {hang: true}}, text: []string{"one "},
			finish: "stop", charged: 7 + 2*(1+3), source: billing.UsageEstimated,
		},
		"all reported": {
			steps: []step{{event: providers.Event{Text: "one END", Usage: &providers.Usage{PromptTokens: 7, CompletionTokens: 3}}}, {hang: true}},
			text:  []string{"one "}, finish: "stop", charged: 7 + 2*3, source: billing.UsageProvider,
		},
		"it doesn't come": {
			steps: []step{text("one E"), text("N"), text(" two E"), finish("length"), usage(10, 20, 0)}, text: []string{"one ", "EN two ", "E"},
			finish: "length", charged: 50, source: billing.UsageProvider,
		},
		"with the finish reason": {
			steps: []step{text("one E"), {event: providers.Event{Text: "ND", FinishReason: "length"}}, usage(10, 20, 0)}, text: []string{"one "},
			finish: "stop", charged: prompt + 2*3, source: billing.UsageEstimated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: test.steps})
			closed := -1
			sink := newClient()
			sink.onFlush = func() { closed = f.script.closings() }
			result, err := f.Call(t.Context(), request(streamed, stopping("END", "EN!")), sink)
			require.NoError(t, err)
			require.Equal(t, test.text, sink.text)
			require.Equal(t, test.finish, result.FinishReason)
			require.Equal(t, test.charged, result.ChargedMicros)
			require.Equal(t, test.source, f.ended(t).UsageSource)
			require.Equal(t, test.charged, f.spent(t))
			if test.finish == "stop" && len(test.text) > 0 {
				require.Equal(t, 1, closed, "the vendor's call has ended before the settlement")
			}
		})
	}
}

// TestUntouchedLiterals: a piece in which no stop may begin is passed on as the vendor's literal.
func TestUntouchedLiterals(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: []step{
		{event: providers.Event{Quoted: providers.Quote("a \"b\"\n")}},
		{event: providers.Event{Quoted: providers.Quote("E")}},
		{event: providers.Event{Quoted: providers.Quote("x")}},
		{event: providers.Event{Quoted: providers.Quote("y")}},
		finish("stop"),
	}})
	sink := &quotingClient{client: newClient()}
	_, err := f.Call(t.Context(), request(streamed, stopping("END")), sink)
	require.NoError(t, err)
	require.Equal(t, []string{`"a \"b\"\n"`, `"y"`}, sink.quoted)
	require.Equal(t, []string{"Ex"}, sink.text)
}

// TestStopOfAReasoningModel: the vendor's call goes on to its end, because only the usage counts hidden tokens. The client has its text
// before, and nothing of the rest, however the vendor's call ends.
func TestStopOfAReasoningModel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end     []step
		charged int64
		source  billing.UsageSource
	}{
		"to its end":  {end: []step{finish("length"), usage(10, 90, 0)}, charged: 190, source: billing.UsageProvider},
		"broken off":  {end: []step{broken(providers.FailureUnreachable)}, charged: 12 + 2*8, source: billing.UsageEstimated},
		"no usage":    {end: []step{finish("stop")}, charged: 12 + 2*8, source: billing.UsageEstimated},
		"a late stop": {end: []step{text(" END"), finish("stop"), usage(10, 90, 0)}, charged: 190, source: billing.UsageProvider},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{})
			f := setup(t, &script{steps: append([]step{text("one END two"), {until: begun}, text(" and three E")}, test.end...)},
				func(m *gateway.Model, _ *gateway.ProviderEntry) { m.Reasoning = true })
			sink := newClient()
			sink.onFlush = func() {
				require.Equal(t, []string{"one "}, sink.text)
				close(begun)
			}
			result, err := f.Call(t.Context(), request(streamed, stopping("END")), sink)
			require.NoError(t, err)
			require.Equal(t, []string{"one "}, sink.text)
			require.Equal(t, "stop", result.FinishReason)
			require.Equal(t, test.charged, result.ChargedMicros)
			require.Equal(t, test.source, f.ended(t).UsageSource)
		})
	}
}

// TestStopBeforeABreak: a text that was held back reaches its client before the error, and a stop that was only waiting for a longer one ends the
// answer as a whole one.
func TestStopBeforeABreak(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text, passed string
		failed       bool
	}{
		"no stop":       {"one ab", "one ab", true},
		"a waiting one": {"one abcd", "one ab", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: []step{text(test.text), broken(providers.FailureUnreachable)}})
			sink := newClient()
			_, err := f.Call(t.Context(), request(streamed, stopping("abcdX", "cd")), sink)
			require.Equal(t, test.failed, err != nil)
			require.Equal(t, test.passed, strings.Join(sink.text, ""))
		})
	}
}

// TestStopOfAReplayAndATurn: an answer that a stop has ended is kept and stored as its client got it.
func TestStopOfAReplayAndATurn(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: []step{text("one E"), text("ND two"), {hang: true}}})
	first, again := newClient(), newClient()
	made, err := f.Call(t.Context(), request(streamed, keyed, stopping("END")), first)
	require.NoError(t, err)
	repeated, err := f.Call(t.Context(), request(streamed, keyed, stopping("END")), again)
	require.NoError(t, err)
	require.True(t, repeated.Replayed)
	require.Equal(t, made.ChargedMicros, repeated.ChargedMicros)
	require.Equal(t, "stop", repeated.FinishReason)
	require.Equal(t, []string{"one "}, first.text)
	require.Equal(t, first.text, again.text)
	require.Len(t, f.script.seen(), 1)

	var turn playedTurn
	f.script.steps = []step{text("one END two"), finish("length"), usage(10, 20, 0)}
	_, err = f.Call(t.Context(), request(turn.of, stopping("END")), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"one "}, turn.texts)
}

// TestClientLeavesAtAStop: a client that is gone when its stop comes has a whole answer, at the price of the text that was made.
func TestClientLeavesAtAStop(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	f := setup(t, &script{steps: []step{text("one E"), {do: leave}, text("ND"), {hang: true}}})
	_, err := f.Call(ctx, request(streamed, keyed, stopping("END")), newClient())
	require.NoError(t, err)
	require.EqualValues(t, 12+2*3, f.spent(t))
}

// TestHeldBackTextIsNoText: while all of a text is held back, the status comes as early as without text.
func TestHeldBackTextIsNoText(t *testing.T) {
	t.Parallel()
	flushed := make(chan struct{})
	f := setup(t, &script{steps: []step{text("EN"), {until: flushed}, text("D")}}).early(time.Millisecond)
	sink := newClient()
	sink.onFlush = func() { close(flushed) }
	_, err := f.Call(t.Context(), request(streamed, stopping("END")), sink)
	require.NoError(t, err)
	require.Empty(t, sink.text)
}

// TestStopsAreBounded: stop sequences that only the gateway can apply have a limit together, which the vendor's don't have, and need room.
func TestStopsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 128<<10)
	var asked int64
	room := func(left int64) func(*gateway.Request) {
		return func(r *gateway.Request) {
			r.Room = func(bytes int64) bool {
				asked = bytes
				return bytes <= left
			}
		}
	}
	f := setup(t, &script{steps: answered()}, func(_ *gateway.Model, p *gateway.ProviderEntry) { p.MaxStops = 1 })
	_, err := f.Call(t.Context(), request(streamed, stopping(long, "y"+long, "z"+long[1:])), newClient())
	refused := requireFailure(t, err, gateway.OutcomeInvalidRequest)
	require.Equal(t, "stop", refused.Field)
	require.Contains(t, refused.Message, "allowed: 262144")
	_, err = f.Call(t.Context(), request(streamed, stopping(long, "y"+long), room(1<<20)), newClient())
	requireFailure(t, err, gateway.OutcomeTooManyCalls)
	require.Empty(t, f.script.seen())
	_, err = f.Call(t.Context(), request(streamed, stopping(long, "y"+long), room(4<<20)), newClient())
	require.NoError(t, err)
	require.EqualValues(t, 20*(1+len(long)), asked)
	_, err = f.Call(t.Context(), request(streamed, stopping(long), room(0)), newClient())
	require.NoError(t, err, "the vendor applies it")
}
