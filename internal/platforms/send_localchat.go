package platforms

import (
	"context"
	"encoding/json"
	"net/http"
)

// sendLocalChat sends a customer service message of the official account.
func (c *Client) sendLocalChat(ctx context.Context, out Outgoing) (string, *SendError) {
	type recipient struct {
		UserID string `json:"user_id"`
	}
	a, failure := c.callLocalChat(ctx, out.Credentials, http.MethodPost, "/v3.0/oa/message/cs", struct {
		Recipient recipient `json:"recipient"`
		Message   graphText `json:"message"`
	}{recipient{out.Address}, graphText{out.Text}})
	if failure != nil {
		return "", failure
	}
	var data struct {
		MessageID word `json:"message_id"`
	}
	if failure := a.localChatData(&data); failure != nil {
		return "", failure
	}
	if data.MessageID == "" {
		return "", unknown(a.vendor("", ""))
	}
	return string(data.MessageID), nil
}

func (c *Client) callLocalChat(ctx context.Context, credentials Credentials, method, path string, body any) (*answer, *SendError) {
	if problem := checkToken(credentials.AccessToken); problem != "" {
		return nil, needsReauth(false, &FieldError{"accessToken", problem})
	}
	return c.do(ctx, &call{
		platform: LocalChat, base: c.bases[LocalChat], method: method, path: path, json: body,
		header: map[string]string{"access_token": credentials.AccessToken},
	})
}

// localChatData reads {"error":0,"data":…} into data, or judges the error, which comes with status 200
// (notes/platforms.md §1.10, §4).
func (a *answer) localChatData(data any) *SendError {
	var body struct {
		Error *word           `json:"error"`
		Data  json.RawMessage `json:"data"`
	}
	if !a.decode(&body) || body.Error == nil {
		return a.unreadable()
	}
	cause := a.vendor(string(*body.Error), "")
	switch *body.Error {
	case "0":
		if !a.good() || json.Unmarshal(body.Data, data) != nil {
			return a.unreadable()
		}
		return nil
	case "-216", "-220":
		return needsReauth(true, cause)
	case "-219":
		return needsReauth(false, cause)
	case "-213", "-230", "-232", "-305":
		return windowExpired(a.platform, cause)
	case "-244":
		return customerBlocked(cause)
	case "-32":
		return retryLater(a.retryAfter(), cause)
	}
	return a.unlisted(cause)
}
