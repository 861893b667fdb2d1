package social

import (
	"cmp"
	"slices"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// Extract reads a delivery of the social platform, which may hold many entries of several tenants (at most 1,000
// updates, by Meta's documentation). Each entry and each change is routed by itself; an object that is none of those
// configured holds nothing.
func (s *social) Extract(body []byte) ([]platforms.Inbound, error) {
	channel, entries, err := s.open(body)
	if err != nil || channel == "" {
		return nil, err
	}
	r := reader{Collector: platforms.Collect(len(body)), channel: channel}
	if channel != ChatApp {
		r.Collector = platforms.CollectAtMost(len(body)/shortestDirect + 1)
	}
	for w := entries.Elements(); w.Next(); {
		r.entry(w.Value)
	}
	return r.All(), nil
}

// open returns the channel type and the entries of a delivery; the type is "" for an object that is none of those configured.
func (s *social) open(body []byte) (channel platforms.Type, entries platforms.Value, err error) {
	delivery, err := platforms.ParseObject(body)
	if err != nil {
		return "", nil, err
	}
	var about string
	for w := delivery.Members(); w.Next(); {
		switch w.Key() {
		case "object":
			about = w.Value.Word()
		case "entry":
			entries = w.Value
		}
	}
	switch about {
	case s.objects.page:
		channel = Messenger
	case s.objects.photoDM:
		channel = PhotoDM
	case s.objects.chatApp:
		channel = ChatApp
	}
	return channel, entries, nil
}

// Named implements [platforms.ChannelSigned]. Entries of the chat app name their numbers in each change.
func (s *social) Named(d *platforms.Delivery) (named []platforms.Channel) {
	if !verify.HasDigest(d.Header, cmp.Or(s.config.Options["header"], verify.SocialHeader), "sha256=") {
		return nil
	}
	channel, entries, err := s.open(d.Body)
	if err != nil || channel == "" {
		return nil
	}
	add := func(id string) {
		known := slices.ContainsFunc(named, func(c platforms.Channel) bool { return c.ExternalID == id })
		if id != "" && !known && len(named) < platforms.MaxNamed {
			named = append(named, platforms.Channel{Type: channel, ExternalID: id})
		}
	}
	for w := entries.Elements(); w.Next() && len(named) < platforms.MaxNamed; {
		if channel != ChatApp {
			add(w.Value.Member("id").ID())
			continue
		}
		for c := w.Value.Member("changes").Elements(); c.Next() && len(named) < platforms.MaxNamed; {
			add(c.Value.Member("value").Member("metadata").Member("phone_number_id").ID())
		}
	}
	return named
}

// reader reads the entries of a delivery, one thing at a time: nothing is built from the elements of a list but the Inbounds.
type reader struct {
	platforms.Collector

	channel platforms.Type
	// contacts are a change's, by each of their ids.
	contacts map[string]chatAppContact
	// classes are those of the error codes that came before.
	classes map[string]platforms.Class
	// refused has the numbers that may not send any more.
	refused map[string]bool
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
