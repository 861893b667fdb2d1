package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const agentsPath = root + "/agents"

type agent struct {
	ID                 string      `json:"id"`
	Name               string      `json:"name"`
	Model              string      `json:"model"`
	Instructions       string      `json:"instructions"`
	UseBYOK            bool        `json:"useByok"`
	MaxTokens          json.Number `json:"maxTokens"`   // "" is the model's own bound
	Temperature        json.Number `json:"temperature"` // "" is the model's default
	DebounceSeconds    json.Number `json:"debounceSeconds"`
	DebounceMaxSeconds json.Number `json:"debounceMaxSeconds"`
	Supersede          bool        `json:"supersede"`
	PauseMinutes       json.Number `json:"pauseMinutes"`
	Handover           bool        `json:"handover"`
	HandoverWords      []string    `json:"handoverWords"`
	HandoverReply      string      `json:"handoverReply"`
	Typing             bool        `json:"typing"`
	KnowledgeBaseIDs   []string    `json:"knowledgeBaseIds"`
	UpdatedAt          string      `json:"updatedAt"`
}

type agentModel struct {
	ID            string `json:"id"`
	DisplayName   string `json:"displayName"`
	FriendlyName  string `json:"friendlyName"`
	Tier          string `json:"tier"`
	ContextWindow int64  `json:"contextWindow"`
	VNHosted      bool   `json:"vnHosted"`
}

type agentsData struct {
	Agents list[agent]
	Pager  pager
	Create form
}

type agentData struct {
	Agent        agent
	Bases        int // number of knowledge bases
	Edit, Delete form
}

func (d *agentData) KnowsBases() bool { return d.Bases > 0 }

func (d *agentData) PageTitle() string { return d.Agent.Name }

func agentPages() []page {
	return []page{
		{
			path: agentsPath, template: "agents", title: "Assistants",
			show: showAgents,
			actions: []action{{
				form: "agent-create", done: "The assistant was created. Connect a channel to it, or try it in its playground.",
				do: createAgent,
			}},
		},
		{
			path: agentsPath + "/{id}", template: "agent", title: "Assistant", section: agentsPath,
			show: showAgent,
			actions: []action{
				{form: "agent-edit", done: "The assistant was changed.", do: changeAgent},
				{verb: "delete", form: "agent-delete", done: "The assistant was deleted.", do: func(req *pageRequest) (outcome, error) {
					return goTo(agentsPath), req.send(http.MethodDelete, "/agents/"+req.id(), nil, nil)
				}},
			},
		},
	}
}

func showAgents(req *pageRequest) (any, error) {
	data := agentsData{}
	if err := req.get("/agents", req.cursor(), &data.Agents); err != nil {
		return nil, err
	}
	data.Pager = req.pager(data.Agents.NextCursor)
	options, err := req.modelOptions("")
	if err != nil {
		return nil, err
	}
	data.Create = req.form(form{
		ID: "agent-create", Action: agentsPath, Submit: "Create the assistant",
		Fields: []field{agentNameField(""), modelField(options), instructionsField(""), handoverField(true)},
	})
	return &data, nil
}

func createAgent(req *pageRequest) (outcome, error) {
	var created agent
	err := req.send(http.MethodPost, "/agents", object{
		"name": req.text("name"), "model": req.text("model"), "instructions": req.text("instructions"),
		"handover": req.flag("handover"),
	}, &created)
	return goTo(agentsPath + "/" + created.ID), err
}

func showAgent(req *pageRequest) (any, error) {
	data := agentData{}
	if err := req.get("/agents/"+req.id(), nil, &data.Agent); err != nil {
		return nil, err
	}
	a := &data.Agent
	models, err := req.modelOptions(a.Model)
	if err != nil {
		return nil, err
	}
	bases, err := req.knowledgeOptions(a.KnowledgeBaseIDs)
	if err != nil {
		return nil, err
	}
	fields := []field{versionField(a.UpdatedAt), agentNameField(a.Name), modelField(models), instructionsField(a.Instructions)}
	if data.Bases = len(bases); len(bases) > 0 {
		// A group without a checked box sends nothing; the empty value says that there was one.
		fields = append(fields, field{Name: "knowledgeBaseIds", Kind: hiddenField}, field{
			Name: "knowledgeBaseIds", Kind: checksField, Label: "Knowledge bases", Options: bases,
			Hint: "Parts of their documents that fit a customer's message are shown to the model.",
		})
	}
	data.Edit = req.form(form{
		ID: "agent-edit", Action: agentsPath + "/" + a.ID, Submit: "Save", Fields: slices.Concat(fields, handoverFields(a), agentSettings(a)),
	})
	data.Delete = req.form(button("agent-delete", agentsPath+"/"+a.ID+"/delete", "Delete the assistant",
		"Delete the assistant "+a.Name+"? Its channels have no assistant then, and nobody answers there."))
	return &data, nil
}

