package social

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// graphError is an error of the interface. It comes with any status, even 200.
type graphError struct {
	Code        *int `json:"code"`
	Subcode     int  `json:"error_subcode"`
	IsTransient bool `json:"is_transient"`
}

// call makes a call for a channel of type t and reads a good answer into result. The token is sent in a header, so that no
// address contains it.
func (s *social) call(
	ctx context.Context, t platforms.Type, credentials platforms.Credentials, request *platforms.Request, result any,
) (*platforms.Response, error) {
	token := credentials[platforms.AccessToken]
	if problem := platforms.CheckToken(token); problem != "" {
		return nil, platforms.Unauthorized(false, &platforms.FieldError{Field: platforms.AccessToken, Problem: problem})
	}
	request.Name, request.Base = string(t), s.bases[t]
	request.Header = map[string]string{"Authorization": "Bearer " + token}
	r, failure := s.config.Client.Do(ctx, request)
	if failure != nil {
		return nil, failure
	}
	var body struct {
		Error *graphError `json:"error"`
	}
	switch {
	case !r.Decode(&body):
		return nil, r.Unreadable(false)
	case body.Error != nil && body.Error.Code != nil:
		return nil, failureOf(r, t, body.Error)
	case !r.OK() || !r.Decode(result):
		return nil, r.Unreadable(false)
	}
	return r, nil
}

// pairPause is the chat app's pause between messages to one customer, after a short burst.
const pairPause = 6 * time.Second

// unexplainedTries limits the tries of a message after the chat app's code 131000, which gives no reason: the message itself may
// be the cause.
const unexplainedTries = 3

// failureOf classifies an error. A code of one of the three services is unknown to the others, so one table serves all
// (developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes). Codes 1, 2 and 1200 and the subcodes
// of unreachable customers are general knowledge, not from the vendor's documentation. Code 131026 may be reported when the
// customer has already written again.
func failureOf(r *platforms.Response, t platforms.Type, e *graphError) *platforms.Error {
	code := *e.Code
	cause := r.Error(strconv.Itoa(code), strconv.Itoa(e.Subcode))
	switch e.Subcode {
	case 2018278, 2018065, 2534022:
		return windowExpired(t, cause)
	case 1545041, 2018108:
		return platforms.Fail(platforms.CustomerBlocked, cause)
	case 1893063: // the page is restricted for some time (developers.facebook.com/docs/messenger-platform/changelog, 2026-06-25)
		return platforms.RetryLater(r.RetryAfter(), cause)
	}
	switch code {
	case 131047, 470:
		return windowExpired(t, cause)
	case 551, 131026:
		return platforms.Fail(platforms.CustomerBlocked, cause)
	case 131056:
		return platforms.TooManyForOne(max(r.RetryAfter(), pairPause), cause)
	case 4, 17, 32, 613, 130429:
		return platforms.TooMany(max(r.RetryAfter(), regainAccess(r)), cause)
	case 131000:
		failure := platforms.RetryLater(r.RetryAfter(), cause)
		failure.MostTries = unexplainedTries
		return failure
	case 1, 2, 1200, 131016, 131057, 133004, 133016:
		return platforms.RetryLater(r.RetryAfter(), cause)
	case 102, 190, 368, 131005, 131031, 131037, 131042, 131045, 133010: // the token, the account or its number may not send
		return platforms.Unauthorized(false, cause)
	case 131048, 131049, 131050, 131051, 131052, 131053, 131062, 131064: // spam, limits, the content, the customer's id
		return platforms.Fail(platforms.Refused, cause)
	case 132015:
		return platforms.Fail(platforms.TemplatePaused, cause)
	case 132000, 132001, 132005, 132007, 132012, 132016, 132018: // count, missing, too long, policy, format, disabled, values
		return platforms.Fail(platforms.TemplateRefused, cause)
	case 10:
		if e.Subcode == 0 { // the permission was taken away; other subcodes are about one message
			return platforms.Unauthorized(false, cause)
		}
		return platforms.Fail(platforms.Refused, cause)
	case 0, 3:
		if t == ChatApp {
			return platforms.Unauthorized(false, cause)
		}
	}
	switch {
	case code >= 200 && code <= 299:
		return platforms.Unauthorized(false, cause)
	case code >= 80000 && code <= 80014:
		return platforms.TooMany(max(r.RetryAfter(), regainAccess(r)), cause)
	case e.IsTransient:
		return platforms.RetryLater(r.RetryAfter(), cause)
	}
	return r.Unlisted(false, cause)
}

