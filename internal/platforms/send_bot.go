package platforms

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

// sendBot calls sendMessage of the bot platform. Its message ids are unique within a chat only, so the id is
// "<chat.id>:<message_id>", like that of an [Inbound].
func (c *Client) sendBot(ctx context.Context, out Outgoing) (string, *SendError) {
	a, failure := c.callBot(ctx, out.Credentials, "/sendMessage", struct {
		ChatID any    `json:"chat_id"`
		Text   string `json:"text"`
	}{chatID(out.Address), out.Text})
	if failure != nil {
		return "", failure
	}
	var result struct {
		MessageID word `json:"message_id"`
		Chat      struct {
			ID word `json:"id"`
		} `json:"chat"`
	}
	if failure := a.botResult(&result); failure != nil {
		return "", failure
	}
	if result.MessageID == "" {
		return "", unknown(a.vendor("", ""))
	}
	return string(cmp.Or(result.Chat.ID, word(out.Address)) + ":" + result.MessageID), nil
}

// chatID is a number, or the @name of a public chat.
func chatID(address string) any {
	if digits := strings.TrimPrefix(address, "-"); isDigits(digits) && digits[0] != '0' {
		return json.Number(address)
	}
	return address
}

// callBot puts the token into the path, where the platform wants it.
func (c *Client) callBot(ctx context.Context, credentials Credentials, method string, body any) (*answer, *SendError) {
	if problem := checkBotToken(credentials.BotToken); problem != "" {
		return nil, needsReauth(false, &FieldError{"botToken", problem})
	}
	return c.do(ctx, &call{
		platform: Bot, base: c.bases[Bot], method: http.MethodPost, path: "/bot" + credentials.BotToken + method, json: body,
	})
}

// botResult reads {"ok":true,"result":…} into result, or judges the error.
func (a *answer) botResult(result any) *SendError {
	var body struct {
		OK          *bool           `json:"ok"`
		Result      json.RawMessage `json:"result"`
		ErrorCode   word            `json:"error_code"`
		Description string          `json:"description"`
		Parameters  struct {
			RetryAfter word `json:"retry_after"`
		} `json:"parameters"`
	}
	if !a.decode(&body) || body.OK == nil {
		return a.unreadable()
	}
	if *body.OK {
		if json.Unmarshal(body.Result, result) != nil {
			return unknown(a.vendor("", ""))
		}
		return nil
	}
	cause := a.vendor(string(body.ErrorCode), "")
	switch body.ErrorCode {
	case "401", "404": // unknown tokens are "Not Found"
		return needsReauth(false, cause)
	case "403": // blocked, deactivated, kicked, or never spoken to
		return customerBlocked(cause)
	case "429":
		if after := seconds(string(body.Parameters.RetryAfter)); after > 0 {
			return retryLater(after, cause)
		}
		return retryLater(a.retryAfter(), cause)
	case "500", "502", "503", "504":
		return retryLater(a.retryAfter(), cause)
	}
	return a.unlisted(cause)
}
