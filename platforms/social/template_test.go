package social

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

const health = `{"health_status":{"can_send_message":"AVAILABLE","entities":[{"entity_type":"PHONE_NUMBER","id":"1001"},` +
	`{"entity_type":"WABA","id":"102290129340398","can_send_message":"AVAILABLE"},{"entity_type":"APP","id":"6"}]},"id":"1001"}`

// listing serves the health of a number, and its templates.
func listing(t *testing.T, status int, templates string) (platforms.Templater, *[]string) {
	t.Helper()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		if r.Header.Get("Authorization") != "Bearer "+number.Credentials[platforms.AccessToken] {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/1001" {
			_, _ = io.WriteString(w, health)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, templates)
	}))
	t.Cleanup(server.Close)
	p, ok := platformtest.New(t, Driver{}, map[string]string{"api_base": server.URL}).(platforms.Templater)
	require.True(t, ok)
	return p, &asked
}

var number = &platforms.Channel{
	Type: ChatApp, ExternalID: "1001", Credentials: platforms.Credentials{platforms.AccessToken: "EAAG|page-token-0123456789"},
}

// The list has what the business account approved; templates of an odd form hide no other.
func TestTemplates(t *testing.T) {
	t.Parallel()
	p, asked := listing(t, 200, `{"data":[
		{"name":"order_ready","language":"en_US","status":"APPROVED","category":"UTILITY","id":"1","components":[
			{"type":"HEADER","format":"TEXT","text":"News"},
			{"type":"BODY","text":"Dear {{1}}, order {{2}} is ready.","example":{"body_text":[["Lan","7"]]}},
			{"type":"FOOTER","text":"Reply STOP to stop"},
			{"type":"BUTTONS","buttons":[{"type":"QUICK_REPLY","text":"Thanks"},{"type":"URL","text":"Shop","url":"https://shop.example"},
				{"type":"PHONE_NUMBER","text":"Call","phone_number":"+1"}]}]},
		{"name":"named","language":"vi","status":"APPROVED","category":"MARKETING","parameter_format":"NAMED","components":[
			{"type":"BODY","text":"Chào {{first_name}}!"}]},
		{"name":"with_picture","language":"en","status":"APPROVED","components":[{"type":"HEADER","format":"IMAGE"},{"type":"BODY","text":"Look"}]},
		{"name":"with_header","language":"en","status":"APPROVED","components":[{"type":"HEADER","format":"TEXT","text":"{{1}}"},{"type":"BODY","text":"Look"}]},
		{"name":"with_link","language":"en","status":"APPROVED","components":[{"type":"BODY","text":"Look"},
			{"type":"BUTTONS","buttons":[{"type":"URL","url":"https://shop.example/{{1}}"}]}]},
		{"name":"one_time_code","language":"en","status":"APPROVED","components":[{"type":"BODY","text":"{{1}} is your code."},
			{"type":"BUTTONS","buttons":[{"type":"OTP","otp_type":"COPY_CODE"}]}]},
		{"name":"carousel","language":"en","status":"APPROVED","components":[{"type":"BODY","text":"Look"},{"type":"CAROUSEL","cards":[]}]},
		{"name":"paused","language":"en","status":"PAUSED","components":[{"type":"BODY","text":"Look"}]},
		{"name":"no_body","language":"en","status":"APPROVED","components":[{"type":"FOOTER","text":"x"}]},
		{"name":7,"language":"en","status":"APPROVED","components":[{"type":"BODY","text":"Look"}]},
		null, [], "x"
	],"paging":{"cursors":{"before":"MAZDZD","after":"QVFIUm"},"next":"https://graph.facebook.com/x?access_token=secret"}}`)
	page, err := p.Templates(t.Context(), number, platforms.TemplateQuery{Name: "order ready&x=1", After: "MAZDZD"})
	require.NoError(t, err)
	require.NoError(t, platforms.CheckTemplatePage(&page))
	require.Equal(t, "QVFIUm", page.Next)
	require.Equal(t, []string{
		"/1001?fields=health_status",
		"/102290129340398/message_templates?after=MAZDZD&fields=name%2Clanguage%2Cstatus%2Ccategory%2Ccomponents&limit=25" +
			"&name=order+ready%26x%3D1&status=APPROVED",
	}, *asked)
	require.Equal(t, platforms.Template{
		Name: "order_ready", Language: "en_US", Category: "utility", Body: "Dear {{1}}, order {{2}} is ready.", Variables: []string{"1", "2"},
	}, page.Templates[0])
	require.Equal(t, []string{"first_name"}, page.Templates[1].Variables)
	needs := map[string]string{}
	for _, template := range page.Templates[1:] {
		needs[template.Name] = template.Needs
	}
	require.Equal(t, map[string]string{
		"named": "", "with_picture": "a picture, video, file or place in its header", "with_header": "a value for its header",
		"with_link": "a value for one of its buttons", "one_time_code": "a value for one of its buttons",
		"carousel": "a part that is neither header, text, footer nor button",
	}, needs)
}

