package social

import (
	"context"
	"encoding/json"
	"net/http"
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

// chatAppSend is a message of the chat app: a text, a template or a file
// (developers.facebook.com/documentation/business-messaging/whatsapp/reference/whatsapp-business-phone-number/message-api).
type chatAppSend struct {
	Product   string           `json:"messaging_product"`
	Kind      string           `json:"recipient_type"`
	To        string           `json:"to,omitempty"`
	Recipient string           `json:"recipient,omitempty"`
	Type      string           `json:"type"`
	Text      *chatAppText     `json:"text,omitempty"`
	Template  *chatAppTemplate `json:"template,omitempty"`
	Image     *chatAppMedia    `json:"image,omitempty"`
	Audio     *chatAppMedia    `json:"audio,omitempty"`
	Video     *chatAppMedia    `json:"video,omitempty"`
	Document  *chatAppMedia    `json:"document,omitempty"`
	// Mark is repeated in every status of the message
	// (developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference/messages/status).
	Mark string `json:"biz_opaque_callback_data,omitempty"`
}

type chatAppText struct {
	Body string `json:"body"`
}

// sendChatApp sends a message from the channel's phone number. A customer is addressed by phone number, or, if they hide it, by the id
// that the platform gave them for this business, such as "US.1349…": phone numbers have neither letters nor dots.
func (s *social) sendChatApp(ctx context.Context, out *platforms.Outgoing, message *chatAppSend) (string, error) {
	if !isID(out.ExternalID) {
		return "", errPhoneNumberID()
	}
	message.Product, message.Kind = "whatsapp", "individual"
	if out.Mark != "" {
		message.Mark = ownMark + out.Mark
	}
	if strings.Contains(out.Address, ".") && strings.ContainsFunc(out.Address, unicode.IsLetter) {
		message.Recipient = out.Address
	} else {
		message.To = out.Address
	}
	var result struct {
		Messages [1]struct {
			ID platforms.Word `json:"id"`
		} `json:"messages"`
	}
	r, err := s.call(ctx, ChatApp, out.Credentials,
		&platforms.Request{Method: http.MethodPost, Path: "/" + out.ExternalID + "/messages", JSON: message}, &result)
	return r.ID(result.Messages[0].ID, err)
}

func errPhoneNumberID() *platforms.Error {
	return platforms.Refusef("the channel's phone number id is not an id")
}

// isID reports whether an id may be part of a path. It keeps tenants from choosing another path: real ids are digits, ids of
// tests are words.
func isID(id string) bool { return len(id) <= 128 && platforms.IsWord(id) }
