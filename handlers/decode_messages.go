package handlers

import (
	"strconv"

	"github.com/caddy-svc/caddy-svc/providers"
)

func (d *chatDecoder) messages() bool {
	switch d.next() {
	case '[':
		if !d.array(d.message) {
			return false
		}
		if !d.anyMessage {
			d.note(fieldMessages, "messages", "must have at least one element")
		}
		d.hasMessages = true
		return true
	case 'n':
		return d.word("null")
	default:
		return d.wrong(fieldMessages, "messages", "must be an array")
	}
}

// message reads messages[i] (spec §2.3).
func (d *chatDecoder) message(i int) bool {
	d.anyMessage = true
	switch {
	case d.faults[fieldMessages] != nil && (i >= MaxMessages || d.next() != '{'):
		return d.skip() // nothing is built for what can't be used any more
	case i >= MaxMessages:
		return d.wrong(fieldMessages, "messages", "must have at most "+strconv.Itoa(MaxMessages)+" elements")
	case d.next() != '{':
		return d.wrong(fieldMessages, element(i, ""), "must be an object")
	}
	var m providers.Message
	roleFault, contentFault := "is required", "is required; content must be a string"
	member := func(name literal) bool {
		var buf [32]byte
		var ok bool
		switch string(name.word(&buf)) {
		case "role":
			m.Role, roleFault, ok = d.role()
		case "content":
			m.Content, contentFault, ok = d.content()
		default:
			ok = d.skip()
		}
		return ok
	}
	if !d.object(member, func(name literal) string { return messageField(i, name) }) {
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

// messageField is the field that a repeated name of messages[i] belongs to.
func messageField(i int, name literal) string {
	var buf [32]byte
	switch word := string(name.word(&buf)); word {
	case "role", "content":
		return element(i, "."+word)
	default:
		return ""
	}
}

// role reads a role. fault says what is wrong with it; ok is false when the body is broken.
func (d *chatDecoder) role() (role, fault string, ok bool) {
	const allowed = "must be system, user, assistant or tool"
	if d.next() != '"' {
		return "", allowed, d.skip()
	}
	lit, ok := d.string()
	var buf [32]byte
	switch string(lit.word(&buf)) {
	case "system":
		return "system", "", ok
	case "user":
		return "user", "", ok
	case "assistant":
		return "assistant", "", ok
	case "tool":
		return "tool", "", ok
	default:
		return "", allowed, ok
	}
}

// content reads a content as it stands, with its quotes and escapes.
func (d *chatDecoder) content() (content providers.JSONString, fault string, ok bool) {
	if d.next() != '"' {
		return nil, "is not a string; content must be a string", d.skip()
	}
	lit, ok := d.string()
	if !ok {
		return nil, "", false
	}
	if lit.runes > MaxContentRunes {
		return nil, "must have at most " + strconv.Itoa(MaxContentRunes) + " characters", true
	}
	end := lit.start + len(lit.raw) + 1
	return providers.JSONString(d.text[lit.start-1 : end : end]), "", true
}
