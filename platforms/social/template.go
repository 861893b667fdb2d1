package social

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// maxTemplatePage is the number of bytes of a page of templates that are read. A template has some kilobytes, with its examples
// up to 40.
const maxTemplatePage = 1 << 20

// templateOf returns a template as it is sent. It contains only the variables of the body. The platform adds header, footer and buttons
// without variables. A variable has its name unless that is a number: numbered variables are matched by their order.
func templateOf(filled *platforms.FilledTemplate) object {
	template := object{"name": filled.Name, "language": object{"code": filled.Language}}
	var parameters []object
	for _, variable := range filled.Variables {
		parameter := object{"type": "text", "text": variable.Value}
		if !platforms.IsDigits(variable.Name) {
			parameter["parameter_name"] = variable.Name
		}
		parameters = append(parameters, parameter)
	}
	if len(parameters) > 0 {
		template["components"] = []object{{"type": "body", "parameters": parameters}}
	}
	return template
}

// Templates implements [platforms.Templater]. Templates belong to the business account of the channel's number, so the account is
// requested first
// (developers.facebook.com/documentation/business-messaging/whatsapp/reference/whatsapp-business-account/template-api).
func (s *social) Templates(ctx context.Context, channel *platforms.Channel, query platforms.TemplateQuery) (platforms.TemplatePage, error) {
	account, err := s.businessAccount(ctx, channel)
	if err != nil {
		return platforms.TemplatePage{}, err
	}
	parameters := url.Values{
		"status": {"APPROVED"}, "fields": {"name,language,status,category,components"}, "limit": {strconv.Itoa(platforms.MaxTemplates)},
	}
	if query.Name != "" {
		parameters.Set("name", query.Name)
	}
	if query.After != "" {
		parameters.Set("after", query.After)
	}
	var answer struct {
		Data   *[]json.RawMessage `json:"data"`
		Paging struct {
			Cursors struct {
				After string `json:"after"`
			} `json:"cursors"`
			Next string `json:"next"`
		} `json:"paging"`
	}
	r, err := s.call(ctx, ChatApp, channel.Credentials, &platforms.Request{
		Method: http.MethodGet, Path: "/" + account + "/message_templates", Query: parameters, MaxAnswer: maxTemplatePage,
	}, &answer)
	if err != nil {
		return platforms.TemplatePage{}, err
	}
	if answer.Data == nil {
		return platforms.TemplatePage{}, platforms.Fail(platforms.Unknown, r.Error("", ""))
	}
	page := platforms.TemplatePage{}
	if answer.Paging.Next != "" {
		page.Next = answer.Paging.Cursors.After
	}
	for _, listed := range (*answer.Data)[:min(len(*answer.Data), platforms.MaxTemplates)] {
		if template, ok := readTemplate(listed); ok {
			page.Templates = append(page.Templates, template)
		}
	}
	return page, nil
}

// businessAccount returns the id of the business account to which the channel's number belongs, from the number's health
// (developers.facebook.com/documentation/business-messaging/whatsapp/support/health-status).
func (s *social) businessAccount(ctx context.Context, channel *platforms.Channel) (string, error) {
	if channel.Type != ChatApp {
		return "", platforms.Refusef("channels of type %s have no templates", string(channel.Type))
	}
	var node struct {
		Health struct {
			Entities []struct {
				Type platforms.Word `json:"entity_type"`
				ID   platforms.Word `json:"id"`
			} `json:"entities"`
		} `json:"health_status"`
	}
	request := &platforms.Request{Method: http.MethodGet, Query: url.Values{"fields": {"health_status"}}}
	r, err := s.callNumber(ctx, channel.ExternalID, channel.Credentials, request, &node)
	if err != nil {
		return "", err
	}
	for _, entity := range node.Health.Entities {
		if entity.Type == "WABA" && isID(string(entity.ID)) {
			return string(entity.ID), nil
		}
	}
	return "", platforms.Fail(platforms.Unknown, r.Error("", ""))
}

// listedTemplate is a template in the platform's list.
type listedTemplate struct {
	Name       string            `json:"name"`
	Language   string            `json:"language"`
	Status     string            `json:"status"`
	Category   string            `json:"category"`
	Components []listedComponent `json:"components"`
}

type listedComponent struct {
	Type    string `json:"type"`
	Format  string `json:"format"` // of a header
	Text    string `json:"text"`
	Buttons []struct {
		Type string `json:"type"`
		URL  string `json:"url"`
	} `json:"buttons"`
}

// readTemplate returns a template in the form of the contract. ok is false if the template isn't approved, has no text or has an
// unknown form.
func readTemplate(listed json.RawMessage) (template platforms.Template, ok bool) {
	var l listedTemplate
	if json.Unmarshal(listed, &l) != nil {
		return template, false
	}
	template = platforms.Template{Name: l.Name, Language: l.Language, Category: strings.ToLower(l.Category)}
	for i := range l.Components {
		component := &l.Components[i]
		if strings.EqualFold(component.Type, "BODY") {
			template.Body = component.Text
		} else if needs := component.needs(); needs != "" {
			template.Needs = needs
		}
	}
	template.Variables = platforms.VariablesIn(template.Body)
	approved := l.Status == "" || strings.EqualFold(l.Status, "APPROVED")
	page := platforms.TemplatePage{Templates: []platforms.Template{template}}
	return template, approved && platforms.CheckTemplatePage(&page) == nil
}

// needs returns the data that a component other than the body requires and that can't be given here, or "" if it requires none.
func (c *listedComponent) needs() string {
	switch strings.ToUpper(c.Type) {
	case "HEADER":
		if c.Format != "" && !strings.EqualFold(c.Format, "TEXT") {
			return "a picture, video, file or place in its header"
		}
		if len(platforms.VariablesIn(c.Text)) > 0 {
			return "a value for its header"
		}
	case "FOOTER":
	case "BUTTONS":
		for _, button := range c.Buttons {
			switch kind := strings.ToUpper(button.Type); {
			case kind == "QUICK_REPLY", kind == "PHONE_NUMBER", kind == "URL" && len(platforms.VariablesIn(button.URL)) == 0:
			default:
				return "a value for one of its buttons"
			}
		}
	default:
		return "a part that is neither header, text, footer nor button"
	}
	return ""
}
