package platformtest

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// fake is an adapter that keeps the contract, but for what its fields break.
type fake struct {
	describe func(*platforms.Description)
	verify   func(d *platforms.Delivery, good error) error
	own      func(d *platforms.Delivery, good error) error
	extract  func(body []byte, items []platforms.Inbound, err error) ([]platforms.Inbound, error)
	text     func(string) string
	send     func(ctx context.Context, client *platforms.Client, request *platforms.Request) (*platforms.Response, *platforms.Error)
	failure  func(*platforms.Response, *platforms.Error) error
	identify func(channel *platforms.Channel, ids []string, err error) ([]string, error)
	reply    func(*platforms.Outgoing)
	refresh  func(next platforms.Credentials, err error) (platforms.Credentials, error)
	answer   func(query url.Values) (string, error)

	config *platforms.Config
	base   *url.URL
}

const fakeType platforms.Type = "fake"

const (
	fakeSecret    = "fake-secret-0123456789"
	fakeHeader    = "X-Fake-Signature"
	fakeChallenge = "4711"
)

func (f *fake) Describe() *platforms.Description {
	d := &platforms.Description{
		Name: "fake", Deliveries: "Events of the fake", SignatureHeader: fakeHeader, SignatureHelp: "The HMAC of the body.",
		Handshake: &platforms.Handshake{Summary: "Handshake", Query: []platforms.Parameter{{Name: "secret", Help: "The secret."}}},
		Options:   []option.Option{{Name: "secret", Kind: option.Secret, Required: true, Help: "Signs deliveries."}},
		Channels: []platforms.ChannelType{{
			Type: fakeType, Label: "Fake", ExternalID: "Account id", ExternalIDHint: "A number.",
			Credentials: append(platforms.TokenPair(), platforms.CredentialField{Name: "secret", Label: "Secret", Hint: "Signs.", Optional: true, Signs: true}),
			Limit:       platforms.Limit{Most: 100}, Before: []string{"Wait."}, After: []string{"Enter %u"}, WindowHelp: "None.",
		}},
	}
	if f.describe != nil {
		f.describe(d)
	}
	return d
}

func (f *fake) New(config *platforms.Config) (platforms.Platform, error) {
	base, err := config.Base("https://fake.example", "api_base")
	made := *f
	made.config, made.base = config, base
	return &made, err
}

func signature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

func (f *fake) signed(d *platforms.Delivery, secret string) error {
	name := cmp.Or(f.config.Options["header"], fakeHeader)
	if got := d.Header.Values(name); len(got) != 1 || secret == "" || !hmac.Equal([]byte(got[0]), []byte(signature(secret, d.Body))) {
		return errors.New("not signed")
	}
	return nil
}

func (f *fake) Named(d *platforms.Delivery) []platforms.Channel {
	if d.Header.Get(cmp.Or(f.config.Options["header"], fakeHeader)) == "" {
		return nil
	}
	items, _ := f.extracted(d.Body)
	for i := range items {
		return []platforms.Channel{{Type: items[i].Type, ExternalID: items[i].ExternalID}}
	}
	return nil
}

func (f *fake) SignsItself(c platforms.Credentials) bool { return c["secret"] != "" }

func (f *fake) VerifyOwn(d *platforms.Delivery, c platforms.Credentials) error {
	err := f.signed(d, c["secret"])
	if f.own != nil {
		return f.own(d, err)
	}
	return err
}

func (f *fake) Verify(d *platforms.Delivery) error {
	err := f.signed(d, f.config.Options["secret"])
	if f.verify != nil {
		return f.verify(d, err)
	}
	return err
}

func (f *fake) Handshake(query url.Values) (string, error) {
	if f.answer != nil {
		return f.answer(query)
	}
	if secret := f.config.Options["secret"]; secret == "" || query.Get("secret") != secret {
		return "", errors.New("not the secret")
	}
	return fakeChallenge, nil
}

func (f *fake) Extract(body []byte) ([]platforms.Inbound, error) {
	items, err := f.extracted(body)
	if f.extract != nil {
		return f.extract(body, items, err)
	}
	return items, err
}

