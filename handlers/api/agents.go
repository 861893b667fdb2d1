package api

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// usualAgent is the size in bytes of an agent with instructions of 100,000 characters, unless most of them are escaped.
const usualAgent = 128 << 10

// The operations on agents.
var (
	CreateAgent = operation(answering(usualAgent, members("createAgent", "POST /agents", identity.AgentsWrite,
		"Create an agent")), (*Deps).createAgent)
	ListAgents = operation(testKeys(members("listAgents", "GET /agents", identity.AgentsRead,
		"List the agents, oldest first; GET /agents/{id} has the instructions")), (*Deps).listAgents)
	ListAgentModels = operation(testKeys(members("listAgentModels", "GET /agents/models", identity.AgentsRead,
		"List the models that an agent can have")), (*Deps).listAgentModels)
	GetAgent    = operation(testKeys(members("getAgent", "GET /agents/{id}", identity.AgentsRead, "Get an agent")), (*Deps).getAgent)
	UpdateAgent = operation(answering(usualAgent, members("updateAgent", "PATCH /agents/{id}", identity.AgentsWrite,
		"Change an agent")), (*Deps).updateAgent)
	DeleteAgent = operationOf(members("deleteAgent", "DELETE /agents/{id}", identity.AgentsWrite,
		"Delete an agent; its channels have no agent then"), (*Deps).deleteAgent)
	TryAgent = operationOf(streaming(testKeys(members("tryAgent", "POST /agents/{id}/playground", identity.ChatWrite,
		"Try an agent: its answer as a stream in the form of /v1/chat/completions, charged like any call"))), (*Deps).tryAgent)
)

func (d *Deps) createAgent(ctx context.Context, principal *identity.Principal, in *struct{ Body agentCreation }) (*AgentObject, error) {
	agent := store.Agent{ID: store.NewID("agt"), OrgID: principal.OrgID, CreatedAt: d.Now().UnixMilli()}
	agent.UpdatedAt = agent.CreatedAt
	if err := in.Body.change().apply(&agent); err != nil {
		return nil, err
	}
	if err := d.checkModel(ctx, principal, agent.Model); err != nil {
		return nil, err
	}
	if err := d.checkKnowledgeBases(ctx, principal, agent.KnowledgeBaseIDs); err != nil {
		return nil, err
	}
	if err := d.DB.Agents.Create(ctx, principal.Actor(), agent); err != nil {
		return nil, agentConflict(err, handlers.Internal(fmt.Errorf("creating an agent: %w", err)))
	}
	return new(showAgent(&agent)), nil
}

func (d *Deps) listAgents(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[AgentSummaryObject], error) {
	return listRows(ctx, principal, in.PageQuery, d.DB.Agents.List, func(row *store.Agent) string { return row.ID }, showAgentSummary)
}

func (d *Deps) getAgent(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*AgentObject, error) {
	return getRow(ctx, d, principal, store.OwnedAgents, in.ID, d.DB.Agents.ByID, showAgent)
}

// updateAgent changes only the fields that the body names, so that another request may change other fields at the same time.
func (d *Deps) updateAgent(ctx context.Context, principal *identity.Principal, in *idAndBody[AgentChange]) (*AgentObject, error) {
	agent, err := d.DB.Agents.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedAgents, in.ID, err)
	}
	if err := in.Body.apply(&agent); err != nil {
		return nil, err
	}
	// An agent with a model that is no longer available can still be changed.
	if in.Body.Model != nil {
		if err := d.checkModel(ctx, principal, agent.Model); err != nil {
			return nil, err
		}
	}
	if err := d.checkKnowledgeBases(ctx, principal, in.Body.KnowledgeBaseIDs); err != nil {
		return nil, err
	}
	err = d.DB.Agents.Update(ctx, principal.Actor(), principal.OrgID, in.ID, in.Body.apply)
	if err != nil { // apply may refuse the change together with one that was made since
		return nil, agentConflict(err, d.refuse(ctx, principal, store.OwnedAgents, in.ID, err))
	}
	return d.getAgent(ctx, principal, &in.PathID)
}

func (d *Deps) deleteAgent(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, d.change(ctx, principal, store.OwnedAgents, in.ID, d.DB.Agents.Delete)
}

