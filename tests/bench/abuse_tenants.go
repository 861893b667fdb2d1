package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/tests/abuse"
)

// bystanders are the connections on which each kind of the bystander's work is done, in turns: one that is slow doesn't
// hold up the others, which would be measured again with each of them.
const bystanders = 10

// workKinds are what a bystander does, and workPace how often in a second. That leaves the machine mostly idle: what is
// measured is one request beside an attack, not the bystander's own load.
var (
	workKinds = []string{"call", "webhook", "login", "page"}
	workPace  = map[string]int{"call": 50, "webhook": 50, "login": 5, "page": 10}
)

const (
	bystanderEmail    = "lan@example.com"
	bystanderPassword = "correct horse battery"
	attackersSecret   = "secret-of-the-attackers-bot"
	// attackersPage is a page on the social platform, whose deliveries an application of the attacker's own signs.
	attackersPage      = "948000001"
	attackersAppSecret = "secret-of-the-attackers-application"
	// attackersPages is how many others they have, each with an application of its own.
	attackersPages = 300
)

// abuseCaddyfile is the product with all its routes and its limits as they come.
const abuseCaddyfile = `{
	admin %[4]s
	persist_config off
	log {
		level ERROR
	}
	servers {
		protocols h1 h2 h2c
	}
	svc {
		base_url http://127.0.0.1
		%[3]s
		master_key {env.BENCH_MASTER_KEY}
		plan bench {
		}
		plan counted {
		}
		provider bench {
			protocol openai
			base_url http://%[2]s/v1
			api_key none
		}
		model bench/m {
			context_window 128000
			max_output_tokens 4096
			price_input 150000
			price_output 600000
		}
		platform bot {
			api_base http://%[2]s
		}
		platform social {
			api_base http://%[2]s
			app_secret {env.BENCH_APP_SECRET}
			verify_token {env.BENCH_APP_SECRET}
		}
		platform localchat {
			app_id 1
			app_secret {env.BENCH_APP_SECRET}
		}
		platform market_a {
			partner_id 1
			partner_key {env.BENCH_APP_SECRET}
		}
		platform market_b {
			app_key 1
			app_secret {env.BENCH_APP_SECRET}
			api_base http://%[2]s
			auth_base http://%[2]s
		}
	}
}
http://%[1]s {
	bind 127.0.0.1
	handle /v1/models* {
		svc_auth models:read
		svc_rate_limit
		svc_models
	}
	handle /v1/chat/completions {
		svc_auth chat:write
		svc_rate_limit
		svc_chat
	}
	handle /webhooks/bot/* {
		svc_webhook bot
	}
	handle /webhooks/social {
		svc_webhook social
	}
	handle /webhooks/localchat {
		svc_webhook localchat
	}
	handle /webhooks/market-a {
		svc_webhook market_a
	}
	handle /webhooks/market-b {
		svc_webhook market_b
	}
	handle /dashboard* {
		svc_dashboard
	}
	handle /widget/* {
		svc_widget
	}
	handle /live {
		svc_health live
	}
	@groups path /api-keys* /provider-keys* /agents* /knowledge-bases* /channels* /conversations* /wallet* /event-endpoints* /organization* /session* /members* /audit-log*
	handle @groups {
		svc_api
	}
	handle {
		svc_error
	}
	handle_errors {
		svc_error
	}
}
`

// tenants are a product's two: the bystander, a person of whom signs in from a known device, and the attacker.
type tenants struct {
	product  *product
	platform *webhooks
	login    []byte // the bystander's request
	page     []byte // the request for the bystander's page
	target   *abuse.Target
}

func startTenants(ctx context.Context, binary string) (t *tenants, err error) {
	at, err := newPlace(ctx, store.SQLite, "")
	if err != nil {
		return nil, err
	}
	p, err := startProductWith(ctx, binary, at, abuseCaddyfile)
	if err != nil {
		return nil, err
	}
	t = &tenants{product: p, platform: &webhooks{product: p}}
	if err := errors.Join(t.signUp(ctx), t.arm(ctx)); err != nil {
		return nil, p.end(err)
	}
	return t, nil
}