// regainAccess returns how long a page, account or number is refused, from the header with its use of calls, or 0 if the header
// is missing (developers.facebook.com/docs/graph-api/overview/rate-limiting, "Business Use Case Rate Limits"). The platform
// states minutes.
func regainAccess(r *platforms.Response) (longest time.Duration) {
	var usage map[string][]struct {
		Minutes float64 `json:"estimated_time_to_regain_access"`
	}
	if json.Unmarshal([]byte(r.Header.Get("X-Business-Use-Case-Usage")), &usage) != nil {
		return 0
	}
	const day = 24 * 60
	for _, uses := range usage {
		for _, use := range uses {
			longest = max(longest, time.Duration(min(max(use.Minutes, 0), day)*float64(time.Minute)))
		}
	}
	return longest
}

func windowExpired(t platforms.Type, cause error) *platforms.Error {
	if t == ChatApp {
		return platforms.Fail(platforms.TemplateRequired, cause)
	}
	return platforms.Fail(platforms.WindowExpired, cause)
}

// callNumber makes a call for a phone number of the chat app. The path of the request is below the number's.
func (s *social) callNumber(
	ctx context.Context, number string, credentials platforms.Credentials, request *platforms.Request, result any,
) (*platforms.Response, error) {
	if !isID(number) {
		return nil, errPhoneNumberID()
	}
	request.Path = "/" + number + request.Path
	return s.call(ctx, ChatApp, credentials, request, result)
}

// sendChatApp sends a message from the channel's phone number: a text, a template or a file
// (developers.facebook.com/documentation/business-messaging/whatsapp/reference/whatsapp-business-phone-number/message-api). A customer is
// addressed by phone number, or, if they hide it, by the id that the platform gave them for this business, such as "US.1349…": phone
// numbers have neither letters nor dots. The mark is repeated in every status of the message
// (developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference/messages/status).
func (s *social) sendChatApp(ctx context.Context, out *platforms.Outgoing, kind string, content object) (string, error) {
	message := object{"messaging_product": "whatsapp", "recipient_type": "individual", "type": kind, kind: content}
	if out.Mark != "" {
		message["biz_opaque_callback_data"] = ownMark + out.Mark
	}
	if strings.Contains(out.Address, ".") && strings.ContainsFunc(out.Address, unicode.IsLetter) {
		message["recipient"] = out.Address
	} else {
		message["to"] = out.Address
	}
	var result struct {
		Messages [1]struct {
			ID platforms.Word `json:"id"`
		} `json:"messages"`
	}
	r, err := s.callNumber(ctx, out.ExternalID, out.Credentials,
		&platforms.Request{Method: http.MethodPost, Path: "/messages", JSON: message}, &result)
	return r.ID(result.Messages[0].ID, err)
}

func errPhoneNumberID() *platforms.Error {
	return platforms.Refusef("the channel's phone number id is not an id")
}

// isID reports whether an id may be part of a path. It keeps tenants from choosing another path: real ids are digits, ids of
// tests are words.
func isID(id string) bool { return len(id) <= 128 && platforms.IsWord(id) }

// SendFile implements [platforms.FileSender]. It uploads the file and sends it by the id that the platform returns.
func (s *social) SendFile(ctx context.Context, out *platforms.Outgoing, file *platforms.File) (string, error) {
	if out.Type == ChatApp {
		return s.sendChatAppFile(ctx, out, file)
	}
	id, err := s.upload(ctx, out, file)
	if err != nil {
		return "", platforms.NotSent(err)
	}
	return s.sendDirect(ctx, out, object{"attachment": object{"type": file.Kind, "payload": object{"attachment_id": id}}})
}

