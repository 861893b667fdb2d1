package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// valuePrefix precedes the name of a template's variable in the name of its field.
	valuePrefix = "value."
	// templatePages bounds the pages of the API's list in which a template is looked for by its name.
	templatePages = 4
)

// messageTemplate is a message template as the API shows it.
type messageTemplate struct {
	Name      string   `json:"name"`
	Language  string   `json:"language"`
	Category  string   `json:"category"`
	Body      string   `json:"body"`
	Variables []string `json:"variables"`
	Needs     string   `json:"needs"`

	// Choose is the address at which it is filled in, "" for one that can't be sent from here.
	Choose string `json:"-"`
}

type templateData struct {
	Customer string
	// Back is the address of the conversation, All that of the list of templates.
	Back, All string

	// Find selects templates of the list by name, and Found says that it did.
	Find      form
	Found     bool
	Templates []messageTemplate
	Pager     pager

	// Chosen is the template that is filled in, nil where the list is shown, and Text its text with the values so far.
	Chosen *messageTemplate
	Text   string
	Send   form
}

// conversationTemplatePage lists the templates that the platform of a conversation's channel has approved, or, with name and language in
// its address, shows one to be filled in and sent.
func conversationTemplatePage() page {
	return page{
		path: conversationsPath + "/{id}/template", template: "conversation-template", title: "Send a template", section: conversationsPath,
		show: showTemplates,
		actions: []action{
			{verb: "preview", form: "template-preview", do: func(req *pageRequest) (outcome, error) { return outcome{}, req.templateChosen() }},
			{verb: "send", form: "template-send", done: "The template is on its way.", do: sendTemplate},
		},
	}
}

func showTemplates(req *pageRequest) (any, error) {
	var c conversation
	if err := req.get("/conversations/"+req.id(), nil, &c); err != nil {
		return nil, err
	}
	data := templateData{Customer: c.Customer(), Back: conversationsPath + "/" + c.ID, All: req.path()}
	read := req.listTemplates
	if req.templateChosen() == nil {
		read = req.showChosen
	}
	return &data, templateRefusal(read(&data, "/channels/"+c.ChannelID+"/templates"))
}

// templateChosen returns a refusal unless the address names a template.
func (req *pageRequest) templateChosen() error {
	if req.query("name") == "" || req.query("language") == "" {
		return &apiError{Status: http.StatusBadRequest, Code: codeInvalidRequest, Message: "Choose a template first."}
	}
	return nil
}

// listTemplates reads a page of templates, from a path of the API.
func (req *pageRequest) listTemplates(data *templateData, from string) error {
	query, name := req.cursor(), strings.TrimSpace(req.query("name"))
	if name != "" {
		query.Set("name", name)
		data.Found = true
	}
	var templates list[messageTemplate]
	if err := req.get(from, query, &templates); err != nil {
		return err
	}
	data.Templates = templates.Data
	for i := range data.Templates {
		if t := &data.Templates[i]; t.Needs == "" {
			t.Choose = data.All + "?" + url.Values{"name": {t.Name}, "language": {t.Language}}.Encode()
		}
	}
	data.Pager = req.pager(templates.NextCursor)
	data.Find = req.form(form{ID: "template-find", Action: data.All, Get: true, Submit: "Find", Fields: []field{
		{Name: "name", Kind: textField, Label: "Name", Value: name, MaxLength: 512},
	}})
	return nil
}

// showChosen reads the template that the address names, and makes its form. If the platform can't be asked again after a refusal, the form
// has what was entered.
func (req *pageRequest) showChosen(data *templateData, from string) error {
	chosen, err := req.findTemplate(from)
	if err != nil {
		if req.refused == nil {
			return err
		}
		chosen = &messageTemplate{Name: req.query("name"), Language: req.query("language"), Variables: req.sentVariables()}
	}
	values := map[string]string{}
	send := form{ID: "template-send", Submit: "Send to the customer"}
	for _, name := range chosen.Variables {
		value := req.text(valuePrefix + name)
		if strings.TrimSpace(value) != "" {
			values[name] = value
		}
		send.Fields = append(send.Fields, field{
			Name: valuePrefix + name, Kind: textField, Label: "Value of {{" + name + "}}", Value: value, Required: true,
			MaxLength: platforms.MaxTemplateValue,
		})
	}
	query := "?" + url.Values{"name": {chosen.Name}, "language": {chosen.Language}}.Encode()
	send.Action = data.All + "/send" + query
	if len(send.Fields) > 0 {
		send.Preview = data.All + "/preview" + query
	}
	send.Fields = append(send.Fields, onceField())
	data.Chosen, data.Text, data.Send = chosen, platforms.FillIn(chosen.Body, values), req.form(send)
	return nil
}

// findTemplate looks for the template that the address names in a list of the API.
func (req *pageRequest) findTemplate(from string) (*messageTemplate, error) {
	name, language := req.query("name"), req.query("language")
	query := url.Values{"name": {name}}
	for range templatePages {
		var templates list[messageTemplate]
		if err := req.get(from, query, &templates); err != nil {
			return nil, err
		}
		found := slices.IndexFunc(templates.Data, func(t messageTemplate) bool { return t.Name == name && t.Language == language })
		if found >= 0 {
			return &templates.Data[found], nil
		}
		if templates.NextCursor == "" {
			break
		}
		query.Set("cursor", templates.NextCursor)
	}
	return nil, &apiError{
		Status: http.StatusNotFound, Code: codeNotFound,
		Message: "The platform has no approved template with this name and language. Choose another one.",
	}
}

// sentVariables returns the names of the variables whose values were entered, sorted.
func (req *pageRequest) sentVariables() (names []string) {
	for field := range req.sent {
		if name, ok := strings.CutPrefix(field, valuePrefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sendTemplate sends the template with the values that were entered.
func sendTemplate(req *pageRequest) (outcome, error) {
	if err := req.templateChosen(); err != nil {
		return outcome{}, err
	}
	names, variables := req.sentVariables(), []object{}
	for _, name := range names {
		variables = append(variables, object{"name": name, "value": req.text(valuePrefix + name)})
	}
	wish := object{"name": req.query("name"), "language": req.query("language"), "variables": variables}
	err := req.sendMessage(object{"template": wish})
	return goTo(conversationsPath + "/" + req.id()), templateRefusal(err, names...)
}

// templateRefusal returns a refusal of the API with words for people, at the field of the variable that the API names by its place
// among names.
func templateRefusal(err error, names ...string) error {
	refused, ok := err.(*apiError) //nolint:errorlint // the API's answer comes as it is, and another error stays as it is
	if !ok {
		return err
	}
	f := *refused
	if f.Code == string(errcode.ChannelNeedsReauth) {
		f.Message = "The platform refuses the channel's token, or doesn't let it read templates. Reconnect the channel with another one."
	}
	_, after, _ := strings.Cut(f.Field, "template.variables[")
	number, _, _ := strings.Cut(after, "]")
	if place, err := strconv.Atoi(number); err == nil && place >= 0 && place < len(names) {
		f.Message = strings.Replace(f.Message, f.Field, "The value", 1)
		f.Field = valuePrefix + names[place]
	}
	return &f
}