// signUp gives the bystander a person with a password, and the device from which that was set.
func (t *tenants) signUp(ctx context.Context) error {
	var invited struct{ Link string }
	if err := t.product.command(ctx, &invited, "user", "invite", "--org", t.product.org, "--email", bystanderEmail, "--role", "owner"); err != nil {
		return err
	}
	link, err := url.Parse(invited.Link)
	if err != nil {
		return fmt.Errorf("reading the invitation: %w", err)
	}
	cookies, err := t.post(ctx, "/session/password", nil, map[string]any{"token": link.Fragment, "password": bystanderPassword}, nil)
	if err != nil {
		return err
	}
	device, session := "", ""
	for _, cookie := range cookies {
		switch {
		case strings.HasSuffix(cookie.Name, "svc_device"):
			device = cookie.Name + "=" + cookie.Value
		case strings.HasSuffix(cookie.Name, "svc_session"):
			session = cookie.Name + "=" + cookie.Value
		}
	}
	t.page = fmt.Appendf(nil, "GET /dashboard/agents HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n\r\n", t.product.address, session)
	body := fmt.Sprintf(`{"email":%q,"password":%q}`, bystanderEmail, bystanderPassword)
	t.login = fmt.Appendf(nil, "POST /session HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		t.product.address, device, len(body), body)
	return nil
}

// arm gives the attacker a key with all scopes, and a bot and a widget that belong to the attacker.
func (t *tenants) arm(ctx context.Context) error {
	var made struct{ ID, Key, Token string }
	p := t.product
	if err := p.command(ctx, &made, "key", "create", "--org", p.countedOrg, "--scopes", identity.JoinScopes(identity.AllScopes(), ",")); err != nil {
		return err
	}
	t.target = &abuse.Target{
		Address: p.address, Key: made.Key, Model: "bench/m", Endless: floodPrompt, Long: storyPrompt,
		Page: attackersPage, PageSecret: attackersAppSecret, BotSecret: attackersSecret, Person: bystanderEmail,
		Sign: signSocial,
	}
	var err error
	if t.target.Bot, err = t.channel(ctx, "bot", `{"botToken":"1:bench","secretToken":"`+attackersSecret+`"}`); err != nil {
		return err
	}
	if _, err = t.channel(ctx, "social_messenger", `{"accessToken":"bench","appSecret":"`+attackersAppSecret+`"}`, "--external-id", attackersPage); err != nil {
		return err
	}
	if err := t.openPages(ctx); err != nil {
		return err
	}
	bearer := http.Header{"Authorization": {"Bearer " + t.target.Key}}
	if _, err := t.post(ctx, "/agents", bearer, map[string]any{"name": "Mai", "model": "bench/m", "instructions": "You are Mai."}, &made); err != nil {
		return err
	}
	widget := map[string]any{"type": "widget", "name": "Site", "agentId": made.ID, "origins": []string{abuse.Origin}}
	if _, err := t.post(ctx, "/channels", bearer, widget, &made); err != nil {
		return err
	}
	t.target.Widget = made.ID
	_, err = t.post(ctx, "/widget/"+made.ID+"/session", http.Header{"Origin": {abuse.Origin}}, map[string]any{}, &made)
	t.target.VisitorToken = made.Token
	return err
}

// openPages gives the attacker many pages on the social platform.
func (t *tenants) openPages(ctx context.Context) error {
	db, err := store.Open(ctx, t.product.place.location, store.Options{})
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	ring, err := vault.ParseRing(t.product.masterKey)
	if err == nil {
		t.target.Pages, err = abuse.ManyPages(ctx, db, ring, t.product.countedOrg, attackersPages)
	}
	return errors.Join(err, db.Close(ctx))
}

// channel gives the attacker a channel and returns its id.
func (t *tenants) channel(ctx context.Context, kind, credentials string, args ...string) (id string, err error) {
	file := filepath.Join(t.product.dir, kind+".json")
	if err := os.WriteFile(file, []byte(credentials), 0o600); err != nil {
		return "", fmt.Errorf("writing credentials: %w", err)
	}
	var made struct{ ID string }
	err = t.product.command(ctx, &made, append([]string{
		"channel", "create", "--org", t.product.countedOrg, "--type", kind, "--name", kind, "--credentials-file", file,
	}, args...)...)
	return made.ID, err
}

// post sends JSON and decodes the answer into out, which may be nil.
func (t *tenants) post(ctx context.Context, path string, header http.Header, body map[string]any, out any) ([]*http.Cookie, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("writing a body: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.product.address+path, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	if header != nil {
		request.Header = header.Clone()
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer of %s: %w", path, err)
	case response.StatusCode >= http.StatusMultipleChoices:
		return nil, fmt.Errorf("%s answered %d %s", path, response.StatusCode, answer)
	case out == nil:
		return response.Cookies(), nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	return response.Cookies(), nil
}

// work does the bystander's work for a while, on new connections, and adds how long it took.
func (t *tenants) work(ctx context.Context, lasts time.Duration, took work) error {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var mu sync.Mutex // for took and faults
	var faults []error
	var working sync.WaitGroup
	for _, kind := range workKinds {
		interval := time.Second / time.Duration(workPace[kind])
		for i := range bystanders {
			do, hangUp, err := t.begin(kind)
			if err != nil {
				cancel()
				working.Wait()
				return errors.Join(append(faults, err)...)
			}
			working.Go(func() {
				defer hangUp()
				all, err := paced(ctx, time.Now().Add(time.Duration(i)*interval), bystanders*interval, do)
				mu.Lock()
				defer mu.Unlock()
				took[kind] = append(took[kind], all...)
				if err != nil {
					faults = append(faults, fmt.Errorf("a %s of another tenant: %w", kind, err))
				}
			})
		}
	}
	working.Wait()
	return errors.Join(faults...)
}

// begin connects for one kind of work.
func (t *tenants) begin(kind string) (do func() error, hangUp func(), err error) {
	switch kind {
	case "webhook":
		d, err := t.platform.dial(queued)
		if err != nil {
			return nil, nil, err
		}
		return d.deliver, func() { _ = d.conn.Close() }, nil
	case "login", "page":
		request, status := t.login, http.StatusCreated
		if kind == "page" {
			request, status = t.page, http.StatusOK
		}
		c, err := dial(t.product.address, request)
		if err != nil {
			return nil, nil, err
		}
		return func() error { return c.expect(status) }, func() { _ = c.conn.Close() }, nil
	default:
		c, err := dial(t.product.address, t.product.request(paid, row{}))
		if err != nil {
			return nil, nil, err
		}
		return func() error { _, err := c.ask(paid, false); return err }, func() { _ = c.conn.Close() }, nil
	}
}

// paced does something at a pace until ctx ends. Each time counts from when it was due, so that a late one is not forgotten
// because those before it were slow.
func paced(ctx context.Context, due time.Time, every time.Duration, do func() error) (took []time.Duration, err error) {
	for ; ; due = due.Add(every) {
		select {
		case <-ctx.Done():
			return took, nil
		case <-time.After(time.Until(due)):
		}
		if err := do(); err != nil {
			return took, err
		}
		took = append(took, time.Since(due))
	}
}

// expect sends the request, whose answer must have the status.
func (c *client) expect(status int) error {
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return fmt.Errorf("reading the head: %w", err)
	}
	c.body.Reset()
	_, err = io.Copy(&c.body, response.Body)
	_ = response.Body.Close()
	if err != nil {
		return fmt.Errorf("reading the body: %w", err)
	}
	if response.StatusCode != status {
		return fmt.Errorf("status %d: %.200s", response.StatusCode, c.body.Bytes())
	}
	return nil
}