// changeAgent sends the form to the API. An unchanged model stays, even if the organization can't choose it any more.
func changeAgent(req *pageRequest) (outcome, error) {
	var before agent
	if err := req.get("/agents/"+req.id(), nil, &before); err != nil {
		return outcome{}, err
	}
	if err := req.refuseStale(before.UpdatedAt); err != nil {
		return outcome{}, err
	}
	change := object{
		"name": req.text("name"), "instructions": req.text("instructions"),
		"useByok": req.flag("useByok"), "maxTokens": req.number("maxTokens"), "temperature": req.number("temperature"),
		"debounceSeconds": req.numberOrZero("debounceSeconds"), "debounceMaxSeconds": req.numberOrZero("debounceMaxSeconds"),
		"supersede": req.flag("supersede"), "pauseMinutes": req.number("pauseMinutes"),
		"handover": req.flag("handover"), "handoverWords": linesOf(req.text("handoverWords")), "handoverReply": req.text("handoverReply"),
		"typing": req.flag("typing"),
	}
	if req.sent.Has("knowledgeBaseIds") { // a form from before the first knowledge base has no such field
		change["knowledgeBaseIds"] = req.texts("knowledgeBaseIds")
	}
	if model := req.text("model"); model != before.Model {
		change["model"] = model
	}
	return goTo(agentsPath + "/" + req.id()), req.send(http.MethodPatch, "/agents/"+req.id(), change, nil)
}

func agentNameField(value string) field {
	return field{
		Name: "name", Kind: textField, Label: "Name", Value: value, Required: true, MaxLength: 100,
		Hint: "For you and your colleagues. Customers don't see it.",
	}
}

func modelField(options []option) field {
	return field{
		Name: "model", Kind: selectField, Label: "Model", Required: true, Options: options,
		Hint: "The model that writes the answers. The wallet pays its price.",
	}
}

func instructionsField(value string) field {
	return field{
		Name: "instructions", Kind: areaField, Label: "Instructions", Value: value, MaxLength: 100_000, Rows: 12,
		Hint: "Who the assistant is, how it speaks, what it may promise, and what it leaves to people.",
	}
}

func handoverField(on bool) field {
	return field{
		Name: "handover", Kind: checkField, Label: "May hand conversations over to people", Value: checked(on),
		Hint: "When a customer asks for a person, when the assistant doesn't know, and when it has failed twice in a row. It is silent then " +
			"until you hand the conversation back: look at what waits for you.",
	}
}

// handoverFields returns the fields that say when the assistant leaves a conversation to people.
func handoverFields(a *agent) []field {
	return []field{
		handoverField(a.Handover),
		{
			Name: "handoverWords", Kind: areaField, Label: "Words for which a person is called", Rows: 3,
			Value: strings.Join(a.HandoverWords, "\n"),
			Hint:  "One word or phrase a line, at most 20. A message with one of them is handed over at once, and the model isn't called.",
		},
		{
			Name: "handoverReply", Kind: areaField, Label: "What customers are told then", Rows: 2, Value: a.HandoverReply, MaxLength: 1000,
			Hint: "Sent after one of these words, and after failures. Empty: nothing.",
		},
	}
}

// linesOf returns the lines of a text that aren't blank; never nil.
func linesOf(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
}

// agentSettings returns the fields for the model's bounds and for the timing of answers.
func agentSettings(a *agent) []field {
	return []field{
		{
			Name: "useByok", Kind: checkField, Label: "Use our own provider key", Value: checked(a.UseBYOK),
			Hint: "The provider bills you directly, and the wallet pays nothing. It needs a provider key for the model's provider.",
		},
		{
			Name: "maxTokens", Kind: numberField, Label: "Longest answer, in tokens", Value: a.MaxTokens.String(),
			Hint: "1 to 200,000. Empty: as long as the model can.",
		},
		{
			Name: "temperature", Kind: numberField, Label: "Temperature", Value: a.Temperature.String(),
			Hint: "0 (always much the same) to 2 (very free). Empty: the model's default.",
		},
		{
			Name: "debounceSeconds", Kind: numberField, Label: "Quiet window, in seconds", Value: a.DebounceSeconds.String(),
			Hint: "0 to 60. The answer begins when the customer has been quiet for so long; 2 to 5 suits people who write in pieces. 0: at once.",
		},
		{
			Name: "debounceMaxSeconds", Kind: numberField, Label: "Longest wait, in seconds", Value: a.DebounceMaxSeconds.String(),
			Hint: "0 to 300. How long the first message waits for that at most. 0: 30 seconds.",
		},
		{
			Name: "supersede", Kind: checkField, Label: "Start over when a new message arrives", Value: checked(a.Supersede),
			Hint: "A newer message discards the unsent answer, and the model is called once more. Both calls are charged.",
		},
		{
			Name: "typing", Kind: checkField, Label: "Show customers that it reads and writes", Value: checked(a.Typing),
			Hint: "Where the platform can: bots and the social platform show both, the marketplaces that messages were read.",
		},
		{
			Name: "pauseMinutes", Kind: numberField, Label: "Silence after a person wrote, in minutes", Value: a.PauseMinutes.String(),
			Hint: "0 to 1,440. When one of you writes from the platform's own app, the assistant is silent for so long. Empty: 30 minutes. 0: never.",
		},
	}
}

