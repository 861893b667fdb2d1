package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// PlaygroundCall is the call that would answer waiting texts of a customer, as worker.PlaygroundCall makes it: what is
// tried out is what customers get.
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

// registerPlayground asks for the scope of what it does: a call that is charged.
func (a *API) registerPlayground() {
	register(a, operation{id: "tryAgent", status: http.StatusOK, stream: true, Route: Route{
		Method: http.MethodPost, Path: "/agents/{id}/playground", Scope: identity.ChatWrite, Role: RoleMember,
		Summary: "Try an agent: its answer as a stream in the form of /v1/chat/completions, charged like any call",
	}}, a.tryAgent)
}

type agentTry struct {
	PathID

	Body playgroundInput
}

// streamBody is an answer that is written while it is made.
type streamBody struct{ Body func(huma.Context) }

// tryAgent answers the texts after the last answer, as the worker would. The live wallet pays (design §6 "test keys"), but
// for a test key, which never spends live credits.
func (a *API) tryAgent(ctx context.Context, caller *identity.Principal, in *agentTry) (*streamBody, error) {
	agent, err := a.DB.Agents.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedAgents, in.ID, err)
	}
	history, waiting := in.Body.split()
	if len(waiting) == 0 {
		return nil, InvalidRequest("messages", "messages must end with one of the role user.")
	}
	if err := a.checkModel(ctx, caller, agent.Model); err != nil {
		return nil, err
	}
	model, known := a.Models.Model(agent.Model)
	if !known {
		return nil, Internal(errors.New("a model that was checked is unknown"))
	}
	snippets, err := a.snippetsFor(ctx, &agent, waiting)
	if err != nil {
		return nil, err
	}
	call := a.PlaygroundCall(&agent, model, snippets, history, waiting)
	call.RequestID, call.KeyID, call.Env = RequestIDFrom(ctx), caller.KeyID, caller.Env
	call.AllModels, call.Stream = !caller.HasOrgModels, true
	return streamed(func(w http.ResponseWriter, r *http.Request) error { return a.Chat.stream(w, r, call) }), nil
}

// snippetsFor finds what the agent's documents say about the waiting texts.
func (a *API) snippetsFor(ctx context.Context, agent *store.Agent, waiting []inbox.Message) ([]knowledge.Snippet, error) {
	if len(agent.KnowledgeBaseIDs) == 0 {
		return nil, nil
	}
	var asked strings.Builder
	for i := range waiting {
		asked.WriteString(waiting[i].Text)
		asked.WriteByte('\n')
	}
	snippets, err := a.Knowledge.Search(ctx, agent.OrgID, agent.KnowledgeBaseIDs, asked.String(), knowledge.PromptSnippets)
	if err != nil {
		return nil, Internal(fmt.Errorf("asking the documents of agent %s: %w", agent.ID, err))
	}
	return snippets, nil
}

// split tells what was said before from what waits for an answer: the user's texts after the last answer.
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

// streamed is an answer that write makes on the connection itself. What write returns is answered like any refusal, so it
// returns nil once it has written.
func streamed(write func(w http.ResponseWriter, r *http.Request) error) *streamBody {
	return &streamBody{Body: func(ctx huma.Context) {
		answer, err := answerOf(ctx)
		if err != nil {
			return // Serve gave no such request to the framework
		}
		r, _ := humago.Unwrap(ctx)
		answer.streamed = true
		answer.err = write(answer.to, r)
	}}
}
