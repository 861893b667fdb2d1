package dashboard

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// valuePrefix precedes the name of a template's variable in the name of its field.
	valuePrefix = "value."
	// templatePages bounds the pages of the list in which a template is looked for by its name.
	templatePages = 4
)

// templateRow is a message template of the list.
type templateRow struct {
	*api.TemplateObject

	// Choose is the address at which it is filled in, empty for a template that can't be sent from here.
	Choose string
}

type templateData struct {
	Customer string
	// Back is the address of the conversation, All the address of the list of templates.
	Back, All string

	// Find selects templates of the list by name. Found reports whether the list was selected.
	Find      form
	Found     bool
	Templates []templateRow
	Pager     ui.Pager

	// Chosen is the template that is filled in, nil if the page shows the list. Text is its text with the values so far.
	Chosen *api.TemplateObject
	Text   string
	Send   form
}

// conversationTemplatePage lists the templates that the platform of a conversation's channel has approved, or, with name and language in
// its address, shows one to be filled in and sent.
var conversationTemplatePage = page{
	Path: conversationsPath + "/{id}/template", Template: "conversation-template", Title: "Send a template", Section: conversationsPath,
	Show: showTemplates,
	Actions: []action{
		{Verb: "preview", Form: "template-preview", Do: func(req *pageRequest) (string, error) { return "", req.templateChosen() }},
		{Verb: "send", Form: "template-send", Done: "The template is on its way.", Do: sendTemplate},
	},
}

func showTemplates(req *pageRequest) (any, error) {
	c := site.Read(req, api.GetConversation, values{"id": req.ID()})
	data := templateData{Customer: customer(c), Back: conversationsPath + "/" + c.ID, All: req.Path()}
	read := req.listTemplates
	if req.templateChosen() == nil {
		read = req.showChosen
	}
	return &data, templateRefusal(read(&data, c.ChannelID))
}

// templateChosen returns a refusal unless the address names a template.
func (req *pageRequest) templateChosen() error {
	if req.Query("name") == "" || req.Query("language") == "" {
		return site.RefuseField("", "Choose a template first.")
	}
	return nil
}

var findTemplateForm = ui.FormOf(api.ListTemplates, form{ID: "template-find", Get: true, Submit: "Find"}, field{Name: "name", Label: "Name"})

// listTemplates reads a page of the templates of a channel.
func (req *pageRequest) listTemplates(data *templateData, channelID string) error {
	in, name := req.Cursor(), strings.TrimSpace(req.Query("name"))
	in["id"], in["name"], data.Found = channelID, name, name != ""
	templates, err := site.Ask(req, api.ListTemplates, in)
	if err != nil {
		return err
	}
	for i := range templates.Data {
		row := templateRow{TemplateObject: &templates.Data[i]}
		if row.Needs == nil {
			row.Choose = data.All + "?" + url.Values{"name": {row.Name}, "language": {row.Language}}.Encode()
		}
		data.Templates = append(data.Templates, row)
	}
	data.Pager = req.Pager(templates.NextCursor)
	find := findTemplateForm.Of(data.All, nil)
	find.Fields[0].Value = name
	data.Find = req.Form(find)
	return nil
}

// showChosen reads the template that the address names, and makes its form. If the list can't be read again after a refusal, the form
// has the input.
func (req *pageRequest) showChosen(data *templateData, channelID string) error {
	chosen, err := req.findTemplate(channelID)
	if err != nil {
		if req.Refused == nil {
			return err
		}
		chosen = &api.TemplateObject{Name: req.Query("name"), Language: req.Query("language"), Variables: req.sentVariables()}
	}
	filled := map[string]string{}
	send := form{ID: "template-send", Submit: "Send to the customer"}
	for _, name := range chosen.Variables {
		value := req.Text(valuePrefix + name)
		if strings.TrimSpace(value) != "" {
			filled[name] = value
		}
		send.Fields = append(send.Fields, field{
			Name: valuePrefix + name, Kind: ui.TextField, Label: req.Phrase("Value of {{%s}}", name), Value: value, Required: true,
			MaxLength: platforms.MaxTemplateValue,
		})
	}
	query := "?" + url.Values{"name": {chosen.Name}, "language": {chosen.Language}}.Encode()
	send.Action = data.All + "/send" + query
	if len(send.Fields) > 0 {
		send.Preview = data.All + "/preview" + query
	}
	data.Chosen, data.Text, data.Send = chosen, platforms.FillIn(chosen.Body, filled), req.Form(once(send))
	return nil
}

// findTemplate returns the template of a channel that the address names.
func (req *pageRequest) findTemplate(channelID string) (*api.TemplateObject, error) {
	name, language := req.Query("name"), req.Query("language")
	in := values{"id": channelID, "name": name}
	for range templatePages {
		templates, err := site.Ask(req, api.ListTemplates, in)
		if err != nil {
			return nil, err
		}
		for i := range templates.Data {
			if t := &templates.Data[i]; t.Name == name && t.Language == language {
				return t, nil
			}
		}
		if templates.NextCursor == nil {
			break
		}
		in["cursor"] = *templates.NextCursor
	}
	return nil, handlers.NotFound("%s", ui.Text("The platform has no approved template with this name and language. Choose another one."))
}

// sentVariables returns the names of the variables with a value in the form, sorted.
func (req *pageRequest) sentVariables() (names []string) {
	for field := range req.Sent {
		if name, ok := strings.CutPrefix(field, valuePrefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sendTemplate sends the template with the values that were entered.
func sendTemplate(req *pageRequest) (string, error) {
	if err := req.templateChosen(); err != nil {
		return "", err
	}
	names, variables := req.sentVariables(), []any{}
	for _, name := range names {
		variables = append(variables, object{"name": name, "value": req.Text(valuePrefix + name)})
	}
	chosen := object{"name": req.Query("name"), "language": req.Query("language"), "variables": variables}
	err := req.sendMessage(values{"template": chosen})
	return conversationsPath + "/" + req.ID(), templateRefusal(err, names...)
}

const templatesRefused ui.Text = "The platform refuses the channel's token, or doesn't let it read templates. " +
	"Reconnect the channel with another one."

// templateRefusal returns a refusal with words for people, at the field of the variable that the operation names by its index in names.
func templateRefusal(err error, names ...string) error {
	refused, ok := errors.AsType[*handlers.Error](err)
	if !ok {
		return err
	}
	f := *refused
	if f.Code == errcode.ChannelNeedsReauth {
		f.Message = string(templatesRefused)
	}
	_, after, _ := strings.Cut(f.Field, "template.variables[")
	number, _, _ := strings.Cut(after, "]")
	if place, err := strconv.Atoi(number); err == nil && place >= 0 && place < len(names) {
		f.Message = strings.Replace(f.Message, f.Field, "The value", 1)
		f.Field = valuePrefix + names[place]
	}
	return &f
}
