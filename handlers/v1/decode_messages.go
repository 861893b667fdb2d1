package v1

import (
	"strconv"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

func (d *chatDecoder) messages() bool {
	switch d.Peek() {
	case '[':
		if !d.Array(d.message) {
			return false
		}
		if !d.anyMessage {
			d.note(fieldMessages, "messages", "must have at least one element")
		}
		d.hasMessages = true
		return true
	case 'n':
		return d.Skip()
	default:
		return d.wrong(fieldMessages, "messages", "must be an array")
	}
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
	member := func(name jsonscan.Literal) bool {
		var buf [jsonscan.MaxWord]byte
		var ok bool
		switch string(name.Word(&buf)) {
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
	var buf [jsonscan.MaxWord]byte
	switch word := string(name.Word(&buf)); word {
	case "role", "content":
		return element(i, "."+word)
	default:
		return ""
	}
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
	var buf [jsonscan.MaxWord]byte
	switch string(written.Word(&buf)) {
	case "system":
		return "system", "", true
	case "user":
		return "user", "", true
	case "assistant":
		return "assistant", "", true
	case "tool":
		return "tool", "", true
	default:
		return "", allowed, true
	}
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
	switch c := d.Peek(); {
	case c == 'n':
		return d.Skip()
	case !jsonscan.IsNumber(c):
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
	if d.Peek() == 'n' {
		return d.Skip()
	}
	n, valid, ok := d.tokens()
	switch {
	case !ok:
		return false
	case !valid:
		d.note(fieldMaxTokens, "max_tokens", "must be an integer from 1 to "+strconv.Itoa(MaxTokensLimit))
	default:
		d.req.MaxTokens = n
	}
	return true
}
