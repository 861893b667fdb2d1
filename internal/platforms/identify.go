package platforms

import (
	"context"
	"net/http"
	"net/url"
)

// Identify asks the platform whom the token belongs to and returns the external ids of that account (design §6, "who may
// claim an external id"): the bot, the page, the photo account, the official account or the seller. The chat app and
// marketplace A can only be asked whether the token reaches one id, so there externalID, the id that the channel claims,
// is what comes back. The error is a [*SendError].
func (c *Client) Identify(ctx context.Context, t Type, externalID string, credentials Credentials) (externalIDs []string, err error) {
	id, failure := c.identify(ctx, t, externalID, credentials)
	if failure != nil {
		return nil, failure
	}
	return []string{id}, nil
}

func (c *Client) identify(ctx context.Context, t Type, externalID string, credentials Credentials) (string, *SendError) {
	switch t {
	case Bot:
		return c.identifyBot(ctx, credentials)
	case SocialMessenger:
		return c.identifyGraph(ctx, t, credentials, "/me", "id")
	case PhotoDM: // `id` is the account's name within one application; deliveries carry `user_id`
		return c.identifyGraph(ctx, t, credentials, "/me", "user_id")
	case ChatApp:
		if !isGraphID(externalID) {
			return "", refusedf("the channel's phone number id is not an id")
		}
		return c.identifyGraph(ctx, t, credentials, "/"+externalID, "id,display_phone_number")
	case LocalChat:
		return c.identifyLocalChat(ctx, credentials)
	case MarketA:
		return c.identifyMarketA(ctx, externalID, credentials)
	case MarketB:
		return c.identifyMarketB(ctx, credentials)
	case Widget:
	}
	return "", refusedf("channels of type %q have no platform to ask", string(t))
}

// named is the end of an identification.
func (a *answer) named(id word) (string, *SendError) {
	if id == "" {
		return "", unknown(a.vendor("", ""))
	}
	return string(id), nil
}

func (c *Client) identifyBot(ctx context.Context, credentials Credentials) (string, *SendError) {
	a, failure := c.callBot(ctx, credentials, "/getMe", struct{}{})
	if failure != nil {
		return "", failure
	}
	var me struct {
		ID word `json:"id"`
	}
	if failure := a.botResult(&me); failure != nil {
		return "", failure
	}
	return a.named(me.ID)
}

func (c *Client) identifyGraph(ctx context.Context, t Type, credentials Credentials, path, fields string) (string, *SendError) {
	a, failure := c.callGraph(ctx, t, credentials, path, url.Values{"fields": {fields}}, nil)
	if failure != nil {
		return "", failure
	}
	var node struct {
		ID          word `json:"id"`
		UserID      word `json:"user_id"`
		PhoneNumber word `json:"display_phone_number"`
	}
	if failure := a.graphResult(&node); failure != nil {
		return "", failure
	}
	switch {
	case t == PhotoDM:
		return a.named(node.UserID)
	case t == ChatApp && node.PhoneNumber == "": // some other thing that the token may read
		return "", refused(a.vendor("", ""))
	}
	return a.named(node.ID)
}

func (c *Client) identifyLocalChat(ctx context.Context, credentials Credentials) (string, *SendError) {
	a, failure := c.callLocalChat(ctx, credentials, http.MethodGet, "/v2.0/oa/getoa", nil)
	if failure != nil {
		return "", failure
	}
	var account struct {
		ID word `json:"oa_id"`
	}
	if failure := a.localChatData(&account); failure != nil {
		return "", failure
	}
	return a.named(account.ID)
}

// identifyMarketA uses that a token is good for one shop only: a call for another fails.
func (c *Client) identifyMarketA(ctx context.Context, shopID string, credentials Credentials) (string, *SendError) {
	a, failure := c.callMarketA(ctx, shopID, credentials, http.MethodGet, "/api/v2/shop/get_shop_info", nil)
	if failure != nil {
		return "", failure
	}
	var shop struct {
		Name word `json:"shop_name"`
	}
	if failure := a.marketAResult(&shop); failure != nil {
		return "", failure
	}
	if shop.Name == "" {
		return "", unknown(a.vendor("", ""))
	}
	return shopID, nil
}

func (c *Client) identifyMarketB(ctx context.Context, credentials Credentials) (string, *SendError) {
	a, failure := c.callMarketB(ctx, credentials, http.MethodGet, "/seller/get", nil)
	if failure != nil {
		return "", failure
	}
	var body struct {
		Data struct {
			SellerID word `json:"seller_id"`
		} `json:"data"`
	}
	if failure := a.marketBResult(&body); failure != nil {
		return "", failure
	}
	return a.named(body.Data.SellerID)
}