// The last page names no next one; a page that is longer than asked for is cut.
func TestPagesOfTemplates(t *testing.T) {
	t.Parallel()
	one := `{"name":"a","language":"en","status":"APPROVED","components":[{"type":"BODY","text":"` + strings.Repeat(`\u1ea1`, 1024) + `"}]}`
	many := strings.TrimSuffix(strings.Repeat(one+",", 40), ",")
	p, _ := listing(t, 200, `{"data":[`+many+`],"paging":{"cursors":{"after":"QVFIUm"}}}`)
	page, err := p.Templates(t.Context(), number, platforms.TemplateQuery{})
	require.NoError(t, err)
	require.Len(t, page.Templates, platforms.MaxTemplates)
	require.Empty(t, page.Next)

	p, _ = listing(t, 200, `{"data":[]}`)
	page, err = p.Templates(t.Context(), number, platforms.TemplateQuery{})
	require.NoError(t, err)
	require.Empty(t, page.Templates)
}

func TestTemplatesFail(t *testing.T) {
	t.Parallel()
	for body, class := range map[string]platforms.Class{
		failed(190, 0):               platforms.NeedsReauth,
		failed(200, 0):               platforms.NeedsReauth,
		failed(80008, 0):             platforms.Retry,
		failed(100, 33):              platforms.Refused,
		`{}`:                         platforms.Unknown,
		`{"data":7}`:                 platforms.Unknown,
		`{"data":[],"paging":"x"}`:   platforms.Unknown,
		strings.Repeat(" ", 1<<20+1): platforms.Unknown,
	} {
		status := 200
		if strings.Contains(body, "error") {
			status = 400
		}
		p, _ := listing(t, status, body)
		_, err := p.Templates(t.Context(), number, platforms.TemplateQuery{})
		requireClass(t, class, err, body)
	}
	p, asked := listing(t, 200, `{"data":[]}`)
	_, err := p.Templates(t.Context(), &platforms.Channel{Type: Messenger, ExternalID: "1001", Credentials: number.Credentials}, platforms.TemplateQuery{})
	requireClass(t, platforms.Refused, err, "another service")
	_, err = p.Templates(t.Context(), &platforms.Channel{Type: ChatApp, ExternalID: "../me", Credentials: number.Credentials}, platforms.TemplateQuery{})
	requireClass(t, platforms.Refused, err, "no id")
	require.Empty(t, *asked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Templates(ctx, number, platforms.TemplateQuery{})
	requireClass(t, platforms.Retry, err, "gone")
}

// A number whose health names no business account, or one that is no id, is asked nothing more.
func TestTemplatesOfNoAccount(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"id":"1001"}`, `{"health_status":{"entities":[{"entity_type":"WABA","id":"../me"}]}}`} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(server.Close)
		p := platformtest.New(t, Driver{}, map[string]string{"api_base": server.URL}).(platforms.Templater)
		_, err := p.Templates(t.Context(), number, platforms.TemplateQuery{})
		requireClass(t, platforms.Unknown, err, body)
		require.Equal(t, 1, asked)
	}
}

func requireClass(t *testing.T, class platforms.Class, err error, why string) {
	t.Helper()
	failure, ok := errors.AsType[*platforms.Error](err)
	require.True(t, ok, "%.80s: %v", why, err)
	require.Equal(t, class, failure.Class, "%.80s", why)
}

// A template is sent by name and language, with the values of its variables in order, or by their names.
func TestSendTemplate(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read, _ := io.ReadAll(r.Body)
		bodies <- string(read)
		_, _ = io.WriteString(w, `{"messages":[{"id":"wamid.1","message_status":"accepted"}]}`)
	}))
	t.Cleanup(server.Close)
	p := platformtest.New(t, Driver{}, map[string]string{"api_base": server.URL})
	for components, variables := range map[string][]platforms.TemplateVariable{
		``: nil,
		`,"components":[{"type":"body","parameters":[{"type":"text","text":"Lan"},{"type":"text","text":"7"}]}]`:    {{Name: "1", Value: "Lan"}, {Name: "2", Value: "7"}},
		`,"components":[{"type":"body","parameters":[{"type":"text","parameter_name":"first_name","text":"Lan"}]}]`: {{Name: "first_name", Value: "Lan"}},
	} {
		id, err := p.Send(t.Context(), &platforms.Outgoing{
			Type: ChatApp, ExternalID: "1001", Address: "2", Text: "Dear Lan", Mark: "msg_1", Credentials: number.Credentials,
			Template: &platforms.FilledTemplate{Name: "order_ready", Language: "en_US", Variables: variables},
		})
		require.NoError(t, err)
		require.Equal(t, "wamid.1", id)
		require.JSONEq(t, fmt.Sprintf(`{"messaging_product":"whatsapp","recipient_type":"individual","to":"2","type":"template",`+
			`"template":{"name":"order_ready","language":{"code":"en_US"}%s},"biz_opaque_callback_data":"caddy-svc:msg_1"}`, components), <-bodies)
	}
}
