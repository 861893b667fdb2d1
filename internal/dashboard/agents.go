package dashboard

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const agentsPath = root + "/agents"

type agentData struct {
	Agent *api.AgentObject
	// Bases is the number of knowledge bases.
	Bases        int
	Edit, Delete form
}

func (d *agentData) PageTitle() string { return d.Agent.Name }

var (
	agentName = field{Name: "name", Label: "Name", Hint: "For you and your colleagues. Customers don't see it."}

	agentModel = field{
		Name: "model", Kind: ui.SelectField, Label: "Model", Hint: "The model that writes the answers. The wallet pays its price.",
	}

	agentInstructions = field{
		Name: "instructions", Kind: ui.AreaField, Label: "Instructions", Rows: 12,
		Hint: "Who the assistant is, how it speaks, what it may promise, and what it leaves to people.",
	}

	agentHandover = field{
		Name: "handover", Label: "May hand conversations over to people",
		Hint: "When a customer asks for a person, when the assistant doesn't know, and when it has failed twice in a row. It is silent then " +
			"until you hand the conversation back: look at what waits for you.",
	}
)

var agentCreateForm = ui.FormOf(
	api.CreateAgent, form{ID: "agent-create", Submit: "Create the assistant"}, agentName, agentModel, agentInstructions, agentHandover,
)

var agentEditForm = ui.FormOf(
	api.UpdateAgent, form{ID: "agent-edit", Submit: "Save"}, agentName, agentModel, agentInstructions,
	field{
		Name: "knowledgeBaseIds", Kind: ui.ChecksField, Label: "Knowledge bases",
		Hint: "Parts of their documents that fit a customer's message are shown to the model.",
	},
	agentHandover,
	field{
		Name: "handoverWords", Label: "Words for which a person is called", Rows: 3,
		Hint: "One word or phrase a line, at most 20. A message with one of them is handed over at once, and the model isn't called.",
	},
	field{
		Name: "handoverReply", Kind: ui.AreaField, Label: "What customers are told then", Rows: 2,
		Hint: "Sent after one of these words, and after failures. Empty: nothing.",
	},
	field{
		Name: "useByok", Label: "Use our own provider key",
		Hint: "The provider bills you directly, and the wallet pays nothing. It needs a provider key for the model's provider.",
	},
	field{Name: "maxTokens", Label: "Longest answer, in tokens", Hint: "1 to 200,000. Empty: as long as the model can."},
	field{Name: "temperature", Label: "Temperature", Hint: "0 (always much the same) to 2 (very free). Empty: the model's default."},
	field{
		Name: "debounceSeconds", Label: "Quiet window, in seconds",
		Hint: "0 to 60. The answer begins when the customer has been quiet for so long; 2 to 5 suits people who write in pieces. 0: at once.",
	},
	field{
		Name: "debounceMaxSeconds", Label: "Longest wait, in seconds",
		Hint: "0 to 300. How long the first message waits for that at most. 0: 30 seconds.",
	},
	field{
		Name: "supersede", Label: "Start over when a new message arrives",
		Hint: "A newer message discards the unsent answer, and the model is called once more. Both calls are charged.",
	},
	field{
		Name: "typing", Label: "Show customers that it reads and writes",
		Hint: "Where the platform can: bots and the social platform show both, the marketplaces that messages were read.",
	},
	field{
		Name: "pauseMinutes", Label: "Silence after a person wrote, in minutes",
		Hint: "0 to 1,440. When one of you writes from the platform's own app, the assistant is silent for so long. Empty: 30 minutes. 0: never.",
	},
)

var agentPages = []page{
	{
		Path: agentsPath, Template: "agents", Title: "Assistants", Show: showAgents,
		Actions: []action{{
			Form: "agent-create", Done: "The assistant was created. Connect a channel to it, or try it in its playground.",
			Do: create(api.CreateAgent, agentCreateForm, agentsPath, func(a *api.AgentObject) string { return a.ID }),
		}},
	},
	{
		Path: agentsPath + "/{id}", Template: "agent", Title: "Assistant", Section: agentsPath, Show: showAgent,
		Actions: []action{
			{Form: "agent-edit", Done: "The assistant was changed.", Do: changeAgent},
			button("agent-delete", agentsPath, api.DeleteAgent, "The assistant was deleted."),
		},
	},
	playgroundPage,
}

func showAgents(req *pageRequest) (any, error) {
	agents := site.Read(req, api.ListAgents, req.Cursor())
	create := agentCreateForm.Of(agentsPath, api.AgentSummaryObject{Handover: true}).With("model", req.modelOptions(""))
	return listData[api.AgentSummaryObject]{agents.Data, req.Pager(agents.NextCursor), req.Form(create)}, nil
}

