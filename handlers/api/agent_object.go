package api

import (
	"database/sql"
	"math"
	"slices"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// agentObject is an agent as the API shows it.
type agentObject struct {
	ID                 string   `json:"id"`
	Name               string   `json:"name"`
	Model              string   `json:"model"`
	Instructions       string   `json:"instructions"`
	UseBYOK            bool     `json:"useByok"`
	MaxTokens          *int64   `json:"maxTokens"          doc:"null: the model's own bound"`
	Temperature        *float64 `json:"temperature"        doc:"null: the model's default"`
	DebounceSeconds    float64  `json:"debounceSeconds"`
	DebounceMaxSeconds float64  `json:"debounceMaxSeconds"`
	Supersede          bool     `json:"supersede"`
	PauseMinutes       float64  `json:"pauseMinutes"`
	KnowledgeBaseIDs   []string `json:"knowledgeBaseIds"   nullable:"false"`
	CreatedAt          string   `json:"createdAt"          format:"date-time"`
	UpdatedAt          string   `json:"updatedAt"          format:"date-time"`
}

func showAgent(agent *store.Agent) agentObject {
	object := agentObject{
		ID: agent.ID, Name: agent.Name, Model: agent.Model, Instructions: agent.Instructions, UseBYOK: agent.UseBYOK,
		DebounceSeconds: float64(agent.DebounceMS) / secondMS, DebounceMaxSeconds: float64(agent.DebounceMaxMS) / secondMS,
		Supersede: agent.Supersede, PauseMinutes: float64(agent.PauseMS) / minuteMS,
		KnowledgeBaseIDs: append([]string{}, agent.KnowledgeBaseIDs...),
		CreatedAt:        endpoint.Timestamp(agent.CreatedAt), UpdatedAt: endpoint.Timestamp(agent.UpdatedAt),
	}
	if agent.MaxTokens > 0 {
		object.MaxTokens = &agent.MaxTokens
	}
	if agent.TemperatureMilli.Valid {
		temperature := float64(agent.TemperatureMilli.Int64) / 1000
		object.Temperature = &temperature
	}
	return object
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

// AgentChange is the body of PATCH /agents/{id}: what is absent stays as it is.
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
	PauseMinutes       *float64 `json:"pauseMinutes,omitempty" minimum:"0" maximum:"1440" doc:"How long the agent is silent after a human wrote from the platform's own app; 0: the service's default"` //nolint:lll // as above

	KnowledgeBaseIDs []string `json:"knowledgeBaseIds,omitempty" maxItems:"20" doc:"What the agent knows: parts that fit a customer's message are shown to the model; [] for nothing"` //nolint:lll // as above
}

// apply writes the change into the agent. The framework has checked each value by itself.
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
	setMillis(&agent.DebounceMS, c.DebounceSeconds, secondMS)
	setMillis(&agent.DebounceMaxMS, c.DebounceMaxSeconds, secondMS)
	setMillis(&agent.PauseMS, c.PauseMinutes, minuteMS)
	if c.MaxTokens.given {
		agent.MaxTokens = 0
		set(&agent.MaxTokens, c.MaxTokens.value)
	}
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
