package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rivo/uniseg"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/providers"
)

const (
	// bytesPerToken is the basis of estimates. The vocabularies of today's models have about 4.5 bytes of English, 3 of
	// Vietnamese or Chinese in a token; for texts with fewer than 2 (rare scripts, random letters) the vendor reports that the
	// context is too long, and is repeated with less.
	bytesPerToken = 2
	// messageTokens and promptTokens are the costs of a message and a prompt besides the text, as in the gateway's bound.
	messageTokens = 8
	promptTokens  = 16
	// Shares of the window: up to a quarter is kept free for the answer, long instructions leave at least an eighth to the customer's
	// texts, and documents get up to a quarter.
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
	var reference []message
	if text := knowledge.Reference(p.Knowledge, (min(room, p.Window/knowledgePart)-messageTokens)*bytesPerToken); text != "" {
		// Its role is the user's, so that a document has no more authority than the customer.
		reference = []message{{Role: "user", Content: text}}
		room -= tokens(text)
	}
	past := append(newest(p.History, room), reference...)
	history = span{From: len(messages), To: len(messages) + len(past)}
	return append(append(messages, past...), waiting...), history
}

// newestPart returns the waiting messages, or as much of their end as room holds, but never nothing.
func newestPart(waiting []inbox.Message, room int64) (kept []message, used int64) {
	for _, m := range slices.Backward(waiting) {
		line := inPrompt(m)
		cost := tokens(line.Content)
		if used+cost > room {
			line.Content = tail(line.Content, (room-used-messageTokens)*bytesPerToken)
			if line.Content != "" || len(kept) == 0 {
				kept = append(kept, line)
			}
			used = room
			break
		}
		used += cost
		kept = append(kept, line)
	}
	slices.Reverse(kept)
	return kept, used
}

// newest returns the newest messages that fit into room, without a gap.
func newest(past []inbox.Message, room int64) []message {
	var kept []message
	for _, m := range slices.Backward(past) {
		line := inPrompt(m)
		if room -= tokens(line.Content); room < 0 {
			break
		}
		kept = append(kept, line)
	}
	slices.Reverse(kept)
	return kept
}