// checkModel refuses a model that the organization can't call.
func (d *Deps) checkModel(ctx context.Context, principal *identity.Principal, id string) error {
	unsupported := &handlers.Error{
		Code: errcode.UnsupportedModel, Field: "model",
		Message: "The model does not exist or is not enabled for the organization. GET " + handlers.ModelsPath + " lists those that are.",
	}
	model, ok := d.Models.Model(id)
	if !ok {
		return unsupported
	}
	var exceptions map[string]bool
	if principal.HasOrgModels {
		var err error
		if exceptions, err = d.DB.Organizations.Models(ctx, principal.OrgID); err != nil {
			return handlers.Internal(fmt.Errorf("reading the organization's models: %w", err))
		}
	}
	if !model.Enabled(exceptions, principal.Env, principal.KeyModels) {
		return unsupported
	}
	return nil
}

// agentConflict returns the error for a taken name, or for a knowledge base that was deleted after checkKnowledgeBases, or otherwise
// for any other error.
func agentConflict(err, otherwise error) error {
	if errors.Is(err, store.ErrKnowledgeBaseNotFound) {
		return unknownKnowledgeBase()
	}
	if errors.Is(err, store.ErrLimit) {
		return noRoom(store.MaxAgents, "agents", err)
	}
	if errors.Is(err, store.ErrConflict) {
		return endpoint.Refusal(errcode.Conflict, err, "The organization has an agent with this name already.")
	}
	return otherwise
}

// checkKnowledgeBases refuses knowledge bases that aren't the organization's.
func (d *Deps) checkKnowledgeBases(ctx context.Context, principal *identity.Principal, ids []string) error {
	for _, id := range ids {
		err := checkRow(ctx, d, principal, store.OwnedKnowledgeBases, id, d.DB.KnowledgeBases.ByID, unknownKnowledgeBase())
		if err != nil {
			return err
		}
	}
	return nil
}

func unknownKnowledgeBase() *handlers.Error {
	return handlers.InvalidRequest("knowledgeBaseIds", "There is no knowledge base with one of these ids.")
}

// AgentSummaryObject is an agent as lists show it: without its instructions, which may have 600 KB in JSON.
type AgentSummaryObject struct {
	ID                 string   `json:"id"`
	Name               string   `json:"name"`
	Model              string   `json:"model"`
	UseBYOK            bool     `json:"useByok"`
	MaxTokens          *int64   `json:"maxTokens"          doc:"null: the model's own bound"`
	Temperature        *float64 `json:"temperature"        doc:"null: the model's default"`
	DebounceSeconds    float64  `json:"debounceSeconds"`
	DebounceMaxSeconds float64  `json:"debounceMaxSeconds"`
	Supersede          bool     `json:"supersede"`
	PauseMinutes       *float64 `json:"pauseMinutes"       doc:"null: 30"`
	Handover           bool     `json:"handover"`
	HandoverWords      []string `json:"handoverWords"      nullable:"false"`
	HandoverReply      string   `json:"handoverReply"`
	Typing             bool     `json:"typing"`
	KnowledgeBaseIDs   []string `json:"knowledgeBaseIds"   nullable:"false"`
	CreatedAt          string   `json:"createdAt"          format:"date-time"`
	UpdatedAt          string   `json:"updatedAt"          format:"date-time"`
}

// AgentObject is an agent with its instructions as the API shows it.
type AgentObject struct {
	AgentSummaryObject

	Instructions string `json:"instructions"`
}

func showAgent(agent *store.Agent) AgentObject {
	return AgentObject{AgentSummaryObject: showAgentSummary(agent), Instructions: agent.Instructions}
}

func showAgentSummary(agent *store.Agent) AgentSummaryObject {
	object := AgentSummaryObject{
		ID: agent.ID, Name: agent.Name, Model: agent.Model, UseBYOK: agent.UseBYOK, MaxTokens: endpoint.OrNull(agent.MaxTokens),
		DebounceSeconds: float64(agent.DebounceMS) / secondMS, DebounceMaxSeconds: float64(agent.DebounceMaxMS) / secondMS,
		Supersede: agent.Supersede, PauseMinutes: showPause(agent.PauseMS),
		Handover: agent.Handover, HandoverWords: append([]string{}, agent.HandoverWords...), HandoverReply: agent.HandoverReply,
		Typing:           agent.Typing,
		KnowledgeBaseIDs: append([]string{}, agent.KnowledgeBaseIDs...),
		CreatedAt:        endpoint.Timestamp(agent.CreatedAt), UpdatedAt: endpoint.Timestamp(agent.UpdatedAt),
	}
	if agent.TemperatureMilli.Valid {
		object.Temperature = new(float64(agent.TemperatureMilli.Int64) / 1000)
	}
	return object
}

