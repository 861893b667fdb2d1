package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// PlaygroundCall builds the call that a worker would answer a customer's waiting texts with, as worker.PlaygroundCall does.
type PlaygroundCall func(
	agent *store.Agent, model *gateway.Model, snippets []knowledge.Snippet, history, waiting []inbox.Message,
) *gateway.Request

// playgroundInput is the body of POST /agents/{id}/playground.
type playgroundInput struct {
	Messages []playgroundMessage `json:"messages" minItems:"1" maxItems:"200" nullable:"false" doc:"The conversation to try, oldest first; the last one is the user's"` //nolint:lll // a struct tag can't be broken
}

type playgroundMessage struct {
	Role    string `json:"role"    enum:"user,assistant"`
	Content string `json:"content" minLength:"1" maxLength:"200000"`
}

// tryAgent answers the texts after the last answer, as the worker would. The live wallet pays, but
// for a test key, which never spends live credits. The operation needs the scope chat:write, because its call is charged.
func (d *Deps) tryAgent(ctx context.Context, principal *identity.Principal, in *idAndBody[playgroundInput]) (*endpoint.Stream, error) {
	agent, err := d.DB.Agents.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedAgents, in.ID, err)
	}
	history, waiting := in.Body.split()
	if len(waiting) == 0 {
		return nil, handlers.InvalidRequest("messages", "messages must end with one of the role user.")
	}
	if err := d.checkModel(ctx, principal, agent.Model); err != nil {
		return nil, err
	}
	model, known := d.Models.Model(agent.Model)
	if !known {
		return nil, handlers.Internal(errors.New("a model that was checked is unknown"))
	}
	snippets, err := d.snippetsFor(ctx, &agent, waiting)
	if err != nil {
		return nil, err
	}
	call := d.PlaygroundCall(&agent, model, snippets, history, waiting)
	call.RequestID, call.KeyID, call.Env = handlers.RequestIDFrom(ctx), principal.KeyID, principal.Env
	call.AllModels, call.Stream = !principal.HasOrgModels, true
	return endpoint.Streamed(func(w http.ResponseWriter, r *http.Request) error { return d.Chat.Answer(w, r, call) }), nil
}

// snippetsFor finds what the agent's documents say about the waiting texts.
func (d *Deps) snippetsFor(ctx context.Context, agent *store.Agent, waiting []inbox.Message) ([]knowledge.Snippet, error) {
	if len(agent.KnowledgeBaseIDs) == 0 {
		return nil, nil
	}
	var asked strings.Builder
	for i := range waiting {
		asked.WriteString(waiting[i].Text)
		asked.WriteByte('\n')
	}
	snippets, err := d.Knowledge.SearchInTurn(ctx, agent.OrgID, agent.KnowledgeBaseIDs, asked.String(), knowledge.PromptSnippets)
	if err != nil {
		return nil, searchRefusal(fmt.Errorf("asking the documents of agent %s: %w", agent.ID, err))
	}
	return snippets, nil
}

// split separates the history from the user's texts after the last answer, which wait for one.
func (in playgroundInput) split() (history, waiting []inbox.Message) {
	all := make([]inbox.Message, len(in.Messages))
	for i, m := range in.Messages {
		all[i] = inbox.Message{Author: inbox.AuthorCustomer, Kind: inbox.KindText, Text: m.Content}
		if m.Role == "assistant" {
			all[i].Author = inbox.AuthorAssistant
		}
	}
	from := len(all)
	for _, m := range slices.Backward(all) {
		if m.Author != inbox.AuthorCustomer {
			break
		}
		from--
	}
	return all[:from], all[from:]
}
