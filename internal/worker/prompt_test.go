package worker

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
)

func from(author, text string) inbox.Message {
	return inbox.Message{Author: author, Kind: inbox.KindText, Text: text}
}

func event(author, name string) inbox.Message {
	return inbox.Message{Author: author, Kind: inbox.KindEvent, Text: name}
}

func customer(texts ...string) (messages []inbox.Message) {
	for _, text := range texts {
		messages = append(messages, from(inbox.AuthorCustomer, text))
	}
	return messages
}

func TestPromptKeepsTheOrderAndTheVoices(t *testing.T) {
	t.Parallel()
	messages, history := prompt{
		Instructions: "Sell shoes.",
		History: []inbox.Message{
			from(inbox.AuthorCustomer, "hi"),
			from(inbox.AuthorAssistant, "hello"),
			event(inbox.AuthorCustomer, "image"),
			from(inbox.AuthorHuman, "nice picture"),
			event(inbox.AuthorHuman, "image"),
		},
		Waiting: customer("size 42?", "in red"),
		Window:  1000, MaxOutput: 100,
	}.build()
	require.Equal(t, []message{
		{"system", "Sell shoes."},
		{"user", "hi"},
		{"assistant", "hello"},
		{"user", "[image]"},
		{"assistant", "nice picture"},
		{"assistant", "[image]"},
		{"user", "size 42?"},
		{"user", "in red"},
	}, messages)
	require.Equal(t, span{1, 6}, history)
}

func TestPromptWithoutInstructionsHasNoSystemMessage(t *testing.T) {
	t.Parallel()
	messages, history := prompt{Waiting: customer("hi"), Window: 1000, MaxOutput: 100}.build()
	require.Equal(t, []message{{"user", "hi"}}, messages)
	require.Equal(t, span{}, history)
}

// TestPromptFitsTheWindow: ten tokens a text. The room is the window without the answer's reserve and the prompt's own
// overhead.
func TestPromptFitsTheWindow(t *testing.T) {
	t.Parallel()
	text := func(name string) string { return name + strings.Repeat(".", 2*(10-messageTokens)-len(name)) }
	history := []inbox.Message{
		from(inbox.AuthorCustomer, text("a")), from(inbox.AuthorAssistant, text("b")), from(inbox.AuthorCustomer, text("c")),
	}
	waiting := customer(text("x"), text("y"), text("z"))
	tests := map[string]struct {
		room      int64 // beside reserve and overhead
		maxOutput int64
		want      string // first letters of what is kept
	}{
		"all":                            {room: 60, maxOutput: 20, want: "abcxyz"},
		"the oldest goes first":          {room: 59, maxOutput: 20, want: "bcxyz"},
		"only what waits":                {room: 39, maxOutput: 10, want: "xyz"},
		"what waits exactly fills":       {room: 30, maxOutput: 10, want: "xyz"},
		"the oldest that waits is cut":   {room: 29, maxOutput: 5, want: ".yz"},
		"the oldest that waits is gone":  {room: 28, maxOutput: 5, want: "yz"},
		"something is kept in any case":  {room: 9, maxOutput: 5, want: "."},
		"reserve is a quarter at most":   {room: 60, maxOutput: 1 << 40, want: "abcxyz"},
		"the next quarter shows the cut": {room: 59, maxOutput: 1 << 40, want: "bcxyz"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			window := test.room + promptTokens + test.maxOutput
			if test.maxOutput > window/outputPart {
				window = (test.room + promptTokens) * 4 / 3
				if window-window/outputPart-promptTokens != test.room {
					window++
				}
				require.Equal(t, test.room, window-window/outputPart-promptTokens, "the test's own window")
			}
			messages, _ := prompt{History: history, Waiting: waiting, Window: window, MaxOutput: test.maxOutput}.build()
			var got strings.Builder
			for _, m := range messages {
				got.WriteString(m.Content[:1])
			}
			require.Equal(t, test.want, got.String())
		})
	}
}

func TestPromptKeepsTheEndOfATextThatIsTooLong(t *testing.T) {
	t.Parallel()
	flag := "🇻🇳"
	text := strings.Repeat(flag, 1000) + "what does it cost?"
	messages, _ := prompt{History: customer("old"), Waiting: customer("older", text), Window: 200, MaxOutput: 10}.build()
	require.Len(t, messages, 1)
	kept := messages[0].Content
	require.True(t, strings.HasSuffix(text, kept))
	require.True(t, strings.HasPrefix(kept, flag), "a flag was cut in half: %q", kept)
	require.Greater(t, len(kept), 200)
	require.LessOrEqual(t, tokens(kept), int64(200-10-promptTokens))
}

func TestLongInstructionsLeaveRoomForTheQuestion(t *testing.T) {
	t.Parallel()
	messages, _ := prompt{
		Instructions: strings.Repeat("rule ", 1000), History: customer("old"), Waiting: customer("where is my order?"),
		Window: 400, MaxOutput: 100,
	}.build()
	require.Len(t, messages, 2, "instructions are never cut: the vendor decides whether they fit")
	require.Equal(t, message{"user", "where is my order?"}, messages[1])
}

// FuzzPrompt: whatever is said, the prompt keeps to its room, ends with the newest text and never breaks a character.
func FuzzPrompt(f *testing.F) {
	f.Add("be kind", "old", "question", int64(100), int64(20))
	f.Add("", strings.Repeat("é", 300), strings.Repeat("🇻🇳", 40), int64(64), int64(0))
	f.Add(strings.Repeat("x", 999), "", "a", int64(-5), int64(-9))
	f.Add("\xff", "\xf0\x9f", "e\u0301\u0301", int64(1), int64(1))
	f.Fuzz(func(t *testing.T, instructions, past, waits string, window, maxOutput int64) {
		window, maxOutput = window%1_000_000, maxOutput%1_000_000
		p := prompt{
			Instructions: instructions, History: customer(past, past, past), Waiting: customer(past, waits),
			Window: window, MaxOutput: maxOutput,
		}
		messages, history := p.build()
		require.GreaterOrEqual(t, len(messages), history.To)
		last := messages[len(messages)-1]
		require.Equal(t, "user", last.Role)
		require.True(t, strings.HasSuffix(waits, last.Content))
		if utf8.ValidString(waits) {
			require.True(t, utf8.ValidString(last.Content))
			require.LessOrEqual(t, uniseg.GraphemeClusterCount(last.Content), uniseg.GraphemeClusterCount(waits))
		}
		if instructions == "" && window > 1000 && maxOutput >= 0 {
			total := int64(promptTokens)
			for _, m := range messages {
				total += tokens(m.Content)
			}
			require.LessOrEqual(t, total, window-min(maxOutput, window/outputPart))
		}
	})
}