func (f *fake) extracted(body []byte) ([]platforms.Inbound, error) {
	object, err := platforms.ParseObject(body)
	if err != nil {
		return nil, err
	}
	found := platforms.Collect(len(body))
	for _, message := range []platforms.Value{object, object.Member("next")} {
		in := platforms.Inbound{
			Type: fakeType, ExternalID: message.Member("account").ID(), Conversation: message.Member("customer").ID(),
			Address: message.Member("customer").ID(), MessageID: message.Member("id").ID(),
		}
		in = in.WithContent(message.Member("text").Text(platforms.MaxText), "")
		if message.Member("edited").Flag() {
			in = in.AsEdited()
		}
		found.Add(in)
	}
	return found.All(), nil
}

// call makes a request and reads {"id":…} or {"error":"retry"}.
func (f *fake) call(ctx context.Context, credentials platforms.Credentials, to, text string) (string, error) {
	token := credentials[platforms.AccessToken]
	if problem := platforms.CheckToken(token); problem != "" {
		return "", platforms.Unauthorized(false, &platforms.FieldError{Field: platforms.AccessToken, Problem: problem})
	}
	if f.text != nil {
		text = f.text(text)
	}
	request := &platforms.Request{
		Name: "fake", Base: f.base, Method: http.MethodPost, Path: "/send", JSON: map[string]string{"to": to, "text": text},
		Header: map[string]string{"Authorization": "Bearer " + token},
	}
	do := f.config.Client.Do
	if f.send != nil {
		do = func(ctx context.Context, q *platforms.Request) (*platforms.Response, *platforms.Error) {
			return f.send(ctx, f.config.Client, q)
		}
	}
	r, failure := do(ctx, request)
	id := ""
	if failure == nil {
		var body struct {
			ID    platforms.Word `json:"id"`
			Error platforms.Word `json:"error"`
		}
		switch {
		case !r.Decode(&body), body.ID == "" && body.Error == "":
			failure = r.Unreadable(true)
		case body.Error == "retry":
			failure = platforms.RetryLater(0, r.Error("retry", ""))
		case body.Error != "", !r.OK():
			failure = r.Unlisted(true, r.Error(string(body.Error), ""))
		}
		id = string(body.ID)
	}
	switch {
	case failure == nil:
		return id, nil
	case f.failure != nil:
		return "", f.failure(r, failure)
	}
	return "", failure
}

func (f *fake) Send(ctx context.Context, out *platforms.Outgoing) (string, error) {
	if f.reply != nil {
		out = new(*out)
		f.reply(out)
	}
	return f.call(ctx, out.Credentials, out.Address, out.Text)
}

func (f *fake) Identify(ctx context.Context, channel *platforms.Channel) (ids []string, err error) {
	id, err := f.call(ctx, channel.Credentials, "", "")
	if err == nil {
		ids = []string{id}
	}
	if f.identify != nil {
		return f.identify(channel, ids, err)
	}
	return ids, err
}

func (f *fake) Refresh(ctx context.Context, channel *platforms.Channel) (platforms.Credentials, error) {
	next, err := f.config.Client.RefreshTokens(ctx, &platforms.Request{
		Name: "fake", Base: f.base, Method: http.MethodPost, Path: "/token", Form: url.Values{"token": {channel.Credentials[platforms.RefreshToken]}},
	}, channel.Credentials, f.config.Now(), platforms.RefreshErrors{Member: "error"})
	if f.refresh != nil {
		return f.refresh(next, err)
	}
	return next, err
}

func suiteOf(f fake) Suite {
	return Suite{
		Driver: &f, Options: map[string]string{"secret": fakeSecret},
		Sign: func(d *platforms.Delivery, channel *platforms.Channel, options map[string]string) {
			d.Header.Set(fakeHeader, signature(cmp.Or(channel.Credentials["secret"], options["secret"]), d.Body))
		},
		Handshake: url.Values{"secret": {fakeSecret}}, HandshakeAnswer: fakeChallenge,
		Channels: map[platforms.Type]Sample{fakeType: {
			ExternalID: "77", Credentials: platforms.Credentials{platforms.AccessToken: "access-0123456789", platforms.RefreshToken: "refresh-0123456789"},
			Own:    []platforms.Credentials{{"secret": "own-secret-0123456789"}},
			Text:   `{"account":"%e","customer":"%c","id":"%m","text":"%t"}`,
			Pair:   `{"account":"%e","customer":"%c","id":"%m","text":"%t","next":{"account":"%E","customer":"%C","id":"%M","text":"%T"}}`,
			Edited: `{"account":"%e","customer":"%c","id":"%m","text":"%t","edited":true}`,
			Sent:   `{"id":"%m"}`, Identified: `{"id":"%e"}`, Refreshed: `{"access_token":"%a","refresh_token":"%r","expires_in":3600}`,
			Failures: []Failure{{Status: 400, Body: `{"error":"retry"}`, Class: platforms.Retry}},
		}},
	}
}