// showPause returns the minutes of an agent's pause, or nil if the pause is the default.
func showPause(ms int64) *float64 {
	minutes := float64(ms) / minuteMS
	switch ms {
	case 0:
		return nil
	case store.NoPause:
		minutes = 0
	}
	return &minutes
}

const (
	secondMS = 1000
	minuteMS = 60 * secondMS
)

// agentCreation is the body of POST /agents.
type agentCreation struct {
	AgentChange

	Name  string `json:"name"  minLength:"1" maxLength:"100" doc:"Unique within the organization"`
	Model string `json:"model" minLength:"1" maxLength:"200" doc:"A model that is enabled for the organization"`
}

func (c agentCreation) change() AgentChange {
	change := c.AgentChange
	change.Name, change.Model = &c.Name, &c.Model
	return change
}

// AgentChange is the body of PATCH /agents/{id}. An absent member changes nothing.
type AgentChange struct {
	Name         *string `json:"name,omitempty"         minLength:"1" maxLength:"100"`
	Model        *string `json:"model,omitempty"        minLength:"1" maxLength:"200"`
	Instructions *string `json:"instructions,omitempty" maxLength:"100000" doc:"The system message of every call"`
	UseBYOK      *bool   `json:"useByok,omitempty"      doc:"Ask with the organization's own provider key"`

	MaxTokens   clearable[int64]   `json:"maxTokens,omitzero"   minimum:"1" maximum:"200000" doc:"Bound of one answer; null: the model's own"`
	Temperature clearable[float64] `json:"temperature,omitzero" minimum:"0" maximum:"2" doc:"Kept in thousandths; null: the model's default"`

	DebounceSeconds    *float64 `json:"debounceSeconds,omitempty" minimum:"0" maximum:"60" doc:"How long a customer must be quiet before the answer is made; 0: at once"`         //nolint:lll // a struct tag can't be broken
	DebounceMaxSeconds *float64 `json:"debounceMaxSeconds,omitempty" minimum:"0" maximum:"300" doc:"How long the first message waits for that at most; 0: the service's default"` //nolint:lll // as above
	Supersede          *bool    `json:"supersede,omitempty" doc:"A newer message discards the unsent answer and asks again; both calls are charged"`

	PauseMinutes clearable[float64] `json:"pauseMinutes,omitzero" minimum:"0" maximum:"1440" doc:"How long the agent is silent after a human wrote from the platform's own app; 0: never; null, the default: 30 minutes"` //nolint:lll // as above

	Typing *bool `json:"typing,omitempty" doc:"Customers are shown that their messages were read and that an answer is being written, where the platform can; a call or more of the platform for each answer"` //nolint:lll // as above

	Handover      *bool     `json:"handover,omitempty" doc:"The agent may hand conversations over to people: when the customer asks for one, when it doesn't know, and when it has failed twice in a row"` //nolint:lll // as above
	HandoverWords *[]string `json:"handoverWords,omitempty" maxItems:"20" doc:"A customer's message with one of these words or phrases of 1 to 50 characters is handed over without asking the model"`     //nolint:lll // as above
	HandoverReply *string   `json:"handoverReply,omitempty" maxLength:"1000" doc:"What the customer is told when a conversation is handed over without words of the model's; empty: nothing"`              //nolint:lll // as above

	KnowledgeBaseIDs []string `json:"knowledgeBaseIds,omitempty" maxItems:"20" doc:"What the agent knows: parts that fit a customer's message are shown to the model; [] for nothing"` //nolint:lll // as above
}

