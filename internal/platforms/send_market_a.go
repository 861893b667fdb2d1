package platforms

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

// sendMarketA sends a chat message of the shop to a buyer.
func (c *Client) sendMarketA(ctx context.Context, out Outgoing) (string, *SendError) {
	if !isDigits(out.Address) {
		return "", refusedf("the buyer's id is not a number")
	}
	type content struct {
		Text string `json:"text"`
	}
	a, failure := c.callMarketA(ctx, out.ExternalID, out.Credentials, http.MethodPost, "/api/v2/sellerchat/send_message", struct {
		ToID    json.Number `json:"to_id"`
		Type    string      `json:"message_type"`
		Content content     `json:"content"`
	}{json.Number(out.Address), "text", content{out.Text}})
	if failure != nil {
		return "", failure
	}
	var body struct {
		Response struct {
			MessageID word `json:"message_id"`
		} `json:"response"`
	}
	if failure := a.marketAResult(&body); failure != nil {
		return "", failure
	}
	if body.Response.MessageID == "" {
		return "", unknown(a.vendor("", ""))
	}
	return string(body.Response.MessageID), nil
}

// callMarketA makes a call for a shop. The marketplace wants token and signature in the query.
func (c *Client) callMarketA(ctx context.Context, shopID string, credentials Credentials, method, path string, body any) (*answer, *SendError) {
	if problem := checkToken(credentials.AccessToken); problem != "" {
		return nil, needsReauth(false, &FieldError{"accessToken", problem})
	}
	if !isDigits(shopID) {
		return nil, refusedf("the channel's shop id is not a number")
	}
	query, failure := c.signMarketA(path, credentials.AccessToken, shopID)
	if failure != nil {
		return nil, failure
	}
	query.Set("access_token", credentials.AccessToken)
	query.Set("shop_id", shopID)
	return c.do(ctx, &call{platform: MarketA, base: c.bases[MarketA], method: method, path: path, query: query, json: body})
}

// signMarketA signs a call: lower-case hex HMAC-SHA256 with the partner key over partner id, path, time in seconds,
// and, for calls of a shop, token and shop id. The path is the interface's own, without that of the base. As the vendor
// documents it; not verified against the real one.
func (c *Client) signMarketA(path, accessToken, shopID string) (url.Values, *SendError) {
	app := c.config.MarketA
	if !isDigits(app.PartnerID) || app.PartnerKey == "" {
		return nil, refusedf("platform market_a has no partner_id and partner_key")
	}
	timestamp := strconv.FormatInt(c.config.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(app.PartnerKey))
	mac.Write([]byte(app.PartnerID + path + timestamp + accessToken + shopID))
	return url.Values{
		"partner_id": {app.PartnerID},
		"timestamp":  {timestamp},
		"sign":       {hex.EncodeToString(mac.Sum(nil))},
	}, nil
}

// marketAResult reads a good answer into result, or judges the error: {"error":"error_auth",…} with any status, empty
// when all is well. The first spelling of "access" in an error is the vendor's; error_inner, error_server and
// error_system are general knowledge, not seen in a source.
func (a *answer) marketAResult(result any) *SendError {
	var body struct {
		Error *word `json:"error"`
	}
	if !a.decode(&body) || body.Error == nil {
		return a.unreadable()
	}
	cause := a.vendor(string(*body.Error), "")
	switch *body.Error {
	case "":
		if !a.good() || !a.decode(result) {
			return a.unreadable()
		}
		return nil
	case "error_auth", "invalid_acceess_token", "invalid_access_token":
		return needsReauth(true, cause)
	case "error_permission":
		return needsReauth(false, cause)
	case "error_limit", "error_inner", "error_server", "error_system":
		return retryLater(a.retryAfter(), cause)
	}
	return a.unlisted(cause)
}