func TestAnAdapterThatKeepsTheContract(t *testing.T) {
	t.Parallel()
	Run(t, suiteOf(fake{}))
}

// TestEveryCheckFails guarantees that the suite finds what it looks for: each adapter breaks the contract once, in the check
// that is named.
func TestEveryCheckFails(t *testing.T) {
	t.Parallel()
	described := func(change func(*platforms.Description)) fake { return fake{describe: change} }
	items := func(change func(*platforms.Inbound)) fake {
		return fake{extract: func(_ []byte, items []platforms.Inbound, err error) ([]platforms.Inbound, error) {
			for i := range items {
				change(&items[i])
			}
			return items, err
		}}
	}
	failing := func(change func(*platforms.Response, *platforms.Error) error) fake { return fake{failure: change} }
	always := func(class platforms.Class) fake {
		return failing(func(_ *platforms.Response, e *platforms.Error) error { return platforms.Fail(class, e.Cause) })
	}
	var calls int
	for name, test := range map[string]struct {
		adapter fake
		finds   []string // the checks that must fail
	}{
		"no label":      {described(func(d *platforms.Description) { d.Channels[0].Label = "" }), []string{"description"}},
		"another label": {described(func(d *platforms.Description) { calls++; d.Channels[0].Label = fmt.Sprint(calls) }), []string{"description"}},
		"no handshake":  {described(func(d *platforms.Description) { d.Handshake = nil }), []string{"description"}},
		"another type":  {described(func(d *platforms.Description) { d.Channels[0].Type = "other" }), []string{"description", "deliveries"}},
		"useless field": {described(func(d *platforms.Description) { d.Channels[0].Credentials[0].Check = func(string) string { return "" } }), []string{"credentials"}},
		"quoting field": {described(func(d *platforms.Description) {
			d.Channels[0].Credentials[0].Check = func(s string) string { return "is " + s }
		}), []string{"credentials"}},
		"option without": {described(func(d *platforms.Description) {
			d.Options = append(d.Options, option.Option{Name: "x", Help: "x", Required: true})
		}), []string{"options"}},
		"option that lies": {described(func(d *platforms.Description) { d.Options[0].Check = func(string) string { return "is bad" } }), []string{"options"}},
		"any handshake":    {fake{answer: func(url.Values) (string, error) { return fakeChallenge, nil }}, []string{"handshake"}},
		"wrong answer":     {fake{answer: func(url.Values) (string, error) { return "", nil }}, []string{"handshake"}},
		"accepts anything": {fake{verify: func(*platforms.Delivery, error) error { return nil }}, []string{"verification"}},
		"accepts nothing":  {fake{verify: func(*platforms.Delivery, error) error { return errors.New("no") }}, []string{"verification"}},
		"any own secret":   {fake{own: func(*platforms.Delivery, error) error { return nil }}, []string{"own signatures"}},
		"no own secret":    {fake{own: func(*platforms.Delivery, error) error { return errors.New("no") }}, []string{"own signatures"}},
		"another field signs": {described(func(d *platforms.Description) {
			d.Channels[0].Credentials = append(d.Channels[0].Credentials, platforms.CredentialField{Name: "key", Label: "Key", Hint: "Signs.", Optional: true, Signs: true})
		}), []string{"own signatures"}},
		"ignores the body": {fake{verify: func(d *platforms.Delivery, _ error) error {
			if len(d.Header.Values(fakeHeader))+len(d.Header.Values("X-Renamed")) != 1 {
				return errors.New("no")
			}
			return nil
		}}, []string{"verification"}},
		"wrong kind":        {items(func(in *platforms.Inbound) { in.Kind = 0 }), []string{"deliveries"}},
		"another account":   {items(func(in *platforms.Inbound) { in.ExternalID = "78" }), []string{"deliveries"}},
		"nowhere to reply":  {items(func(in *platforms.Inbound) { in.Address = "" }), []string{"deliveries"}},
		"names its content": {items(func(in *platforms.Inbound) { in.Wordless = true }), []string{"deliveries"}},
		"written by either": {items(func(in *platforms.Inbound) { in.Unsure = true }), []string{"deliveries"}},
		"another long id": {items(func(in *platforms.Inbound) {
			in.Other = &platforms.OtherIDs{Alias: strings.Repeat("x", platforms.MaxID+1)}
		}), []string{"deliveries"}},
		"changes another message": {items(func(in *platforms.Inbound) {
			if in.Kind == platforms.Edited {
				in.MessageID += "x"
			}
		}), []string{"changes"}},
		"changes without a text": {items(func(in *platforms.Inbound) {
			if in.Kind == platforms.Edited {
				in.Text = " "
			}
		}), []string{"changes"}},
		"one id for all":    {items(func(in *platforms.Inbound) { in.MessageID = "1" }), []string{"deliveries"}},
		"trimmed text":      {items(func(in *platforms.Inbound) { in.Text = strings.TrimSpace(in.Text) }), []string{"written texts"}},
		"shortened text":    {items(func(in *platforms.Inbound) { in.Text = in.Text[:min(len(in.Text), 100)] }), []string{"written texts"}},
		"no items":          {fake{extract: func([]byte, []platforms.Inbound, error) ([]platforms.Inbound, error) { return nil, nil }}, []string{"deliveries", "truncated deliveries"}},
		"lenient with JSON": {fake{extract: func(_ []byte, items []platforms.Inbound, _ error) ([]platforms.Inbound, error) { return items, nil }}, []string{"truncated deliveries", "odd deliveries"}},
		"strict with forms": {fake{extract: func(_ []byte, items []platforms.Inbound, err error) ([]platforms.Inbound, error) {
			if len(items) == 0 {
				err = platforms.ErrMalformed
			}
			return items, err
		}}, []string{"odd deliveries"}},
		"own error": {fake{extract: func(_ []byte, items []platforms.Inbound, err error) ([]platforms.Inbound, error) {
			if err != nil {
				err = errors.New("no JSON")
			}
			return items, err
		}}, []string{"truncated deliveries"}},
		"panics": {fake{extract: func(body []byte, items []platforms.Inbound, err error) ([]platforms.Inbound, error) {
			var e struct{ Text *string }
			_ = json.Unmarshal(body, &e)
			_ = *e.Text
			return items, err
		}}, []string{"odd deliveries"}},
		"keeps the body": {fake{extract: func(body []byte, items []platforms.Inbound, err error) ([]platforms.Inbound, error) {
			for i := range items {
				if at := slices.Index(body, 'h'); at >= 0 && items[i].Text == "hello" {
					items[i].Text = unsafe.String(&body[at], 5)
				}
			}
			return items, err
		}}, []string{"deliveries"}},
		"cuts the text": {fake{text: func(text string) string { return text[:len(text)/2] }}, []string{"send"}},
		"sends in halves": {fake{send: func(ctx context.Context, c *platforms.Client, q *platforms.Request) (*platforms.Response, *platforms.Error) {
			_, _ = c.Do(ctx, q)
			return c.Do(ctx, q)
		}}, []string{"send", "odd answers", "broken connections"}},
		"leaves the base": {fake{send: func(ctx context.Context, c *platforms.Client, q *platforms.Request) (*platforms.Response, *platforms.Error) {
			other := *q.Base
			other.Path = ""
			q.Base = &other
			return c.Do(ctx, q)
		}}, []string{"send"}},
		"without its caller": {fake{send: func(_ context.Context, c *platforms.Client, q *platforms.Request) (*platforms.Response, *platforms.Error) {
			return c.Do(context.Background(), q)
		}}, []string{"end of the context"}},
		"never fails":    {failing(func(*platforms.Response, *platforms.Error) error { return nil }), []string{"failures", "odd answers", "broken connections", "identify"}},
		"another error":  {failing(func(_ *platforms.Response, e *platforms.Error) error { return errors.New(e.Error()) }), []string{"failures", "odd answers", "identify"}},
		"unknown class":  {always("tired"), []string{"failures", "odd answers"}},
		"always retry":   {always(platforms.Retry), []string{"odd answers", "broken connections"}},
		"always unknown": {always(platforms.Unknown), []string{"failures", "odd answers", "broken connections"}},
		"pause unbounded": {failing(func(_ *platforms.Response, e *platforms.Error) error {
			return &platforms.Error{Class: e.Class, RetryAfter: 1, Cause: e.Cause}
		}), []string{"failures", "odd answers"}},
		"no cause": {failing(func(_ *platforms.Response, e *platforms.Error) error { return platforms.Fail(e.Class, nil) }), []string{"failures", "odd answers"}},
		"quotes the platform": {failing(func(r *platforms.Response, e *platforms.Error) error {
			if r != nil {
				return platforms.Fail(e.Class, errors.New(string(r.Body)))
			}
			return e
		}), []string{"odd answers"}},
		"any account": {fake{identify: func(*platforms.Channel, []string, error) ([]string, error) { return []string{"77"}, nil }}, []string{"identify", "without credentials"}},
		"another's account": {fake{identify: func(_ *platforms.Channel, ids []string, err error) ([]string, error) {
			return append(ids[:0], "78"), err
		}}, []string{"identify"}},
		"loses the rest": {fake{refresh: func(next platforms.Credentials, err error) (platforms.Credentials, error) {
			delete(next, platforms.RefreshToken)
			return next, err
		}}, []string{"refresh"}},
		"sure of a refresh": {fake{refresh: func(next platforms.Credentials, err error) (platforms.Credentials, error) {
			if err != nil {
				err = platforms.Unauthorized(false, err)
			}
			return next, err
		}}, []string{"refresh"}},
		"ended tokens": {fake{refresh: func(next platforms.Credentials, err error) (platforms.Credentials, error) {
			if err == nil {
				next[platforms.ExpiresAt] = "1"
			}
			return next, err
		}}, []string{"refresh"}},
	} {
		requireFound(t, name, test.adapter, test.finds...)
	}
}