// apply writes the change into the agent. Each value fits its schema.
func (c AgentChange) apply(agent *store.Agent) error {
	if c.Name != nil {
		name, err := identity.CleanName("name", *c.Name)
		if err != nil {
			return handlers.BadField(err)
		}
		agent.Name = name
	}
	set(&agent.Model, c.Model)
	set(&agent.Instructions, c.Instructions)
	set(&agent.UseBYOK, c.UseBYOK)
	set(&agent.Supersede, c.Supersede)
	set(&agent.Typing, c.Typing)
	if err := c.applyHandover(agent); err != nil {
		return err
	}
	setMillis(&agent.DebounceMS, c.DebounceSeconds, secondMS)
	setMillis(&agent.DebounceMaxMS, c.DebounceMaxSeconds, secondMS)
	if c.PauseMinutes.given {
		agent.PauseMS = 0
		if c.PauseMinutes.value != nil {
			setMillis(&agent.PauseMS, c.PauseMinutes.value, minuteMS)
			agent.PauseMS = max(agent.PauseMS, store.NoPause)
		}
	}
	c.MaxTokens.set(&agent.MaxTokens)
	if c.Temperature.given {
		agent.TemperatureMilli = sql.NullInt64{}
		if c.Temperature.value != nil {
			agent.TemperatureMilli = sql.NullInt64{Int64: int64(math.Round(*c.Temperature.value * 1000)), Valid: true}
		}
	}
	if c.KnowledgeBaseIDs != nil {
		agent.KnowledgeBaseIDs = slices.Compact(slices.Sorted(slices.Values(c.KnowledgeBaseIDs)))
	}
	if agent.DebounceMaxMS > 0 && agent.DebounceMaxMS < agent.DebounceMS {
		return handlers.InvalidRequest("debounceMaxSeconds", "debounceMaxSeconds must not be less than debounceSeconds.")
	}
	return nil
}

// maxHandoverWord is the length of a word or phrase in characters.
const maxHandoverWord = 50

func (c AgentChange) applyHandover(agent *store.Agent) error {
	set(&agent.Handover, c.Handover)
	if c.HandoverReply != nil {
		agent.HandoverReply = strings.TrimSpace(*c.HandoverReply)
	}
	if c.HandoverWords == nil {
		return nil
	}
	agent.HandoverWords = nil
	for i, typed := range *c.HandoverWords {
		word := strings.Join(strings.Fields(typed), " ")
		// A phrase that says itself has words that are compared.
		if utf8.RuneCountInString(word) > maxHandoverWord || !knowledge.Says(word, []string{word}) {
			return handlers.InvalidRequest("handoverWords",
				"Entry %d of handoverWords must have 1 to %d characters, among them a letter or digit.", i+1, maxHandoverWord)
		}
		if !slices.Contains(agent.HandoverWords, word) {
			agent.HandoverWords = append(agent.HandoverWords, word)
		}
	}
	return nil
}

// AgentModelObject is a model that an agent can use, as a person chooses it.
type AgentModelObject struct {
	ID              string `json:"id"`
	DisplayName     string `json:"displayName"`
	FriendlyName    string `json:"friendlyName"`
	Tier            string `json:"tier"`
	ContextWindow   int64  `json:"contextWindow"   doc:"In tokens"`
	MaxOutputTokens int64  `json:"maxOutputTokens" doc:"The model's own bound of one answer"`
	VNHosted        bool   `json:"vnHosted"        doc:"It runs in the service's home country"`
}

// agentModelsObject lists the models in the order of the configuration.
type agentModelsObject struct {
	Data []AgentModelObject `json:"data"`
}

// listAgentModels lists what [v1.Models] does, for login sessions, which /v1 does not accept.
func (d *Deps) listAgentModels(ctx context.Context, principal *identity.Principal, _ *struct{}) (*agentModelsObject, error) {
	exceptions, err := d.DB.Organizations.Models(ctx, principal.OrgID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the organization's models: %w", err))
	}
	models := agentModelsObject{Data: []AgentModelObject{}}
	for _, model := range d.Models.Models() {
		if model.Enabled(exceptions, principal.Env, principal.KeyModels) {
			models.Data = append(models.Data, AgentModelObject{
				ID: model.ID, DisplayName: model.DisplayName, FriendlyName: model.FriendlyName, Tier: model.Tier,
				ContextWindow: model.ContextWindow, MaxOutputTokens: model.MaxOutputTokens, VNHosted: model.VNHosted,
			})
		}
	}
	return &models, nil
}

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

// tryAgent answers the texts after the last answer, as the worker would. The live wallet pays, except that a test key
// never spends live credits. The operation needs the scope chat:write, because its call is charged.
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
	call.KeyModels, call.AllModels, call.BudgetVersion = principal.KeyModels, !principal.HasOrgModels, principal.BudgetVersion
	call.KeyConcurrent, call.Stream = principal.KeyConcurrent, true
	return endpoint.Streamed(func(w http.ResponseWriter, r *http.Request) error { return d.Chat.Answer(w, r, call) }), nil
}

// snippetsFor finds the passages of the agent's documents that concern the waiting texts.
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
