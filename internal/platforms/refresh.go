package platforms

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Refreshable tells whether channels of the type have a refresh token: those of the local chat and the marketplaces.
func (t Type) Refreshable() bool { return t == LocalChat || t == MarketA || t == MarketB }

// Refresh trades the refresh token for the next pair of tokens. externalID is the channel's, which marketplace A asks for.
//
// It uses up the old refresh token. So the caller stores the answer before anything else, and lets no two refreshes of
// one channel run at a time. The error is a [*SendError]: NeedsReauth when the platform doesn't accept the refresh token,
// Unknown when it may be used up without our knowing the next, Refused when the operator's application is at fault.
func (c *Client) Refresh(ctx context.Context, t Type, externalID string, old Credentials) (Credentials, error) {
	if !t.Refreshable() {
		return Credentials{}, refusedf("channels of type %q have no refresh token", string(t))
	}
	if problem := checkToken(old.RefreshToken); problem != "" {
		return Credentials{}, needsReauth(false, &FieldError{"refreshToken", problem})
	}
	q, failure := c.refreshCall(t, externalID, old.RefreshToken)
	if failure != nil {
		return Credentials{}, failure
	}
	a, failure := c.do(ctx, q)
	if failure != nil {
		return Credentials{}, failure
	}
	renewed, failure := a.tokens(c.config.Now())
	if failure != nil {
		return Credentials{}, failure
	}
	next := old
	next.AccessToken, next.ExpiresAt = renewed.AccessToken, renewed.ExpiresAt
	if renewed.RefreshToken != "" {
		next.RefreshToken = renewed.RefreshToken
	}
	return next, nil
}

func (c *Client) refreshCall(t Type, externalID, refreshToken string) (*call, *SendError) {
	switch t {
	case LocalChat:
		return c.refreshLocalChat(refreshToken)
	case MarketA:
		return c.refreshMarketA(externalID, refreshToken)
	default:
		return c.refreshMarketB(refreshToken)
	}
}

func (c *Client) refreshLocalChat(refreshToken string) (*call, *SendError) {
	app := c.config.LocalChat
	if app.AppID == "" || checkToken(app.AppSecret) != "" {
		return nil, refusedf("platform localchat has no usable app_id and app_secret")
	}
	return &call{
		platform: LocalChat, base: c.authBases[LocalChat], method: http.MethodPost, path: "/v4/oa/access_token",
		header: map[string]string{"secret_key": app.AppSecret},
		form:   url.Values{"app_id": {app.AppID}, "grant_type": {"refresh_token"}, "refresh_token": {refreshToken}},
	}, nil
}

func (c *Client) refreshMarketA(shopID, refreshToken string) (*call, *SendError) {
	const path = "/api/v2/auth/access_token/get"
	if !isDigits(shopID) {
		return nil, refusedf("the channel's shop id is not a number")
	}
	query, failure := c.signMarketA(path, "", "")
	if failure != nil {
		return nil, failure
	}
	return &call{
		platform: MarketA, base: c.bases[MarketA], method: http.MethodPost, path: path, query: query,
		json: struct {
			PartnerID    json.Number `json:"partner_id"`
			ShopID       json.Number `json:"shop_id"`
			RefreshToken string      `json:"refresh_token"`
		}{json.Number(c.config.MarketA.PartnerID), json.Number(shopID), refreshToken},
	}, nil
}

func (c *Client) refreshMarketB(refreshToken string) (*call, *SendError) {
	const path = "/auth/token/refresh"
	params := url.Values{"refresh_token": {refreshToken}}
	query, failure := c.signMarketB(path, url.Values{}, params)
	if failure != nil {
		return nil, failure
	}
	return &call{
		platform: MarketB, base: c.authBases[MarketB], method: http.MethodPost, path: path, query: query, form: params,
	}, nil
}

// operatorFaults are errors of a refresh that the operator's application causes, not the channel. General knowledge, not
// seen in a source, and surely not all; an error that isn't known is taken as a refusal of the token.
var operatorFaults = []string{
	"-14002", "-14003", // localchat: application
	"error_sign", "error_partner", // market_a
	"IncompleteSignature", "InvalidAppKey", "MissingParameter", "InvalidTimestamp", // market_b
}

// temporaryFaults are errors after which the refresh token is as good as before.
var temporaryFaults = []string{
	"-32",
	"error_limit", "error_inner", "error_server", "error_system",
	"ApiCallLimit", "AppCallLimit", "ServiceUnavailable",
}

// tokens reads the answer of a refresh. All three platforms name the tokens alike, and their errors are the word or number
// in error (localchat, market_a) or code (market_b).
func (a *answer) tokens(now time.Time) (Credentials, *SendError) {
	var body struct {
		AccessToken  string `json:"access_token"`
		RefreshToken string `json:"refresh_token"`
		ExpiresIn    word   `json:"expires_in"`
		ExpireIn     word   `json:"expire_in"` // market_a
		Error        word   `json:"error"`
		Code         word   `json:"code"`
	}
	if !a.decode(&body) {
		return Credentials{}, a.unreadable().unrefreshable()
	}
	fault := string(body.Error)
	if a.platform == MarketB {
		fault = string(body.Code)
	}
	switch {
	case fault != "" && fault != "0":
		return Credentials{}, a.judgeRefresh(fault)
	case !a.good():
		return Credentials{}, a.unreadable().unrefreshable()
	case checkToken(body.AccessToken) != "", body.RefreshToken != "" && checkToken(body.RefreshToken) != "":
		return Credentials{}, unknown(a.vendor(fault, ""))
	}
	renewed := Credentials{AccessToken: body.AccessToken, RefreshToken: body.RefreshToken}
	if life := seconds(string(body.ExpiresIn)) + seconds(string(body.ExpireIn)); life > 0 {
		renewed.ExpiresAt = now.Add(life).UnixMilli()
	}
	return renewed, nil
}

func (a *answer) judgeRefresh(fault string) *SendError {
	cause := a.vendor(fault, "")
	switch {
	case a.status == http.StatusTooManyRequests, a.status >= 500, slices.Contains(temporaryFaults, fault):
		return retryLater(a.retryAfter(), cause)
	case slices.Contains(operatorFaults, fault):
		return refused(cause)
	}
	return needsReauth(false, cause)
}

// unrefreshable says that a refresh can't be mended by another.
func (e *SendError) unrefreshable() *SendError {
	e.Refreshable = false
	return e
}
