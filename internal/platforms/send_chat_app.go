package platforms

import (
	"context"
	"strings"
	"unicode"
)

// sendChatApp sends from the channel's phone number. A customer is addressed by phone number, or, if they hide it, by
// the id that the platform gave them for this business (2026, notes/platforms.md §1.6).
func (c *Client) sendChatApp(ctx context.Context, out Outgoing) (string, *SendError) {
	if !isGraphID(out.ExternalID) {
		return "", refusedf("the channel's phone number id is not an id")
	}
	type content struct {
		Body string `json:"body"`
	}
	message := struct {
		Product   string  `json:"messaging_product"`
		Kind      string  `json:"recipient_type"`
		To        string  `json:"to,omitempty"`
		Recipient string  `json:"recipient,omitempty"`
		Type      string  `json:"type"`
		Text      content `json:"text"`
	}{Product: "whatsapp", Kind: "individual", Type: "text", Text: content{out.Text}}
	if isUserID(out.Address) {
		message.Recipient = out.Address
	} else {
		message.To = out.Address
	}
	a, failure := c.callGraph(ctx, ChatApp, out.Credentials, "/"+out.ExternalID+"/messages", nil, message)
	if failure != nil {
		return "", failure
	}
	var result struct {
		Messages []struct {
			ID word `json:"id"`
		} `json:"messages"`
	}
	if failure := a.graphResult(&result); failure != nil {
		return "", failure
	}
	if len(result.Messages) == 0 || result.Messages[0].ID == "" {
		return "", unknown(a.vendor("", ""))
	}
	return string(result.Messages[0].ID), nil
}

// isUserID recognises "US.1349…": phone numbers have neither letters nor dots.
func isUserID(address string) bool {
	return strings.Contains(address, ".") && strings.ContainsFunc(address, unicode.IsLetter)
}

// isGraphID keeps tenants from choosing another path: ids are digits in reality, and words in tests.
func isGraphID(id string) bool { return len(id) <= 128 && consistsOf(id, isWordByte) }
