package caddymodule

// readPlatform reads `platform NAME { … }`. Every platform has its own options.
func (a *App) readPlatform(r *reader) func(string, option) {
	return func(path string, o option) {
		read := a.Platforms
		if read == nil {
			read = new(Platforms)
		}
		switch name := o.args[0].Text; name {
		case platformBot:
			p := new(BotPlatform)
			r.block(path, o, platformRules(r, &p.Platform))
			set(r, path, o, &read.Bot, p)
		case platformSocial:
			p := new(SocialPlatform)
			r.block(path, o, append(platformRules(r, &p.Platform),
				rule{word: "app_secret", read: r.secret(&p.AppSecret, referenceForms)},
				rule{word: "verify_token", read: r.secret(&p.VerifyToken, referenceForms)},
				rule{word: "object", named: true, once: true, valued: true, read: p.readObject(r)},
			))
			set(r, path, o, &read.Social, p)
		case platformLocalChat:
			p := new(LocalChatPlatform)
			r.block(path, o, append(platformRules(r, &p.Platform),
				rule{word: "auth_base", read: r.text(&p.AuthBase, "an address")},
				rule{word: "app_id", read: r.identifier(&p.AppID)},
				rule{word: "app_secret", read: r.secret(&p.AppSecret, referenceForms)},
			))
			set(r, path, o, &read.LocalChat, p)
		case platformMarketA:
			p := new(MarketAPlatform)
			r.block(path, o, append(platformRules(r, &p.Platform),
				rule{word: "partner_id", read: r.identifier(&p.PartnerID)},
				rule{word: "partner_key", read: r.secret(&p.PartnerKey, referenceForms)},
			))
			set(r, path, o, &read.MarketA, p)
		case platformMarketB:
			p := new(MarketBPlatform)
			r.block(path, o, append(platformRules(r, &p.Platform),
				rule{word: "auth_base", read: r.text(&p.AuthBase, "an address")},
				rule{word: "app_key", read: r.identifier(&p.AppKey)},
				rule{word: "app_secret", read: r.secret(&p.AppSecret, referenceForms)},
			))
			set(r, path, o, &read.MarketB, p)
		default:
			r.faultf(path, o, "there is no platform %s; allowed: %s", quoted(name), listed(platformNames))
			return
		}
		a.Platforms = read
	}
}

// platformRules are the options that all platforms have.
func platformRules(r *reader, p *Platform) []rule {
	return []rule{
		{word: "header", read: r.text(&p.Header, "the name of a header")},
		{word: "api_base", read: r.text(&p.APIBase, "an address")},
		{word: "ack", read: r.text(&p.Ack, AckEmpty)},
	}
}

func (p *SocialPlatform) readObject(r *reader) func(string, option) {
	return func(path string, o option) {
		objects := p.objects()
		fields := map[string]*string{"page": &objects.Page, "photo_dm": &objects.PhotoDM, "chat_app": &objects.ChatApp}
		field, known := fields[o.args[0].Text]
		if !known {
			r.faultf(path, o, "there is no object %s; allowed: page, photo_dm, chat_app", quoted(o.args[0].Text))
			return
		}
		value := o.args[1].Text
		if value == "" {
			r.faultf(path, o, "is empty; give the value of the webhooks' field `object`")
			return
		}
		set(r, path, o, field, value)
		p.Objects = &objects
	}
}

func (a *App) readWorker(r *reader) func(string, option) {
	return func(path string, o option) {
		worker := new(Worker)
		r.noArguments(path, o)
		r.block(path, o, []rule{
			{word: "concurrency", read: r.integer(&worker.Concurrency)},
			{word: "listen", read: r.text(&worker.Listen, "an address with its port, e.g. 127.0.0.1:8082")},
		})
		set(r, path, o, &a.Worker, worker)
	}
}