// inPrompt returns a message of the conversation in the vendor's terms. A person's message counts as the assistant's: to the
// customer both are the business.
func inPrompt(m inbox.Message) message {
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

// tail returns the longest end of text that begins at a grapheme and has up to size bytes.
func tail(text string, size int64) string {
	state := -1
	for int64(len(text)) > max(size, 0) {
		_, text, _, state = uniseg.FirstGraphemeClusterInString(text, state)
	}
	return text
}

// storedRequest is a turn's request as it is stored, sealed, with the turn. A repeated turn sends exactly this, however its
// agent or history has changed.
type storedRequest struct {
	Model            string    `json:"model"`
	Messages         []message `json:"messages"`
	MaxTokens        int64     `json:"maxTokens,omitempty"`
	TemperatureMilli *int64    `json:"temperatureMilli,omitempty"`
	BYOK             bool      `json:"byok,omitempty"`
	// History is the range of earlier messages, and of documents after them, that may be dropped: [From, To).
	History span `json:"history"`
	// Since is when the first of the turn's texts was stored, in epoch milliseconds by the database's clock.
	Since int64 `json:"since"`
	// First is the platform's id of the first text.
	First string `json:"first"`
	// MayHandOver: the instructions name the mark that hands the conversation over.
	MayHandOver bool `json:"mayHandOver,omitempty"`
	// Person is the reason to hand the conversation over without asking the model; then there are no messages.
	Person string `json:"person,omitempty"`
}

// message is one message of a prompt.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// span is a range of messages, To excluded.
type span struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// newRequest returns the request for the waiting texts of a conversation.
func newRequest(agent *store.Agent, model *gateway.Model, p prompt) *storedRequest {
	p.Instructions = agent.Instructions
	switch {
	case agent.Handover && agent.Instructions == "":
		p.Instructions = handoverInstructions
	case agent.Handover:
		p.Instructions += "\n\n" + handoverInstructions
	}
	p.Window, p.MaxOutput = model.ContextWindow, model.MaxOutputTokens
	if agent.MaxTokens > 0 {
		p.MaxOutput = min(p.MaxOutput, agent.MaxTokens)
	}
	r := &storedRequest{Model: agent.Model, MaxTokens: agent.MaxTokens, BYOK: agent.UseBYOK, MayHandOver: agent.Handover}
	r.Messages, r.History = p.build()
	if agent.TemperatureMilli.Valid {
		r.TemperatureMilli = &agent.TemperatureMilli.Int64
	}
	return r
}

// decodeRequest parses a stored request.
func decodeRequest(encoded []byte) (*storedRequest, error) {
	r := &storedRequest{}
	if err := json.Unmarshal(encoded, r); err != nil {
		return nil, fmt.Errorf("reading a turn's stored request: %w", err)
	}
	if h := r.History; len(r.Messages) == 0 && r.Person == "" || h.From < 0 || h.To < h.From || h.To > len(r.Messages) {
		return nil, errors.New("a turn's stored request makes no sense")
	}
	return r, nil
}

// halve drops the older half of the history, rounded up. It returns false when there is none left.
func (r *storedRequest) halve() bool {
	length := r.History.To - r.History.From
	if length == 0 {
		return false
	}
	drop := (length + 1) / 2
	r.Messages = slices.Delete(slices.Clone(r.Messages), r.History.From, r.History.From+drop)
	r.History.To -= drop
	return true
}

// call returns the gateway's form of the request. The worker spends the live wallet.
func (r *storedRequest) call(orgID, turnID string) *gateway.Request {
	call := &gateway.Request{
		RequestID: turnID, OrgID: orgID, Env: store.Live, Model: r.Model, MaxTokens: r.MaxTokens, BYOK: r.BYOK,
		Messages: store.Column(r.Messages, func(m message) providers.Message {
			return providers.Message{Role: m.Role, Content: providers.Quote(m.Content)}
		}),
	}
	if r.TemperatureMilli != nil {
		temperature := float64(*r.TemperatureMilli) / 1000
		call.Temperature = &temperature
	}
	return call
}

// PlaygroundCall returns the call that would answer waiting texts if they were a customer's, so that the playground shows a customer's
// answer. snippets are the results of [knowledge.Library.Search] for the waiting texts in the agent's knowledge bases, up to
// [knowledge.PromptSnippets]; history is the earlier conversation, oldest first. The caller sets RequestID, KeyID and Stream; there is no
// turn.
func PlaygroundCall(agent *store.Agent, model *gateway.Model, snippets []knowledge.Snippet, history, waiting []inbox.Message) *gateway.Request {
	p := prompt{History: history, Waiting: waiting, Knowledge: snippets}
	call := newRequest(agent, model, p).call(agent.OrgID, "")
	call.AgentID = agent.ID
	return call
}

const (
	// threadTime bounds the reading of people's messages.
	threadTime = 5 * time.Second
	// threadAge is how old a person's message is taken in: an older one doesn't pause the assistant.
	threadAge = 24 * time.Hour
)

// looksFirst reports whether newer messages of people have to be read from the platform before an answer is sent.
func (p *pass) looksFirst() bool { return p.Platforms.ReadsThreads(p.channelType()) }

// lookForPeople enqueues messages that people of the business wrote to the customer in the platform's own app, as if the platform had
// reported it. If a person has the conversation then, the queue refuses to mark the answer as being sent. A platform that doesn't tell
// holds up no answer: to be silent permanently would be worse.
func (p *pass) lookForPeople(ctx context.Context) error {
	if !p.looksFirst() || p.credentials == nil { // without credentials nothing can be sent either
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, threadTime)
	found, err := p.Platforms.ReadThread(bounded, platforms.Thread{
		Type: p.channelType(), ExternalID: p.work.Channel.ExternalID, Conversation: p.lease.CustomerRef, Credentials: p.credentials,
	})
	cancel()
	if err != nil {
		p.Logger.WarnContext(ctx, "what people of the business wrote can't be read", "channel", p.work.Channel.ID, "error", err)
		return nil
	}
	var items []inbox.Item
	for i := range found {
		if in := &found[i]; p.Now().Sub(in.SentAt) < threadAge {
			items = append(items, inbox.ItemOf(in, ""))
		}
	}
	if len(items) == 0 {
		return nil
	}
	bounded, cancel = storing(ctx)
	defer cancel()
	route, known, err := p.DB.Routes.ByID(bounded, p.work.Channel.ID)
	if err == nil && known {
		err = p.Queue.Enqueue(bounded, []inbox.Arrival{{Route: route, Items: items}})
	}
	return store.Wrap("storing what people of the business wrote", err)
}
