package worker

import (
	"slices"

	"github.com/rivo/uniseg"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
)

const (
	// bytesPerToken is the basis of estimates. The vocabularies of today's models have about 4.5 bytes of English, 3 of
	// Vietnamese or Chinese in a token; for texts with fewer than 2 (rare scripts, random letters) the vendor reports that the
	// context is too long, and is asked again with less.
	bytesPerToken = 2
	// messageTokens and promptTokens are the costs of a message and a prompt besides the text, as in the gateway's bound.
	messageTokens = 8
	promptTokens  = 16
	// Shares of the window: at most a quarter is kept free for the answer, long instructions leave at least an eighth to the
	// customer's texts, and documents get a quarter at most.
	outputPart    = 4
	waitingPart   = 8
	knowledgePart = 4
)

// prompt has the parts of a prompt.
type prompt struct {
	// Instructions are the assistant's, or empty.
	Instructions string
	// History is the earlier conversation, oldest first; Waiting are the texts to answer, in order.
	History, Waiting []inbox.Message
	// Knowledge are the snippets of documents that fit, the best first.
	Knowledge []knowledge.Snippet
	// Window is the size of the model's context and MaxOutput the bound of its answer, in tokens.
	Window, MaxOutput int64
}

// build returns the messages: instructions, history, snippets, waiting texts. It fits them into the window by estimate, with
// room for the answer: the oldest history is dropped first, then snippets. Waiting texts stay, unless they alone exceed the
// room; then their newest part stays. history is the range of the history and the snippets in messages: a shorter prompt drops
// them from the front.
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

// reference returns the snippets as a message, if they fit into room. Its role is the user's, so that a document has no more
// authority than the customer.
func (p prompt) reference(room int64) []message {
	text := knowledge.Reference(p.Knowledge, (room-messageTokens)*bytesPerToken)
	if text == "" {
		return nil
	}
	return []message{{Role: "user", Content: text}}
}

// newestPart returns the waiting messages, or as much of their end as room holds, but never nothing.
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

// newest returns the newest messages that fit into room, without a gap.
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

// said returns a message of the conversation in the vendor's terms. A person's message counts as the assistant's: to the
// customer both are the business.
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

// tokens estimates the cost of a text as a message, on the safe side (see bytesPerToken).
func tokens(text string) int64 {
	return (int64(len(text))+bytesPerToken-1)/bytesPerToken + messageTokens
}

// tail returns the longest end of text that begins at a grapheme and has at most size bytes.
func tail(text string, size int64) string {
	state := -1
	for int64(len(text)) > max(size, 0) {
		_, text, _, state = uniseg.FirstGraphemeClusterInString(text, state)
	}
	return text
}
