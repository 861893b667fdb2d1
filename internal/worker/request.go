package worker

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

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

// newRequest returns the request that answers the waiting texts of a conversation.
func newRequest(agent *store.Agent, model *gateway.Model, p prompt) *storedRequest {
	p.Instructions = instructed(agent)
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

func (r *storedRequest) encode() ([]byte, error) {
	encoded, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding a turn's request: %w", err)
	}
	return encoded, nil
}

// decodeRequest parses what encode wrote.
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
	kept := make([]message, 0, len(r.Messages)-drop)
	kept = append(kept, r.Messages[:r.History.From]...)
	kept = append(kept, r.Messages[r.History.From+drop:]...)
	r.Messages, r.History.To = kept, r.History.To-drop
	return true
}

// call returns the gateway's form of the request. The worker spends the live wallet.
func (r *storedRequest) call(orgID, turnID string) *gateway.Request {
	call := &gateway.Request{
		RequestID: turnID, OrgID: orgID, Env: store.Live, Model: r.Model, MaxTokens: r.MaxTokens, BYOK: r.BYOK,
		Messages: make([]providers.Message, len(r.Messages)),
	}
	for i, m := range r.Messages {
		call.Messages[i] = providers.Message{Role: m.Role, Content: providers.Quote(m.Content)}
	}
	if r.TemperatureMilli != nil {
		temperature := float64(*r.TemperatureMilli) / 1000
		call.Temperature = &temperature
	}
	return call
}

// PlaygroundCall returns the call that would answer waiting texts if they were a customer's, so that the playground shows what
// customers get. snippets are the results of [knowledge.Library.Search] for the waiting texts in the agent's knowledge bases,
// at most [knowledge.PromptSnippets]; history is the earlier conversation, oldest first. The caller sets RequestID, KeyID and
// Stream; there is no turn.
func PlaygroundCall(
	agent *store.Agent, model *gateway.Model, snippets []knowledge.Snippet, history, waiting []inbox.Message,
) *gateway.Request {
	p := prompt{History: history, Waiting: waiting, Knowledge: snippets}
	return newRequest(agent, model, p).call(agent.OrgID, "")
}
