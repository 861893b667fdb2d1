package v1

import (
	"context"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/jsonbody"
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
	jsonbody.Scanner
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
	d := chatDecoder{Scanner: jsonbody.New(body), req: &ChatRequest{}}
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
	if d.req.MaxTokens == 0 {
		d.req.MaxTokens = d.completionLimit
	}
	return d.req, nil
}

// chatField returns the field to blame if a name of the top object comes twice. Empty means that the name is ignored.
func chatField(name jsonscan.Literal) string {
	var buf [jsonscan.MaxWord]byte
	switch word := string(name.Word(&buf)); word {
	case "model", "messages", "temperature", "max_tokens", "top_p", "stop", "stream", "max_completion_tokens":
		return word
	default:
		return ""
	}
}

// member reads one member of the top object.
func (d *chatDecoder) member(name jsonscan.Literal) bool {
	var buf [jsonscan.MaxWord]byte
	switch string(name.Word(&buf)) {
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
	before := d.Scanner
	d.Array(func(int) bool {
		if d.Peek() != '"' {
			return false
		}
		n++
		return d.Skip()
	})
	d.Scanner = before
	return n
}

func (d *chatDecoder) model() bool {
	switch d.Peek() {
	case '"':
		model := d.String()
		if model == nil {
			return false
		}
		d.req.Model, d.hasModel = model.Text(), true
		return true
	case 'n':
		return d.Skip()
	default:
		return d.wrong(fieldModel, "model", "must be a string")
	}
}

func (d *chatDecoder) stream() bool {
	switch d.Peek() {
	case 't':
		d.req.Stream = true
		return d.Skip()
	case 'f', 'n':
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
	case 'n':
		return d.Skip()
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