func checked(on bool) string {
	if on {
		return "true"
	}
	return ""
}

// numberOrZero is [pageRequest.number] with 0 for an empty field: the API takes 0 for its default, while null would change
// nothing.
func (req *pageRequest) numberOrZero(name string) any {
	if number := req.number(name); number != nil {
		return number
	}
	return 0
}

// modelOptions returns the models that an agent can have, and the current one, if that isn't among them.
func (req *pageRequest) modelOptions(current string) ([]option, error) {
	var models struct{ Data []agentModel }
	if err := req.get("/agents/models", nil, &models); err != nil {
		return nil, err
	}
	options := make([]option, 0, len(models.Data)+1)
	found := false
	for _, model := range models.Data {
		found = found || model.ID == current
		options = append(options, option{Value: model.ID, Label: model.label(), Selected: model.ID == current})
	}
	if current != "" && !found {
		options = append(options, option{Value: current, Label: current + " (no longer available)", Selected: true})
	}
	return options, nil
}

// label describes the model in a select: names, tier, context.
func (m *agentModel) label() string {
	parts := []string{m.FriendlyName}
	if m.FriendlyName == "" {
		parts[0] = m.ID
	}
	if m.DisplayName != "" && m.DisplayName != parts[0] {
		parts[0] += " – " + m.DisplayName
	}
	if m.Tier != "" {
		parts = append(parts, m.Tier)
	}
	if m.ContextWindow > 0 {
		parts = append(parts, strconv.FormatInt(m.ContextWindow, 10)+" tokens of context")
	}
	if m.VNHosted {
		parts = append(parts, "runs in the home country")
	}
	return strings.Join(parts, ", ")
}

// namedOptions returns a list of the API as options of a select; the first, "", has the label none.
func (req *pageRequest) namedOptions(path, none, current string) ([]option, error) {
	type named struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	all, err := everything[named](req, path)
	if err != nil {
		return nil, err
	}
	options := []option{{Label: none}}
	for _, one := range all {
		options = append(options, option{Value: one.ID, Label: one.Name})
	}
	return choices(options, current), nil
}

// maxPages bounds how many pages of a list are read for a select: 1,000 choices.
const maxPages = 10

// everything reads a list of the API, up to [maxPages] pages.
func everything[T any](req *pageRequest, path string) (all []T, err error) {
	query := url.Values{"limit": {"100"}}
	for range maxPages {
		var part list[T]
		if err := req.get(path, query, &part); err != nil {
			return nil, err
		}
		all = append(all, part.Data...)
		if part.NextCursor == "" {
			return all, nil
		}
		query.Set("cursor", part.NextCursor)
	}
	return all, nil
}

// maxTry bounds what the playground's script sends, in bytes.
const maxTry = 1 << 20

type playgroundData struct{ Agent agent }

func (d *playgroundData) PageTitle() string { return "Playground: " + d.Agent.Name }

// playgroundPage lets a person write to an assistant as a customer would. Its script keeps the conversation and sends it to the
// relay, whose response is a stream of chunks.
func playgroundPage() page {
	return page{
		path: agentsPath + "/{id}/playground", template: "playground", title: "Playground", section: agentsPath,
		scripts: []string{"playground.js"},
		show: func(req *pageRequest) (any, error) {
			data := playgroundData{}
			err := req.get("/agents/"+req.id(), nil, &data.Agent)
			return &data, err
		},
		relays: []relay{{method: http.MethodPost, name: "stream", maxBody: maxTry, ask: askAgent}},
	}
}

func askAgent(req *pageRequest) (apiRequest, error) {
	said, err := req.readJSON()
	if err != nil {
		return apiRequest{}, err
	}
	return apiRequest{
		method: http.MethodPost, path: "/agents/" + req.id() + "/playground", body: said,
		accept: "text/event-stream",
	}, nil
}
