package v1

import (
	"cmp"
	"context"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

// The limits of a chat request.
const (
	// MaxContentRunes bounds one message's content in Unicode code points.
	MaxContentRunes = 200_000
	// MaxTokensLimit is the largest max_tokens that can be asked for.
	MaxTokensLimit = 200_000
	// MaxMessages bounds the messages of a request, and the stop sequences.
	MaxMessages = 10_000
)

// ChatRequest is the body of POST /v1/chat/completions after validation: its fields and no others.
type ChatRequest struct {
	Model string
	// Messages has at least one element. The contents are slices of the body.
	Messages []providers.Message
	// Temperature (0 to 2) and TopP (0 to 1) are nil when absent.
	Temperature, TopP *float64
	// MaxTokens is 1 to 200,000. 0 means absent.
	MaxTokens int64
	// Stop is nil when there are no stop sequences.
	Stop   []string
	Stream bool
}

// The validated fields in the order of "Chat request" in docs/contract.md. Of several faults the first in this order is returned.
const (
	fieldModel = iota
	fieldMessages
	fieldTemperature
	fieldMaxTokens
	fieldTopP
	fieldStop
	fieldStream
	fieldCount
)

// chatDecoder reads a chat request in one pass. It collects the faults of fields while it reads on, because a syntax error of the body comes
// first.
type chatDecoder struct {
	handlers.JSONBody
	req             *ChatRequest
	hasModel        bool
	hasMessages     bool
	anyMessage      bool  // set by a faulty message, too: its fault must not become "at least one"
	completionLimit int64 // max_completion_tokens, which counts if there is no max_tokens
	faults          [fieldCount]*handlers.Error
}

// decodeInTurn is [DecodeChat] in one of the budget's slots for decoding, for which it waits.
func decodeInTurn(ctx context.Context, budget *handlers.ByteBudget, body []byte) (*ChatRequest, error) {
	done, err := budget.Decoding(ctx, len(body))
	if err != nil {
		return nil, err
	}
	defer done()
	return DecodeChat(body)
}

// DecodeChat validates body against "Chat request" in docs/contract.md: exact names, unknown ones ignored at
// any depth, null as absence, whole numbers however they are written, `stop` also as one string, and
// `max_completion_tokens` in place of an absent `max_tokens`. The time is linear in the length of body, the depth bounded
// by 64, and the contents of the messages remain slices of body, which must not change while they are in use.
//
// Every error is an *[handlers.Error] with invalid_request: that of a body that isn't one JSON object in valid UTF-8 with distinct
// names, else that of the first faulty field in the order of the constants above.
func DecodeChat(body []byte) (*ChatRequest, error) {
	if len(body) > handlers.MaxChatBody {
		return nil, handlers.TooLarge(handlers.MaxChatBody)
	}
	d := chatDecoder{JSONBody: handlers.NewJSONBody(body), req: &ChatRequest{}}
	if fault := d.Document(d.member, chatField); fault != nil {
		return nil, fault
	}
	return d.finish()
}

// finish returns the request, or the first fault.
func (d *chatDecoder) finish() (*ChatRequest, error) {
	if !d.hasModel && d.faults[fieldModel] == nil {
		d.faults[fieldModel] = handlers.InvalidRequest("model", "model is required.")
	}
	if !d.hasMessages && d.faults[fieldMessages] == nil {
		d.faults[fieldMessages] = handlers.InvalidRequest("messages", "messages is required.")
	}
	for _, fault := range d.faults {
		if fault != nil {
			return nil, fault
		}
	}
	d.req.MaxTokens = cmp.Or(d.req.MaxTokens, d.completionLimit)
	return d.req, nil
}

// chatField returns the field to blame if a name of the top object comes twice. Empty means that the name is ignored.
func chatField(name jsonscan.Literal) string {
	switch word := name.Text(); word {
	case "model", "messages", "temperature", "max_tokens", "top_p", "stop", "stream", "max_completion_tokens":
		return word
	}
	return ""
}

// member reads one member of the top object.
func (d *chatDecoder) member(name jsonscan.Literal) bool {
	if d.Peek() == 'n' { // null is the same as absent
		return d.Skip()
	}
	switch string(d.Word(name)) {
	case "model":
		return d.model()
	case "messages":
		return d.messages()
	case "temperature":
		return d.float(fieldTemperature, "temperature", 2, &d.req.Temperature)
	case "max_tokens":
		return d.maxTokens()
	case "max_completion_tokens": // the modern name of max_tokens; an invalid value is ignored like an unknown field
		n, valid, ok := d.tokens()
		if valid {
			d.completionLimit = n
		}
		return ok
	case "top_p":
		return d.float(fieldTopP, "top_p", 1, &d.req.TopP)
	case "stop":
		return d.stop()
	case "stream":
		return d.stream()
	default:
		return d.Skip()
	}
}

// wrong notes a field's first fault and skips the value.
func (d *chatDecoder) wrong(field int, name, text string) bool {
	d.note(field, name, text)
	return d.Skip()
}

func (d *chatDecoder) note(field int, name, text string) {
	if d.faults[field] == nil {
		d.faults[field] = handlers.InvalidRequest(name, "%s %s.", name, text)
	}
}

// countTexts returns how many strings the array that comes next begins with, and stays before it. The slice is allocated for
// exactly that many: an element of two bytes becomes a string header of 16, and a growing slice would hold several times that.
func (d *chatDecoder) countTexts() (n int) {
	before := d.JSONBody
	d.Array(func(int) bool {
		if d.Peek() != '"' {
			return false
		}
		n++
		return d.Skip()
	})
	d.JSONBody = before
	return n
}

func (d *chatDecoder) model() bool {
	if d.Peek() != '"' {
		return d.wrong(fieldModel, "model", "must be a string")
	}
	model := d.String()
	if model == nil {
		return false
	}
	d.req.Model, d.hasModel = model.Text(), true
	return true
}

func (d *chatDecoder) stream() bool {
	switch d.Peek() {
	case 't', 'f':
		d.req.Stream = d.Peek() == 't'
		return d.Skip()
	default:
		return d.wrong(fieldStream, "stream", "must be a boolean")
	}
}

func (d *chatDecoder) stop() bool {
	const element = "must be a string"
	switch d.Peek() {
	case '"':
		stop := d.String()
		if stop == nil {
			return false
		}
		d.req.Stop = []string{stop.Text()}
		return true
	case '[':
		if n := d.countTexts(); n > 0 {
			d.req.Stop = make([]string, 0, min(n, MaxMessages))
		}
		return d.Array(func(i int) bool {
			switch {
			case d.faults[fieldStop] != nil:
				return d.Skip()
			case i >= MaxMessages:
				return d.wrong(fieldStop, "stop", "must have at most "+strconv.Itoa(MaxMessages)+" elements")
			case d.Peek() != '"':
				return d.wrong(fieldStop, "stop["+strconv.Itoa(i)+"]", element)
			}
			stop := d.String()
			if stop == nil {
				return false
			}
			d.req.Stop = append(d.req.Stop, stop.Text())
			return true
		})
	default:
		return d.wrong(fieldStop, "stop", "must be an array of strings")
	}
}

func (d *chatDecoder) messages() bool {
	if d.Peek() != '[' {
		return d.wrong(fieldMessages, "messages", "must be an array")
	}
	if !d.Array(d.message) {
		return false
	}
	if !d.anyMessage {
		d.note(fieldMessages, "messages", "must have at least one element")
	}
	d.hasMessages = true
	return true
}

// message reads messages[i].
func (d *chatDecoder) message(i int) bool {
	d.anyMessage = true
	switch {
	case d.faults[fieldMessages] != nil && (i >= MaxMessages || d.Peek() != '{'):
		return d.Skip() // the request is refused already, so nothing more is built
	case i >= MaxMessages:
		return d.wrong(fieldMessages, "messages", "must have at most "+strconv.Itoa(MaxMessages)+" elements")
	case d.Peek() != '{':
		return d.wrong(fieldMessages, element(i, ""), "must be an object")
	}
	var m providers.Message
	roleFault, contentFault := "is required", "is required; content must be a string"
	member := func(name jsonscan.Literal) (ok bool) {
		switch string(d.Word(name)) {
		case "role":
			m.Role, roleFault, ok = d.role()
		case "content":
			m.Content, contentFault, ok = d.content()
		default:
			ok = d.Skip()
		}
		return ok
	}
	if !d.Object(member, func(name jsonscan.Literal) string { return messageField(i, name) }) {
		return false
	}
	switch {
	case d.faults[fieldMessages] != nil:
	case roleFault != "":
		d.note(fieldMessages, element(i, ".role"), roleFault)
	case contentFault != "":
		d.note(fieldMessages, element(i, ".content"), contentFault)
	default:
		d.req.Messages = append(d.req.Messages, m)
	}
	return true
}

func element(i int, rest string) string { return "messages[" + strconv.Itoa(i) + "]" + rest }

// messageField returns the field to blame if a name of messages[i] comes twice. Empty means that the name is ignored.
func messageField(i int, name jsonscan.Literal) string {
	switch word := name.Text(); word {
	case "role", "content":
		return element(i, "."+word)
	}
	return ""
}

// role reads a role. fault describes an invalid one. ok is false if the body is broken.
func (d *chatDecoder) role() (role, fault string, ok bool) {
	const allowed = "must be system, user, assistant or tool"
	if d.Peek() != '"' {
		return "", allowed, d.Skip()
	}
	written := d.String()
	if written == nil {
		return "", "", false
	}
	word := d.Word(written)
	for _, role := range [...]string{"user", "assistant", "system", "tool"} {
		if string(word) == role {
			return role, "", true
		}
	}
	return "", allowed, true
}

// content reads a content with its quotes and escapes.
func (d *chatDecoder) content() (content providers.JSONString, fault string, ok bool) {
	if d.Peek() != '"' {
		return nil, "is not a string; content must be a string", d.Skip()
	}
	text := d.String()
	if text.LongerThan(MaxContentRunes) {
		return nil, "must have at most " + strconv.Itoa(MaxContentRunes) + " characters", true
	}
	return providers.JSONString(text), "", text != nil
}

// float reads a number from 0 to most.
func (d *chatDecoder) float(field int, name string, most int, into **float64) bool {
	rule := func() string { return "must be a number from 0 to " + strconv.Itoa(most) }
	if !jsonscan.IsNumber(d.Peek()) {
		return d.wrong(field, name, rule())
	}
	number := d.Number()
	if number == nil {
		return false
	}
	// The only error left is a number beyond float64, with an infinite value.
	value, _ := strconv.ParseFloat(string(number), 64)
	if value < 0 || value > float64(most) {
		d.note(field, name, rule())
		return true
	}
	if value == 0 {
		value = 0 // a -0 becomes 0, so that equal requests are encoded equally
	}
	*into = &value
	return true
}

// tokens reads the next value as a number of tokens; valid is false when it is none from 1 to 200,000.
func (d *chatDecoder) tokens() (n int64, valid, ok bool) {
	if !jsonscan.IsNumber(d.Peek()) {
		return 0, false, d.Skip()
	}
	number := d.Number()
	if number == nil {
		return 0, false, false
	}
	n, whole := jsonscan.Integer(number)
	return n, whole && n >= 1 && n <= MaxTokensLimit, true
}

func (d *chatDecoder) maxTokens() bool {
	n, valid, ok := d.tokens()
	if valid {
		d.req.MaxTokens = n
	} else if ok {
		d.note(fieldMaxTokens, "max_tokens", "must be an integer from 1 to "+strconv.Itoa(MaxTokensLimit))
	}
	return ok
}
