package worker

import (
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// PlaygroundCall is the call that would answer waiting texts, were they a customer's: what is tried out is what customers
// get. snippets are what [knowledge.Library.Search] finds for the waiting texts in the agent's knowledge bases, at most
// [knowledge.PromptSnippets]; history is what was said before, oldest first. The caller sets RequestID, KeyID and Stream;
// it has no turn.
func PlaygroundCall(
	agent *store.Agent, model *gateway.Model, snippets []knowledge.Snippet, history, waiting []inbox.Message,
) *gateway.Request {
	p := prompt{History: history, Waiting: waiting, Knowledge: snippets}
	return newRequest(agent, model, p).call(agent.OrgID, "")
}
