package worker

import (
	"slices"

	"github.com/rivo/uniseg"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
)

const (
	// bytesPerToken is the estimate's measure. The vocabularies of today's models take about 4.5 bytes of English, 3 of
	// Vietnamese or Chinese for a token; what takes fewer than 2 (rare scripts, random letters) is caught by the vendor,
	// who finds the context too long, and is asked again with less.
	bytesPerToken = 2
	// messageTokens and promptTokens are what a message and a prompt cost besides the text, as in the gateway's bound.
	messageTokens = 8
	promptTokens  = 16
	// outputPart, waitingPart and knowledgePart are shares of the window: at most a quarter is kept free for the answer,
	// long instructions leave at least an eighth to what the customer asks now, and what documents say about it takes a
	// quarter at most.
	outputPart    = 4
	waitingPart   = 8
	knowledgePart = 4
)

// prompt is what a prompt is built from.
type prompt struct {
	// Instructions are the assistant's, empty for none.
	Instructions string
	// History is the conversation so far, oldest first; Waiting are the texts to answer, in order.
	History, Waiting []inbox.Message
	// Knowledge is what documents say about it, the best first.
	Knowledge []knowledge.Snippet
	// Window is the size of the model's context and MaxOutput the bound of its answer, in tokens.
	Window, MaxOutput int64
}

// build makes the messages: instructions, history, what documents say, what waits. It fits them into the window by
// estimate, with room for the answer: the oldest history goes first, then what documents say. What waits is never dropped,
// unless it alone exceeds the room; then its newest part stays. history says where the past and the documents stand among
// the messages: who shortens the prompt drops them from the front.
func (p prompt) build() (messages []message, history span) {
	room := p.Window - min(p.MaxOutput, p.Window/outputPart) - promptTokens
	if p.Instructions != "" {
		messages = append(messages, message{Role: "system", Content: p.Instructions})
		room -= tokens(p.Instructions)
	}
	waiting, used := newestPart(p.Waiting, max(room, p.Window/waitingPart))
	room -= used
	reference := p.reference(min(room, p.Window/knowledgePart))
	for _, m := range reference {
		room -= tokens(m.Content)
	}
	past := append(newest(p.History, room), reference...)
	history = span{From: len(messages), To: len(messages) + len(past)}
	return append(append(messages, past...), waiting...), history
}

// reference shows what documents say, if it fits into room. It speaks as the user, so that it has no more say than the
// customer has.
func (p prompt) reference(room int64) []message {
	text := knowledge.Reference(p.Knowledge, (room-messageTokens)*bytesPerToken)
	if text == "" {
		return nil
	}
	return []message{{Role: "user", Content: text}}
}

// newestPart keeps all of the waiting messages, or as much of their end as room holds, but something in any case.
func newestPart(waiting []inbox.Message, room int64) (kept []message, used int64) {
	for _, m := range slices.Backward(waiting) {
		said := said(m)
		cost := tokens(said.Content)
		if used+cost > room {
			said.Content = tail(said.Content, (room-used-messageTokens)*bytesPerToken)
			if said.Content != "" || len(kept) == 0 {
				kept = append(kept, said)
			}
			used = room
			break
		}
		used += cost
		kept = append(kept, said)
	}
	slices.Reverse(kept)
	return kept, used
}

// newest keeps the newest messages that fit into room, without a gap.
func newest(past []inbox.Message, room int64) []message {
	var kept []message
	for _, m := range slices.Backward(past) {
		said := said(m)
		if room -= tokens(said.Content); room < 0 {
			break
		}
		kept = append(kept, said)
	}
	slices.Reverse(kept)
	return kept
}

// said is a message of the conversation in the vendor's terms. What a human of the business wrote counts as the
// assistant's: to the customer it is one voice.
func said(m inbox.Message) message {
	out := message{Role: "assistant", Content: m.Text}
	if m.Author == inbox.AuthorCustomer {
		out.Role = "user"
	}
	if m.Kind == inbox.KindEvent {
		out.Content = "[" + m.Text + "]"
	}
	return out
}

// tokens estimates what a text costs as a message, on the safe side (see bytesPerToken).
func tokens(text string) int64 {
	return (int64(len(text))+bytesPerToken-1)/bytesPerToken + messageTokens
}

// tail is the longest end of text that begins at a grapheme and has at most size bytes.
func tail(text string, size int64) string {
	state := -1
	for int64(len(text)) > max(size, 0) {
		_, text, _, state = uniseg.FirstGraphemeClusterInString(text, state)
	}
	return text
}
