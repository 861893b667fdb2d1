package social

import "github.com/caddy-svc/caddy-svc/platforms"

// Extract reads a delivery of the social platform, which may hold many entries of several tenants (at most 1,000
// updates, by Meta's documentation). Each entry and each change is routed by itself; an object that is none of those
// configured holds nothing.
func (s *social) Extract(body []byte) ([]platforms.Inbound, error) {
	delivery, err := platforms.ParseObject(body)
	if err != nil {
		return nil, err
	}
	var about string
	var entries platforms.Value
	for w := delivery.Members(); w.Next(); {
		switch w.Key() {
		case "object":
			about = w.Value.Word()
		case "entry":
			entries = w.Value
		}
	}
	r := reader{Collector: platforms.Collect(len(body))}
	switch about {
	case s.objects.page:
		r.channel = Messenger
	case s.objects.photoDM:
		r.channel = PhotoDM
	case s.objects.chatApp:
		r.channel = ChatApp
	default:
		return nil, nil
	}
	for w := entries.Elements(); w.Next(); {
		r.entry(w.Value)
	}
	return r.All(), nil
}

// reader reads the entries of a delivery, one thing at a time: nothing is built from the elements of a list but the Inbounds.
type reader struct {
	platforms.Collector

	channel platforms.Type
	// names are those of a change's contacts.
	names map[string]string
	// classes are those of the error codes that came before.
	classes map[string]platforms.Class
}

// entry reads what happened to one page, photo account or chat-app business account. The events of `standby`, of
// conversations that another app has taken over, are not read.
func (s *reader) entry(value platforms.Value) {
	var account string
	var messaging, changes platforms.Value
	for w := value.Members(); w.Next(); {
		switch w.Key() {
		case "id":
			account = w.Value.ID()
		case "messaging":
			messaging = w.Value
		case "changes":
			changes = w.Value
		}
	}
	if s.channel != ChatApp {
		for w := messaging.Elements(); w.Next(); {
			s.directMessage(account, w.Value)
		}
	}
	for w := changes.Elements(); w.Next(); {
		s.change(account, w.Value)
	}
}

// change reads what happened to one of an account's subscribed fields.
func (s *reader) change(account string, value platforms.Value) {
	var field string
	var changed platforms.Value
	for w := value.Members(); w.Next(); {
		switch w.Key() {
		case "field":
			field = w.Value.Word()
		case "value":
			changed = w.Value
		}
	}
	switch {
	case s.channel == ChatApp:
		s.chatAppChange(field, changed)
	case field == "messages": // the form of the photo platform's test deliveries
		s.directMessage(account, changed)
	}
}
