package caddymodule

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/payments"
	"github.com/caddy-svc/caddy-svc/payments/payos"
	"github.com/caddy-svc/caddy-svc/payments/sepay"
	"github.com/caddy-svc/caddy-svc/payments/stripe"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/anthropic"
	"github.com/caddy-svc/caddy-svc/providers/echo"
	"github.com/caddy-svc/caddy-svc/providers/gemini"
	"github.com/caddy-svc/caddy-svc/providers/openai"
)

// drivers are the drivers of one kind: the built-in drivers, and the Caddy modules of a namespace that implement D.
type drivers[D any] struct {
	namespace string
	// kind is the kind in messages.
	kind    string
	builtin []D
	// describe returns the name in a driver's description.
	describe func(D) (name string, err error)
}

var (
	// messagingPlatforms are the modules of messaging platforms. The last part of a module's id is the platform's name.
	messagingPlatforms = drivers[platforms.Driver]{"svc.platforms", "platform", builtin.Platforms(), func(driver platforms.Driver) (string, error) {
		d, err := messaging.Describe(driver)
		if err != nil {
			return "", err
		}
		return d.Name, nil
	}}
	// protocols are the modules that speak a vendor's protocol. The last part of a module's id is the protocol's name.
	protocols = drivers[providers.Driver]{"svc.providers", "protocol", builtin.Providers(), func(driver providers.Driver) (string, error) {
		d := driver.Describe()
		if d == nil {
			return "", errors.New("the protocol has no description")
		}
		return d.Name, d.Check()
	}}
	// paymentProviders are the modules of providers of payments. The last part of a module's id is the provider's name.
	paymentProviders = drivers[payments.Driver]{"svc.payments", "provider of payments", builtin.Payments(), func(p payments.Driver) (string, error) {
		d := p.Describe()
		if d == nil {
			return "", errors.New("the provider of payments has no description")
		}
		return d.Name, d.Check()
	}}
)

// find returns the drivers of this build by their names in order, the built-in ones first, and a fault for each module that can't be used.
func (ds drivers[D]) find() (names []string, found map[string]D, faulty config.Faults) {
	found = map[string]D{}
	for _, driver := range ds.builtin {
		name, _ := ds.describe(driver)
		names, found[name] = append(names, name), driver
	}
	for _, module := range caddy.GetModules(ds.namespace) {
		name := module.ID.Name()
		if slices.Contains(names, name) {
			continue
		}
		driver, err := ds.guest(module)
		if err != nil {
			faulty.Addf(string(module.ID), "%v", err)
			continue
		}
		names, found[name] = append(names, name), driver
	}
	return names, found, faulty
}

// guest returns the driver that a module is. A guest that panics is a fault of the configuration.
func (ds drivers[D]) guest(module caddy.ModuleInfo) (driver D, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the module panicked")
		}
	}()
	made := module.New()
	driver, ok := made.(D)
	if !ok {
		return driver, fmt.Errorf("the module is a %T and no %s", made, reflect.TypeFor[D]())
	}
	name, err := ds.describe(driver)
	if err == nil && name != module.ID.Name() {
		err = fmt.Errorf("the module describes %q; the id of a module ends with the name that it describes", name)
	}
	return driver, err
}

// named returns the driver with the name, nil if this build has none.
func (ds drivers[D]) named(name string) D {
	_, found, _ := ds.find()
	return found[name]
}

// names returns the names of the drivers of this build.
func (ds drivers[D]) names() []string {
	names, _, _ := ds.find()
	return names
}

// missing returns the text of a fault if this build has no driver with the name, else an empty text.
func (ds drivers[D]) missing(name string) string {
	names := ds.names()
	if slices.Contains(names, name) {
		return ""
	}
	return fmt.Sprintf("there is no %s %s; allowed: %s", ds.kind, config.Quoted(name), config.Listed(names))
}

// all returns the drivers of this build.
func (ds drivers[D]) all() (all []D) {
	names, found, _ := ds.find()
	for _, name := range names {
		all = append(all, found[name])
	}
	return all
}

