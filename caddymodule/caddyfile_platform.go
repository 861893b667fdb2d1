package caddymodule

import (
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// readPlatform reads `platform NAME { … }`. Every platform has its own options.
func (a *App) readPlatform(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		read := a.Platforms
		if read == nil {
			read = new(Platforms)
		}
		switch name := o.Args[0].Text; name {
		case platformBot:
			p := new(BotPlatform)
			r.Block(path, o, platformRules(r, &p.Platform))
			caddyfile.Set(r, path, o, &read.Bot, p)
		case platformSocial:
			p := new(SocialPlatform)
			r.Block(path, o, append(platformRules(r, &p.Platform),
				caddyfile.Rule{Word: "app_secret", Read: r.Secret(&p.AppSecret, config.ReferenceForms)},
				caddyfile.Rule{Word: "verify_token", Read: r.Secret(&p.VerifyToken, config.ReferenceForms)},
				caddyfile.Rule{Word: "object", Named: true, Once: true, Valued: true, Read: p.readObject(r)},
			))
			caddyfile.Set(r, path, o, &read.Social, p)
		case platformLocalChat:
			p := new(LocalChatPlatform)
			r.Block(path, o, append(platformRules(r, &p.Platform),
				caddyfile.Rule{Word: "auth_base", Read: r.Text(&p.AuthBase, "an address")},
				caddyfile.Rule{Word: "app_id", Read: r.Identifier(&p.AppID)},
				caddyfile.Rule{Word: "app_secret", Read: r.Secret(&p.AppSecret, config.ReferenceForms)},
			))
			caddyfile.Set(r, path, o, &read.LocalChat, p)
		case platformMarketA:
			p := new(MarketAPlatform)
			r.Block(path, o, append(platformRules(r, &p.Platform),
				caddyfile.Rule{Word: "partner_id", Read: r.Identifier(&p.PartnerID)},
				caddyfile.Rule{Word: "partner_key", Read: r.Secret(&p.PartnerKey, config.ReferenceForms)},
			))
			caddyfile.Set(r, path, o, &read.MarketA, p)
		case platformMarketB:
			p := new(MarketBPlatform)
			r.Block(path, o, append(platformRules(r, &p.Platform),
				caddyfile.Rule{Word: "auth_base", Read: r.Text(&p.AuthBase, "an address")},
				caddyfile.Rule{Word: "app_key", Read: r.Identifier(&p.AppKey)},
				caddyfile.Rule{Word: "app_secret", Read: r.Secret(&p.AppSecret, config.ReferenceForms)},
			))
			caddyfile.Set(r, path, o, &read.MarketB, p)
		default:
			r.Unreadf(path, o, "there is no platform %s; allowed: %s", config.Quoted(name), config.Listed(platformNames))
			return
		}
		a.Platforms = read
	}
}

// platformRules are the options that all platforms have.
func platformRules(r *caddyfile.Reader, p *Platform) []caddyfile.Rule {
	return []caddyfile.Rule{
		{Word: "header", Read: r.Text(&p.Header, "the name of a header")},
		{Word: "api_base", Read: r.Text(&p.APIBase, "an address")},
		{Word: "ack", Read: r.Text(&p.Ack, AckEmpty)},
	}
}

func (p *SocialPlatform) readObject(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		objects := p.objects()
		fields := map[string]*string{"page": &objects.Page, "photo_dm": &objects.PhotoDM, "chat_app": &objects.ChatApp}
		field, known := fields[o.Args[0].Text]
		if !known {
			r.Unreadf(path, o, "there is no object %s; allowed: page, photo_dm, chat_app", config.Quoted(o.Args[0].Text))
			return
		}
		value := o.Args[1].Text
		if value == "" {
			r.Unreadf(path, o, "is empty; give the value of the webhooks' field `object`")
			return
		}
		caddyfile.Set(r, path, o, field, value)
		p.Objects = &objects
	}
}
