package platformfake

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// Template is a template of the chat app's business account of a number.
type Template struct {
	Name, Language string
	// Category is MARKETING unless it is given, Status APPROVED. Only APPROVED ones are listed and sent.
	Category, Status string
	// Body is the text; Others are the other components, a JSON array in the platform's form, "" for none.
	Body, Others string
}

// Codes of the platform about templates.
const (
	templateCount    = 132000
	templateMissing  = 132001
	templateFormat   = 132012
	templatePaused   = 132015
	templateDisabled = 132016
	templateValue    = 132018
)

// SetTemplates replaces the templates of the number's account.
func (s *Server) SetTemplates(phoneNumberID string, templates ...Template) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.templates[phoneNumberID] = templates
}

// CloseWindow makes the chat app refuse texts to a customer, as it does when they have not written for 24 hours.
func (s *Server) CloseWindow(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late[address] = true
}

// accountPrefix precedes a number's id in the id of its business account.
const accountPrefix = "waba-"

// health serves the health of a number, which names its business account.
func (g graph) health(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	fault, gate := g.server.takeListing(bearer(r), "")
	g.server.end(exchange{w, r, fault, gate, g.fail, bearer(r)}, `{"health_status":{"can_send_message":"AVAILABLE","entities":[`+
		`{"entity_type":"PHONE_NUMBER","id":`+quoted(id)+`,"can_send_message":"AVAILABLE"},`+
		`{"entity_type":"WABA","id":`+quoted(accountPrefix+id)+`,"can_send_message":"AVAILABLE"},`+
		`{"entity_type":"BUSINESS","id":"506914307656634","can_send_message":"AVAILABLE"}]},"id":`+quoted(id)+`}`)
}

// listTemplates serves a page of an account's templates. Faults match the request by "templates of " and the number's id.
func (g graph) listTemplates(w http.ResponseWriter, r *http.Request) {
	phone, query := strings.TrimPrefix(r.PathValue("id"), accountPrefix), r.URL.Query()
	fault, gate := g.server.takeListing(bearer(r), "templates of "+phone)
	g.server.mu.Lock()
	all := slices.Clone(g.server.templates[phone])
	g.server.mu.Unlock()
	all = slices.DeleteFunc(all, func(t Template) bool {
		return query.Get("status") != "" && cmp.Or(t.Status, "APPROVED") != query.Get("status") || !strings.Contains(t.Name, query.Get("name"))
	})
	limit, _ := strconv.Atoi(query.Get("limit"))
	from, _ := strconv.Atoi(strings.TrimPrefix(query.Get("after"), "after-"))
	page := all[min(from, len(all)):min(from+cmp.Or(limit, 25), len(all))]
	data := make([]string, len(page))
	for i, t := range page {
		data[i] = t.listed()
	}
	end := from + len(page)
	paging := `{"cursors":{"before":"before","after":"after-` + strconv.Itoa(end) + `"}`
	if end < len(all) {
		paging += `,"next":"https://graph.example/next"`
	}
	g.server.end(exchange{w, r, fault, gate, g.fail, bearer(r)}, `{"data":[`+strings.Join(data, ",")+`],"paging":`+paging+`}}`)
}

// takeListing notes a request that lists something, and returns the fault that it meets.
func (s *Server) takeListing(token, subject string) (Fault, <-chan struct{}) {
	s.mu.Lock()
	bad := s.accounts[token].bad()
	s.mu.Unlock()
	switch {
	case bad:
		return Unauthorized, nil
	case subject == "":
		return Fault{}, nil
	}
	return s.takeOther(subject)
}

func (t *Template) listed() string {
	components := `{"type":"BODY","text":` + quoted(t.Body) + `}`
	if others := strings.TrimSuffix(strings.TrimPrefix(t.Others, "["), "]"); others != "" {
		components = others + "," + components
	}
	return `{"name":` + quoted(t.Name) + `,"language":` + quoted(t.Language) + `,"status":` + quoted(cmp.Or(t.Status, "APPROVED")) +
		`,"category":` + quoted(cmp.Or(t.Category, "MARKETING")) + `,"components":[` + components + `],"id":"1"}`
}

// sentTemplate is the template in a message of the chat app.
type sentTemplate struct {
	Name     string `json:"name"`
	Language struct {
		Code string `json:"code"`
	} `json:"language"`
	Components []struct {
		Type       string `json:"type"`
		Parameters []struct {
			Type string `json:"type"`
			Name string `json:"parameter_name"`
			Text string `json:"text"`
		} `json:"parameters"`
	} `json:"components"`
}

// judgeText returns the fault that a text to the address meets by the platform's rules.
func (s *Server) judgeText(address string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late[address] {
		return WindowExpired
	}
	return Fault{}
}

// judgeTemplate returns what the customer sees of a template, or the fault that it meets by the platform's rules.
func (s *Server) judgeTemplate(phone string, sent *sentTemplate) (shown string, verdict Fault) {
	refused := func(code int) (string, Fault) { return "", Fault{kind: templateRefused, code: code} }
	s.mu.Lock()
	all := s.templates[phone]
	s.mu.Unlock()
	found := slices.IndexFunc(all, func(t Template) bool { return t.Name == sent.Name && t.Language == sent.Language.Code })
	if found < 0 {
		return refused(templateMissing)
	}
	template := all[found]
	switch template.Status {
	case "", "APPROVED":
	case "PAUSED":
		return refused(templatePaused)
	case "DISABLED":
		return refused(templateDisabled)
	default:
		return refused(templateMissing)
	}
	names, shown := platforms.VariablesIn(template.Body), template.Body
	given := 0
	for _, component := range sent.Components {
		if component.Type != "body" {
			return refused(templateFormat)
		}
		for i, parameter := range component.Parameters {
			name := parameter.Name
			if name == "" {
				name = strconv.Itoa(i + 1)
			}
			switch {
			case parameter.Type != "text" || !slices.Contains(names, name):
				return refused(templateFormat)
			case parameter.Text == "" || strings.ContainsAny(parameter.Text, "\n\t") || strings.Contains(parameter.Text, "     "):
				return refused(templateValue)
			}
			given++
			shown = strings.ReplaceAll(shown, "{{"+name+"}}", parameter.Text)
		}
	}
	switch {
	case given != len(names):
		return refused(templateCount)
	case strings.Contains(template.Others, `"IMAGE"`):
		return refused(templateFormat)
	}
	return shown, Fault{}
}

// judgeChatApp judges a message of the chat app, and sets the text that the customer would see.
func (s *Server) judgeChatApp(message *Sent, template json.RawMessage) {
	if len(template) == 0 {
		message.verdict = s.judgeText(message.Address)
		return
	}
	var sent sentTemplate
	if json.Unmarshal(template, &sent) != nil {
		message.verdict = Rejected
		return
	}
	message.Template = sent.Name
	message.Text, message.verdict = s.judgeTemplate(message.ExternalID, &sent)
}