// requireFound requires that the checks with these names fail for an adapter.
func requireFound(t *testing.T, name string, adapter fake, finds ...string) {
	t.Helper()
	for _, wanted := range finds {
		at := slices.IndexFunc(checks, func(c check) bool { return c.name == wanted })
		require.GreaterOrEqual(t, at, 0, wanted)
		s := suiteOf(adapter)
		s.patience = 100 * time.Millisecond
		require.True(t, fails(t, checks[at], s), "%s: the check %q finds nothing", name, wanted)
	}
}

// TestConcurrencyIsChecked guarantees that calls which share what they shouldn't are found, also without the race detector.
func TestConcurrencyIsChecked(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	first := true
	mixed := fake{extract: func(_ []byte, items []platforms.Inbound, err error) ([]platforms.Inbound, error) {
		mu.Lock()
		defer mu.Unlock()
		if !first {
			return nil, err
		}
		first = false
		return items, err
	}}
	require.True(t, fails(t, check{run: Suite.concurrency}, suiteOf(mixed)))
}

// verdict is a test whose failure is noted instead of reported.
type verdict struct {
	testing.TB
	mu     sync.Mutex
	failed bool
}

func (v *verdict) Errorf(string, ...any) { v.fail() }
func (v *verdict) Error(...any)          { v.fail() }
func (v *verdict) Fail()                 { v.fail() }

func (v *verdict) FailNow() {
	v.fail()
	runtime.Goexit()
}

func (v *verdict) fail() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = true
}

// fails reports whether a check fails or panics.
func fails(t *testing.T, c check, s Suite) bool {
	t.Helper()
	v := &verdict{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if recover() != nil {
				v.fail()
			}
		}()
		c.run(s, v)
	}()
	<-ended
	return v.failed
}
