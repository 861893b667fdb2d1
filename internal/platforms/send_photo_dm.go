package platforms

import "context"

// sendPhotoDM sends as the account that the token belongs to.
func (c *Client) sendPhotoDM(ctx context.Context, out Outgoing) (string, *SendError) {
	a, failure := c.callGraph(ctx, PhotoDM, out.Credentials, "/me/messages", nil, struct {
		Recipient graphPerson `json:"recipient"`
		Message   graphText   `json:"message"`
	}{graphPerson{out.Address}, graphText{out.Text}})
	if failure != nil {
		return "", failure
	}
	return a.graphMessage()
}