// upload uploads a file for one message of the messenger or the photo service
// (developers.facebook.com/docs/messenger-platform/reference/attachment-upload-api).
func (s *social) upload(ctx context.Context, out *platforms.Outgoing, file *platforms.File) (id string, err error) {
	message := fmt.Sprintf(`{"attachment":{"type":%q,"payload":{"is_reusable":false}}}`, file.Kind)
	request := &platforms.Request{Method: http.MethodPost, Path: "/me/message_attachments", Parts: []platforms.Part{
		{Name: "message", Content: []byte(message)},
		{Name: "filedata", FileName: file.Name, MediaType: file.MediaType, Content: file.Content},
	}}
	if out.Type == PhotoDM {
		request.Query = url.Values{"platform": {"instagram"}}
	}
	var result struct {
		ID platforms.Word `json:"attachment_id"`
	}
	r, err := s.call(ctx, out.Type, out.Credentials, request, &result)
	return r.ID(result.ID, err)
}

// maxChatAppImage is the greatest size of the chat app's pictures in bytes.
const maxChatAppImage = 5 << 20

// chatAppKinds are the types of messages with files, by the media types that the chat app accepts as pictures, sounds and videos. All other
// files are documents, which alone have a name
// (developers.facebook.com/documentation/business-messaging/whatsapp/business-phone-numbers/media).
var chatAppKinds = map[string]string{
	"image/jpeg": "image", "image/png": "image", "audio/amr": "audio", "audio/mp4": "audio", "audio/mpeg": "audio", "audio/ogg": "audio",
	"video/mp4": "video",
}

// sendChatAppFile sends a file. It first uploads the file for the channel's number, where the platform keeps it for 30 days.
func (s *social) sendChatAppFile(ctx context.Context, out *platforms.Outgoing, file *platforms.File) (string, error) {
	var result struct {
		ID platforms.Word `json:"id"`
	}
	r, err := s.callNumber(ctx, out.ExternalID, out.Credentials, &platforms.Request{
		Method: http.MethodPost, Path: "/media", Parts: []platforms.Part{
			{Name: "messaging_product", Content: []byte("whatsapp")},
			{Name: "type", Content: []byte(file.MediaType)},
			{Name: "file", FileName: file.Name, MediaType: file.MediaType, Content: file.Content},
		},
	}, &result)
	id, err := r.ID(result.ID, err)
	if err != nil {
		return "", platforms.NotSent(err)
	}
	kind, media := chatAppKinds[file.MediaType], object{"id": id}
	if kind == "" || kind == "image" && len(file.Content) > maxChatAppImage {
		kind, media["filename"] = "document", file.Name
	}
	return s.sendChatApp(ctx, out, kind, media)
}

// Locate implements [platforms.MediaSource]. Only the chat app names files by ids. Their addresses are valid for 5 minutes and
// require the token (developers.facebook.com/documentation/business-messaging/whatsapp/business-phone-numbers/media).
func (s *social) Locate(ctx context.Context, channel *platforms.Channel, id string) (platforms.Location, error) {
	if channel.Type != ChatApp || !isID(id) {
		return platforms.Location{}, platforms.Refusef("channels of type %s have no file with this id", string(channel.Type))
	}
	if !isID(channel.ExternalID) {
		return platforms.Location{}, errPhoneNumberID()
	}
	var file struct {
		URL   string         `json:"url"`
		Bytes platforms.Word `json:"file_size"`
	}
	r, err := s.call(ctx, ChatApp, channel.Credentials, &platforms.Request{
		Method: http.MethodGet, Path: "/" + id, Query: url.Values{"phone_number_id": {channel.ExternalID}},
	}, &file)
	if err != nil {
		return platforms.Location{}, err
	}
	if file.URL == "" {
		return platforms.Location{}, platforms.Fail(platforms.Unknown, r.Error("", ""))
	}
	bytes, _ := strconv.ParseInt(string(file.Bytes), 10, 64) // 0 if it isn't stated
	return platforms.Location{
		Address: file.URL, Authorization: "Bearer " + channel.Credentials[platforms.AccessToken], Bytes: max(bytes, 0),
	}, nil
}

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
