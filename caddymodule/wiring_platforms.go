package caddymodule

import (
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platforms"
)

// platformsConfig says how the platforms are spoken to.
func (a *App) platformsConfig() platforms.Config {
	secrets := a.settings.platforms
	config := platforms.Config{
		Bases:     make(map[platforms.Type]string),
		AuthBases: make(map[platforms.Type]string),
		LocalChat: platforms.LocalChatApp{AppID: secrets.localChatAppID, AppSecret: secrets.localChatAppSecret},
		MarketA:   platforms.MarketAApp{PartnerID: secrets.marketAPartnerID, PartnerKey: secrets.marketAPartnerKey},
		MarketB:   platforms.MarketBApp{AppKey: secrets.marketBAppKey, AppSecret: secrets.marketBAppSecret},
	}
	base := func(bases map[platforms.Type]string, address string, types ...platforms.Type) {
		if address == "" {
			return
		}
		for _, t := range types {
			bases[t] = strings.TrimRight(address, "/")
		}
	}
	blocks := a.Platforms.orNone()
	base(config.Bases, blocks.Bot.APIBase, platforms.Bot)
	base(config.Bases, blocks.Social.APIBase, platforms.SocialMessenger, platforms.PhotoDM, platforms.ChatApp)
	base(config.Bases, blocks.LocalChat.APIBase, platforms.LocalChat)
	base(config.AuthBases, blocks.LocalChat.AuthBase, platforms.LocalChat)
	base(config.Bases, blocks.MarketA.APIBase, platforms.MarketA)
	base(config.Bases, blocks.MarketB.APIBase, platforms.MarketB)
	base(config.AuthBases, blocks.MarketB.AuthBase, platforms.MarketB)
	return config
}

// orNone has an empty block for every platform that has none.
func (p *Platforms) orNone() Platforms {
	var all Platforms
	if p != nil {
		all = *p
	}
	orEmpty(&all.Bot)
	orEmpty(&all.Social)
	orEmpty(&all.LocalChat)
	orEmpty(&all.MarketA)
	orEmpty(&all.MarketB)
	return all
}

func orEmpty[T any](block **T) {
	if *block == nil {
		*block = new(T)
	}
}

// webhookConfig is what the receivers need to know of the platforms.
func (a *App) webhookConfig() handlers.WebhookConfig {
	blocks, secrets := a.Platforms.orNone(), a.settings.platforms
	return handlers.WebhookConfig{
		BaseURL: a.BaseURL,
		Bot:     handlers.BotWebhook{Header: blocks.Bot.Header, AckEmpty: blocks.Bot.ackEmpty()},
		Social: handlers.SocialWebhook{
			AppSecret: secrets.socialAppSecret, VerifyToken: secrets.socialVerifyToken,
			Header: blocks.Social.Header, Objects: platforms.Objects(blocks.Social.objects()), AckEmpty: blocks.Social.ackEmpty(),
		},
		LocalChat: handlers.LocalChatWebhook{
			AppID: secrets.localChatAppID, AppSecret: secrets.localChatAppSecret,
			Header: blocks.LocalChat.Header, AckEmpty: blocks.LocalChat.ackEmpty(),
		},
		MarketA: handlers.MarketAWebhook{
			PartnerKey: secrets.marketAPartnerKey, Header: blocks.MarketA.Header, AckEmpty: blocks.MarketA.ackEmpty(),
		},
		MarketB: handlers.MarketBWebhook{
			AppKey: secrets.marketBAppKey, AppSecret: secrets.marketBAppSecret,
			Header: blocks.MarketB.Header, AckEmpty: blocks.MarketB.ackEmpty(),
		},
	}
}

// webhooks are the receivers of all platforms, by the platform's name.
func (a *App) webhooks(shared *sharedStore, queue *inbox.Queue) map[string]func(http.ResponseWriter, *http.Request) error {
	received := handlers.NewWebhooks(a.webhookConfig(), shared.db.Routes, queue, a.settings.ring, shared.bodies, a.log)
	return map[string]func(http.ResponseWriter, *http.Request) error{
		platformBot:       received.Bot,
		platformSocial:    received.Social,
		platformLocalChat: received.LocalChat,
		platformMarketA:   received.MarketA,
		platformMarketB:   received.MarketB,
	}
}

func (p *Platform) ackEmpty() bool { return p.Ack == AckEmpty }
