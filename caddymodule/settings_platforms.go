package caddymodule

import (
	"strconv"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// platformSettings are what the references of the platform blocks stand for; empty where there is no block.
type platformSettings struct {
	socialAppSecret, socialVerifyToken  string
	localChatAppID, localChatAppSecret  string
	marketAPartnerID, marketAPartnerKey string
	marketBAppKey, marketBAppSecret     string
}

// read resolves the references of the platforms that are configured, and notes by path what fails.
func (p *Platforms) read(repl *caddy.Replacer, fs *config.Faults) (read platformSettings) {
	if p == nil {
		return read
	}
	resolve := func(platform, option string, reference interface {
		Resolve(repl *caddy.Replacer) (string, error)
	},
	) string {
		value, err := reference.Resolve(repl)
		if err != nil {
			fs.Addf(platformPath(platform)+"."+option, "%v", err)
		}
		return value
	}
	if p.Social != nil {
		read.socialAppSecret = resolve(platformSocial, "app_secret", p.Social.AppSecret)
		read.socialVerifyToken = resolve(platformSocial, "verify_token", p.Social.VerifyToken)
	}
	if p.LocalChat != nil {
		read.localChatAppID = resolve(platformLocalChat, "app_id", p.LocalChat.AppID)
		read.localChatAppSecret = resolve(platformLocalChat, "app_secret", p.LocalChat.AppSecret)
	}
	if p.MarketA != nil {
		read.marketAPartnerKey = resolve(platformMarketA, "partner_key", p.MarketA.PartnerKey)
		read.marketAPartnerID = resolve(platformMarketA, "partner_id", p.MarketA.PartnerID)
		if read.marketAPartnerID != "" {
			partnerIDFaults(fs, read.marketAPartnerID)
		}
	}
	if p.MarketB != nil {
		read.marketBAppKey = resolve(platformMarketB, "app_key", p.MarketB.AppKey)
		read.marketBAppSecret = resolve(platformMarketB, "app_secret", p.MarketB.AppSecret)
	}
	return read
}

// partnerIDFaults notes what is no partner's id, without quoting it.
func partnerIDFaults(fs *config.Faults, text string) {
	if id, err := strconv.ParseInt(text, 10, 64); err != nil || id < 1 {
		fs.Addf(platformPath(platformMarketA)+".partner_id", "must be a whole number above 0")
	}
}
