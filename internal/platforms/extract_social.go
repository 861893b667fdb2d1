package platforms

import "cmp"

// ExtractSocial reads a delivery of the social platform, which may hold many entries of several tenants (at most 1,000
// updates, by Meta's documentation). Each entry and each change is routed by itself (spec §4.3); an object that is none
// of those asked for holds nothing.
func ExtractSocial(body []byte, objects Objects) ([]Inbound, error) {
	delivery, err := object(body)
	if err != nil {
		return nil, err
	}
	var about string
	var entries []byte
	for w := members(delivery); w.next(); {
		switch w.key() {
		case "object":
			about = wordOf(w.value)
		case "entry":
			entries = w.value
		}
	}
	reader := socialReader{inbounds: inboundsOf(body)}
	switch about {
	case cmp.Or(objects.Page, "page"):
		reader.channel = SocialMessenger
	case cmp.Or(objects.PhotoDM, "instagram"):
		reader.channel = PhotoDM
	case cmp.Or(objects.ChatApp, "whatsapp_business_account"):
		reader.channel = ChatApp
	default:
		return nil, nil
	}
	for w := elements(entries); w.next(); {
		reader.entry(w.value)
	}
	return reader.all, nil
}

// socialReader reads the entries of a delivery, one thing at a time: nothing is built of what a list holds but the Inbounds.
type socialReader struct {
	inbounds

	channel Type
	// names are those of a change's contacts.
	names map[string]string
	// verdicts are those of the error codes that came before.
	verdicts map[string]verdict
}

// entry reads what happened to one page, photo account or chat-app business account. The events of `standby`, of
// conversations that another app has taken over, are not read.
func (s *socialReader) entry(value []byte) {
	var account string
	var messaging, changes []byte
	for w := members(value); w.next(); {
		switch w.key() {
		case "id":
			account = idOf(w.value)
		case "messaging":
			messaging = w.value
		case "changes":
			changes = w.value
		}
	}
	if s.channel != ChatApp {
		for w := elements(messaging); w.next(); {
			s.directMessage(account, w.value)
		}
	}
	for w := elements(changes); w.next(); {
		s.change(account, w.value)
	}
}

// change reads what happened to one of an account's subscribed fields.
func (s *socialReader) change(account string, value []byte) {
	var field string
	var changed []byte
	for w := members(value); w.next(); {
		switch w.key() {
		case "field":
			field = wordOf(w.value)
		case "value":
			changed = w.value
		}
	}
	switch {
	case s.channel == ChatApp:
		s.chatAppChange(field, changed)
	case field == "messages": // the form of the photo platform's test deliveries
		s.directMessage(account, changed)
	}
}