func showAgent(req *pageRequest) (any, error) {
	agent := site.Read(req, api.GetAgent, values{"id": req.ID()})
	models, bases := req.modelOptions(agent.Model), everything(req, api.ListKnowledgeBases)
	edit := agentEditForm.Of(req.Path(), agent).With("model", models).Versioned(agent.UpdatedAt)
	if len(bases) > 0 {
		var options []option
		for _, base := range bases {
			options = append(options, option{Value: base.ID, Label: ui.Text(base.Name), Hint: ui.Text(base.Description), Named: true})
		}
		edit = edit.With("knowledgeBaseIds", ui.Choices(options, agent.KnowledgeBaseIDs...))
	} else {
		edit = edit.Without("knowledgeBaseIds")
	}
	return &agentData{
		Agent: agent, Bases: len(bases), Edit: req.Form(edit),
		Delete: req.button("agent-delete", "", "Delete the assistant",
			req.Phrase("Delete the assistant %s? Its channels have no assistant then, and nobody answers there.", agent.Name)),
	}, nil
}

// changeAgent changes the assistant. An unchanged model stays, even if the organization can no longer choose it.
func changeAgent(req *pageRequest) (string, error) {
	before, err := site.Ask(req, api.GetAgent, values{"id": req.ID()})
	if err == nil {
		err = req.Sent.RefuseStale(before.UpdatedAt)
	}
	if err != nil {
		return "", err
	}
	in, err := agentEditForm.Read(req.Sent, values{"id": req.ID()})
	if err != nil {
		return "", err
	}
	if in["model"] == before.Model {
		delete(in, "model")
	}
	return req.Path(), req.Run(api.UpdateAgent, in)
}

// modelOptions reads the models that an agent can have, and adds the current one, if that isn't among them.
func (req *pageRequest) modelOptions(current string) (options []option) {
	for _, model := range site.Read(req, api.ListAgentModels, nil).Data {
		options = append(options, option{Value: model.ID, Label: req.modelLabel(&model), Named: true, Selected: model.ID == current})
	}
	if current != "" && labelOf(options, current) == "" {
		options = append(options, option{Value: current, Label: req.Phrase("%s (no longer available)", current), Named: true, Selected: true})
	}
	return options
}

// modelLabel describes a model in a select: names, tier, context.
func (req *pageRequest) modelLabel(model *api.AgentModelObject) ui.Text {
	parts := []string{model.FriendlyName}
	if model.FriendlyName == "" {
		parts[0] = model.ID
	}
	if model.DisplayName != "" && model.DisplayName != parts[0] {
		parts[0] += " – " + model.DisplayName
	}
	if model.Tier != "" {
		parts = append(parts, model.Tier)
	}
	if model.ContextWindow > 0 {
		parts = append(parts, req.Say.Tf("%d tokens of context", model.ContextWindow))
	}
	if model.VNHosted {
		parts = append(parts, req.Say.T("runs in the home country"))
	}
	return ui.Text(strings.Join(parts, ", "))
}

// optionsOf reads the elements of a list as options of a select. The first option is empty and has the label none.
func optionsOf[I, T any](
	req *pageRequest, list endpoint.Op[*api.Deps, I, endpoint.JSON[endpoint.ListObject[T]]], none ui.Text, show func(T) option,
) []option {
	options := []option{{Label: none}}
	for _, one := range everything(req, list) {
		options = append(options, show(one))
	}
	return options
}

// maxTry bounds the requests of the playground's script, in bytes.
const maxTry = 1 << 20

// playgroundPage lets a person write to an assistant as a customer would. Its script keeps the conversation and sends it to the
// relay. The response is a stream of chunks.
var playgroundPage = page{
	Path: agentsPath + "/{id}/playground", Template: "playground", Title: "Playground", Section: agentsPath,
	Scripts: []string{"playground.js"},
	Show: func(req *pageRequest) (any, error) {
		agent := site.Read(req, api.GetAgent, values{"id": req.ID()})
		return &playgroundData{agent, req.Say.Tf("Playground: %s", agent.Name)}, nil
	},
	Relays: []relay{{Method: http.MethodPost, Name: "stream", Do: func(req *pageRequest) error {
		var try []byte
		err := req.ReadBody(maxTry, "What was sent can't be read.", func(body []byte) error {
			if try = body; !json.Valid(body) {
				return site.ErrForm
			}
			return nil
		})
		if err != nil {
			return err
		}
		return req.pass(http.MethodPost, "/agents/"+req.ID()+"/playground", "text/event-stream", try)
	}}},
}

type playgroundData struct {
	Agent *api.AgentObject
	title string
}

func (d *playgroundData) PageTitle() string { return d.title }