// init registers the built-in drivers, so that Caddy lists them with all other modules. Their instances aren't used.
func init() {
	caddy.RegisterModule(new(BotPlatform))
	caddy.RegisterModule(new(SocialPlatform))
	caddy.RegisterModule(new(LocalChatPlatform))
	caddy.RegisterModule(new(MarketplaceA))
	caddy.RegisterModule(new(MarketplaceB))
	caddy.RegisterModule(new(OpenAIProtocol))
	caddy.RegisterModule(new(AnthropicProtocol))
	caddy.RegisterModule(new(GeminiProtocol))
	caddy.RegisterModule(new(EchoProtocol))
	caddy.RegisterModule(new(SePayPayments))
	caddy.RegisterModule(new(PayOSPayments))
	caddy.RegisterModule(new(StripePayments))
}

// BotPlatform connects bots of a bot platform, by default Telegram's Bot API. Every bot is a channel with a webhook address and a
// secret of its own, so the platform needs no block.
//
// Syntax, in the svc block:
//
//	platform bot {
//	    header   <name>
//	    api_base <url>
//	    ack      empty
//	}
type BotPlatform struct{ bot.Driver }

// CaddyModule returns the Caddy module information.
func (BotPlatform) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.platforms.bot", New: func() caddy.Module { return new(BotPlatform) }}
}

// SocialPlatform connects pages, accounts and phone numbers of a social platform, by default Meta's: a messenger, the direct messages
// of a photo-sharing service, and a chat app for businesses. One application of the operator receives the webhooks of all of them.
//
// Syntax, in the svc block:
//
//	platform social {
//	    header              <name>
//	    api_base            <url>
//	    ack                 empty
//	    app_secret          <{env.NAME} or {file.PATH}>
//	    verify_token        <{env.NAME} or {file.PATH}>
//	    photo_dm_app_secret <{env.NAME} or {file.PATH}>
//	    object <key> <value>
//	}
type SocialPlatform struct{ social.Driver }

// CaddyModule returns the Caddy module information.
func (SocialPlatform) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.platforms.social", New: func() caddy.Module { return new(SocialPlatform) }}
}

// LocalChatPlatform connects official accounts of a local chat platform, by default Zalo's. Access tokens live about a day and are
// renewed.
//
// Syntax, in the svc block:
//
//	platform localchat {
//	    header        <name>
//	    api_base      <url>
//	    ack           empty
//	    auth_base     <url>
//	    app_id        <name>
//	    app_secret    <{env.NAME} or {file.PATH}>
//	    oa_secret_key <{env.NAME} or {file.PATH}>
//	}
type LocalChatPlatform struct{ localchat.Driver }

// CaddyModule returns the Caddy module information.
func (LocalChatPlatform) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.platforms.localchat", New: func() caddy.Module { return new(LocalChatPlatform) }}
}

// MarketplaceA connects shops of a marketplace, by default Shopee's seller chat. The operator's partner account signs every call.
//
// Syntax, in the svc block:
//
//	platform market_a {
//	    header      <name>
//	    api_base    <url>
//	    ack         empty
//	    partner_id  <name>
//	    partner_key <{env.NAME} or {file.PATH}>
//	    push_key    <{env.NAME} or {file.PATH}>
//	}
type MarketplaceA struct{ marketa.Driver }

// CaddyModule returns the Caddy module information.
func (MarketplaceA) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.platforms.market_a", New: func() caddy.Module { return new(MarketplaceA) }}
}

// MarketplaceB connects shops of a marketplace, by default Lazada's seller chat. The operator's application signs every call.
//
// Syntax, in the svc block:
//
//	platform market_b {
//	    header     <name>
//	    api_base   <url>
//	    ack        empty
//	    auth_base  <url>
//	    app_key    <name>
//	    app_secret <{env.NAME} or {file.PATH}>
//	}
type MarketplaceB struct{ marketb.Driver }

// CaddyModule returns the Caddy module information.
func (MarketplaceB) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.platforms.market_b", New: func() caddy.Module { return new(MarketplaceB) }}
}

