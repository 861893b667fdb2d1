package platforms

import "context"

// sendMessenger sends as the page that the token belongs to; RESPONSE is the type of answers within the window.
func (c *Client) sendMessenger(ctx context.Context, out Outgoing) (string, *SendError) {
	a, failure := c.callGraph(ctx, SocialMessenger, out.Credentials, "/me/messages", nil, struct {
		Recipient     graphPerson `json:"recipient"`
		MessagingType string      `json:"messaging_type"`
		Message       graphText   `json:"message"`
	}{graphPerson{out.Address}, "RESPONSE", graphText{out.Text}})
	if failure != nil {
		return "", failure
	}
	return a.graphMessage()
}
