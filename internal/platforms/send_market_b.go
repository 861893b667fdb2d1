package platforms

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// sendMarketB sends a text message into a session; sessions are opened by customers.
func (c *Client) sendMarketB(ctx context.Context, out Outgoing) (string, *SendError) {
	a, failure := c.callMarketB(ctx, out.Credentials, http.MethodPost, "/im/message/send", url.Values{
		"session_id":  {out.Address},
		"template_id": {"1"}, // plain text
		"txt":         {out.Text},
	})
	if failure != nil {
		return "", failure
	}
	var body struct {
		Data struct {
			MessageID word `json:"message_id"`
		} `json:"data"`
	}
	if failure := a.marketBResult(&body); failure != nil {
		return "", failure
	}
	if body.Data.MessageID == "" {
		return "", unknown(a.vendor("", ""))
	}
	return string(body.Data.MessageID), nil
}

// callMarketB makes a call for a seller. Token and signature travel in the query, a POST's own parameters in its body, as
// the vendor's own library does it.
func (c *Client) callMarketB(ctx context.Context, credentials Credentials, method, path string, params url.Values) (*answer, *SendError) {
	if problem := checkToken(credentials.AccessToken); problem != "" {
		return nil, needsReauth(false, &FieldError{"accessToken", problem})
	}
	query, failure := c.signMarketB(path, url.Values{"access_token": {credentials.AccessToken}}, params)
	if failure != nil {
		return nil, failure
	}
	q := &call{platform: MarketB, base: c.bases[MarketB], method: method, path: path, query: query}
	if method == http.MethodPost {
		q.form = params
	}
	return c.do(ctx, q)
}

// signMarketB adds the common parameters and signs: upper-case hex HMAC-SHA256 with the app secret over the path, without
// that of the base, and all parameters, in order of their names, each name followed by its value. As the vendor documents
// it; not verified against the real one.
func (c *Client) signMarketB(path string, query, params url.Values) (url.Values, *SendError) {
	app := c.config.MarketB
	if app.AppKey == "" || app.AppSecret == "" {
		return nil, refusedf("platform market_b has no app_key and app_secret")
	}
	query.Set("app_key", app.AppKey)
	query.Set("timestamp", strconv.FormatInt(c.config.Now().UnixMilli(), 10))
	query.Set("sign_method", "sha256")
	all := maps.Clone(query)
	maps.Copy(all, params)
	mac := hmac.New(sha256.New, []byte(app.AppSecret))
	mac.Write([]byte(path))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mac.Write([]byte(name + all.Get(name)))
	}
	query.Set("sign", strings.ToUpper(hex.EncodeToString(mac.Sum(nil))))
	return query, nil
}

// marketBResult reads a good answer into result, or judges the error: a code other than "0" of the gateway, or an
// err_code of the chat behind it, with any status. Apart from -22 the codes are general knowledge, not seen in a source.
func (a *answer) marketBResult(result any) *SendError {
	var body struct {
		Code    *word `json:"code"`
		ErrCode word  `json:"err_code"`
		Success word  `json:"success"`
	}
	if !a.decode(&body) || body.Code == nil {
		return a.unreadable()
	}
	cause := a.vendor(string(*body.Code), string(body.ErrCode))
	code := *body.Code
	if code == "0" {
		code = body.ErrCode
	}
	switch code {
	case "", "0":
		switch {
		case body.Success == "false":
			return a.unlisted(cause)
		case !a.good() || !a.decode(result):
			return a.unreadable()
		}
		return nil
	case "-22":
		return windowExpired(a.platform, cause)
	case "IllegalAccessToken":
		return needsReauth(true, cause)
	case "InsufficientPermission":
		return needsReauth(false, cause)
	case "ApiCallLimit", "AppCallLimit", "ServiceUnavailable", "SellerCallLimit":
		return retryLater(a.retryAfter(), cause)
	case "ServiceTimeout": // of what is behind the gateway, which may have taken the message
		return unknown(cause)
	}
	return a.unlisted(cause)
}