// OpenAIProtocol speaks OpenAI's chat completions, which most vendors and model servers understand: Ollama, vLLM, llama.cpp, Groq and
// others.
//
// Syntax, in the svc block:
//
//	provider <name> {
//	    protocol openai {
//	        key_header       <text>
//	        max_tokens_field <text>
//	        thinking_field   <text>
//	        reasoning_fields <text>
//	        omit             <text>
//	    }
//	    base_url <url>
//	    api_key  <{env.NAME} or {file.PATH}> | none
//	}
type OpenAIProtocol struct{ openai.Driver }

// CaddyModule returns the Caddy module information.
func (OpenAIProtocol) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.providers.openai", New: func() caddy.Module { return new(OpenAIProtocol) }}
}

// AnthropicProtocol speaks Anthropic's Messages API, which Bedrock, DeepSeek and others also serve, at addresses of their own.
//
// The option version is the date that is sent as anthropic-version, by default 2023-06-01. From 2026-10-21 on temperature and top_p are
// never sent, because the API refuses them.
//
// Syntax, in the svc block:
//
//	provider <name> {
//	    protocol anthropic {
//	        version <text>
//	    }
//	    base_url <url>
//	    api_key  <{env.NAME} or {file.PATH}> | none
//	}
type AnthropicProtocol struct{ anthropic.Driver }

// CaddyModule returns the Caddy module information.
func (AnthropicProtocol) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.providers.anthropic", New: func() caddy.Module { return new(AnthropicProtocol) }}
}

// GeminiProtocol speaks Google's Gemini API, generateContent and streamGenerateContent. It reports thoughts and cached tokens exactly, unlike
// the API's OpenAI-compatible endpoint.
//
// Syntax, in the svc block:
//
//	provider <name> {
//	    protocol gemini
//	    base_url <url>
//	    api_key  <{env.NAME} or {file.PATH}> | none
//	}
type GeminiProtocol struct{ gemini.Driver }

// CaddyModule returns the Caddy module information.
func (GeminiProtocol) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.providers.gemini", New: func() caddy.Module { return new(GeminiProtocol) }}
}

// EchoProtocol needs no vendor: its models repeat the last message of the user, for trying the service out.
//
// Syntax, in the svc block:
//
//	provider <name> {
//	    protocol echo
//	}
type EchoProtocol struct{ echo.Driver }

// CaddyModule returns the Caddy module information.
func (EchoProtocol) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.providers.echo", New: func() caddy.Module { return new(EchoProtocol) }}
}

// SePayPayments credits transfers to a bank account in Vietnam that SePay watches. Deliveries are proved by secret or, without it, by api_key. With
// api_token the transfers of the last days are also listed once a day.
//
// Syntax, in the svc block:
//
//	payments sepay {
//	    secret    <{env.NAME} or {file.PATH}>
//	    api_key   <{env.NAME} or {file.PATH}>
//	    api_token <{env.NAME} or {file.PATH}>
//	    api_base  <url>
//	}
type SePayPayments struct{ sepay.Driver }

// CaddyModule returns the Caddy module information.
func (SePayPayments) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.payments.sepay", New: func() caddy.Module { return new(SePayPayments) }}
}

// PayOSPayments credits transfers to a bank account in Vietnam that payOS watches.
//
// Syntax, in the svc block:
//
//	payments payos {
//	    checksum_key <{env.NAME} or {file.PATH}>
//	}
type PayOSPayments struct{ payos.Driver }

// CaddyModule returns the Caddy module information.
func (PayOSPayments) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.payments.payos", New: func() caddy.Module { return new(PayOSPayments) }}
}

// StripePayments credits payments at pages of Stripe Checkout, and reverses refunded and disputed ones.
//
// Syntax, in the svc block:
//
//	payments stripe {
//	    signing_secret <{env.NAME} or {file.PATH}>
//	    api_key        <{env.NAME} or {file.PATH}>
//	    api_base       <url>
//	}
type StripePayments struct{ stripe.Driver }

// CaddyModule returns the Caddy module information.
func (StripePayments) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "svc.payments.stripe", New: func() caddy.Module { return new(StripePayments) }}
}
