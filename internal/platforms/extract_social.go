package platforms

import "cmp"

// ExtractSocial reads a delivery of the social platform, which may hold many entries of several tenants (at most 1,000
// updates, by Meta's documentation). Each entry and each change is routed by itself (spec §4.3); an object that is none
// of those asked for holds nothing.
func ExtractSocial(body []byte, objects Objects) ([]Inbound, error) {
	var delivery socialDelivery
	if err := decode(body, &delivery); err != nil {
		return nil, err
	}
	var all []Inbound
	for i := range delivery.Entry {
		entry := &delivery.Entry[i]
		switch delivery.Object {
		case cmp.Or(objects.Page, "page"):
			all = entry.directMessages(all, SocialMessenger)
		case cmp.Or(objects.PhotoDM, "instagram"):
			all = entry.directMessages(all, PhotoDM)
		case cmp.Or(objects.ChatApp, "whatsapp_business_account"):
			all = entry.chatAppMessages(all)
		default:
			return nil, nil
		}
	}
	return all, nil
}

type socialDelivery struct {
	Object string            `json:"object"`
	Entry  list[socialEntry] `json:"entry"`
}

// socialEntry is what happened to one page, photo account or chat-app business account. The events of `standby`, of
// conversations that another app has taken over, are not read.
type socialEntry struct {
	ID        identifier         `json:"id"`
	Messaging list[directEvent]  `json:"messaging"`
	Changes   list[socialChange] `json:"changes"`
}

// socialChange is what happened to one of an account's subscribed fields.
type socialChange struct {
	Field string `json:"field"`
	Value struct {
		directEvent
		chatAppChange
	} `json:"value"`
}
