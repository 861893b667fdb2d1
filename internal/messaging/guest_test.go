package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// guest is an adapter from outside this repository. Its functions are set by the test; one that is nil panics with a secret.
type guest struct {
	describe func(*platforms.Description)
	verify   func() error
	extract  func() ([]platforms.Inbound, error)
	send     func(context.Context, *platforms.Outgoing) (string, error)
	identify func(context.Context, *platforms.Channel) ([]string, error)
	refresh  func(context.Context, *platforms.Channel) (platforms.Credentials, error)
	made     func(*platforms.Config) (platforms.Platform, error)
}

const guestType platforms.Type = "guest"

func (g *guest) Describe() *platforms.Description {
	d := &platforms.Description{
		Name: "guest", Deliveries: "Events of the guest", SignatureHeader: "X-Guest", SignatureHelp: "A signature.",
		Handshake: &platforms.Handshake{Summary: "Handshake"},
		Channels: []platforms.ChannelType{{
			Type: guestType, Label: "Guest", ExternalID: "Account", ExternalIDHint: "Its id.", Credentials: platforms.TokenPair(),
			Before: []string{"Nothing."}, After: []string{"Enter %u"}, WindowHelp: "None.",
		}},
	}
	if g.describe != nil {
		g.describe(d)
	}
	return d
}

func (g *guest) New(config *platforms.Config) (platforms.Platform, error) {
	if g.made != nil {
		return g.made(config)
	}
	return g, nil
}

func (g *guest) Verify(*platforms.Delivery) error            { return called(g.verify)() }
func (g *guest) Handshake(url.Values) (string, error)        { panic(secretToken) }
func (g *guest) Extract([]byte) ([]platforms.Inbound, error) { return called(g.extract)() }

func (g *guest) Send(ctx context.Context, out *platforms.Outgoing) (string, error) {
	return called(g.send)(ctx, out)
}

func (g *guest) Identify(ctx context.Context, channel *platforms.Channel) ([]string, error) {
	return called(g.identify)(ctx, channel)
}

func (g *guest) Refresh(ctx context.Context, channel *platforms.Channel) (platforms.Credentials, error) {
	return called(g.refresh)(ctx, channel)
}

func called[F any](f F) F {
	if reflect.ValueOf(f).IsNil() {
		panic(secretToken)
	}
	return f
}

// guests is a set with one guest, and its log.
func guests(t *testing.T, g *guest) (*messaging.Set, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	set, err := messaging.New(messaging.Config{Drivers: []platforms.Driver{g}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	t.Cleanup(set.Close)
	return set, &log
}

func toGuest() platforms.Outgoing {
	return platforms.Outgoing{Type: guestType, ExternalID: "1", Conversation: "2", Address: "2", Text: "hello", Credentials: credentials(guestType)}
}

func ofGuest() *platforms.Channel {
	return &platforms.Channel{Type: guestType, ExternalID: "1", Credentials: credentials(guestType)}
}

// guestCalls are the calls that an adapter makes to its platform.
func guestCalls(set *messaging.Set) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"send":     func(ctx context.Context) error { _, err := set.Send(ctx, toGuest()); return err },
		"identify": func(ctx context.Context) error { _, err := set.Identify(ctx, ofGuest()); return err },
		"refresh":  func(ctx context.Context) error { _, err := set.Refresh(ctx, ofGuest()); return err },
	}
}

// TestPanicsOfAGuest guarantees that a panic in any call of an adapter is an error of that call, that the log names the adapter,
// and that what it panicked with is nowhere.
func TestPanicsOfAGuest(t *testing.T) {
	t.Parallel()
	set, log := guests(t, &guest{})
	p := set.Platform("guest")
	requireContained := func(name string, err error) {
		require.True(t, messaging.IsPanic(err), name)
		require.NotContains(t, err.Error(), secretToken, name)
		require.Equal(t, 1, strings.Count(log.String(), "the adapter of a platform panicked"), name)
		require.Contains(t, log.String(), "platform=guest", name)
		require.NotContains(t, log.String(), secretToken, name)
		log.Reset()
	}
	requireContained("verify", p.Verify(&platforms.Delivery{}))
	_, err := p.Extract([]byte(`{}`))
	requireContained("extract", err)
	_, err = p.Answer(url.Values{})
	requireContained("handshake", err)
	for name, call := range guestCalls(set) {
		err := call(t.Context())
		require.Equal(t, platforms.Unknown, requireFailure(t, err).Class, name)
		requireContained(name, err)
	}
	set, _ = guests(t, &guest{describe: func(d *platforms.Description) {
		d.Channels[0].Credentials[0].Check = func(value string) string { panic(value) }
	}})
	found, _ := set.Find(string(guestType))
	require.EqualError(t, found.CheckCredentials(credentials(guestType)), "accessToken: can't be checked: the platform's adapter panicked")
	_, err = messaging.New(messaging.Config{Drivers: []platforms.Driver{&guest{made: func(*platforms.Config) (platforms.Platform, error) { panic(secretToken) }}}})
	require.EqualError(t, err, "platform guest: the adapter of the platform panicked")
	_, err = messaging.New(messaging.Config{Drivers: []platforms.Driver{&guest{describe: func(*platforms.Description) { panic(secretToken) }}}})
	require.EqualError(t, err, "the description of a platform panicked")
}

// TestDeadlinesOfAGuest guarantees that every call of an adapter has a deadline, and that one which ignores it is left behind.
func TestDeadlinesOfAGuest(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"send", "identify", "refresh"} {
		for _, ignores := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				hang := func(ctx context.Context) error {
					_, bounded := ctx.Deadline()
					require.True(t, bounded)
					if ignores {
						<-release
					}
					<-ctx.Done()
					return context.Cause(ctx)
				}
				set, log := guests(t, &guest{
					send:     func(ctx context.Context, _ *platforms.Outgoing) (string, error) { return "", hang(ctx) },
					identify: func(ctx context.Context, _ *platforms.Channel) ([]string, error) { return nil, hang(ctx) },
					refresh:  func(ctx context.Context, _ *platforms.Channel) (platforms.Credentials, error) { return nil, hang(ctx) },
				})
				start, most := time.Now(), 2*platforms.DefaultTimeout
				err := guestCalls(set)[name](t.Context())
				failure := requireFailure(t, err)
				require.Equal(t, platforms.Unknown, failure.Class, name)
				require.ErrorContains(t, failure, "in time")
				if ignores {
					most += 5 * time.Second
				}
				require.Equal(t, most, time.Since(start))
				require.Equal(t, ignores, strings.Contains(log.String(), "it is left behind"))
				close(release)
			})
		}
	}
}

// TestFailuresOfAGuest guarantees that the product sees errors of the contract only, whatever an adapter returns.
func TestFailuresOfAGuest(t *testing.T) {
	t.Parallel()
	var none *platforms.Error
	cause := errors.New("why")
	for name, test := range map[string]struct{ err, want error }{
		"another error":      {cause, platforms.Fail(platforms.Unknown, cause)},
		"no error":           {none, platforms.Fail(platforms.Unknown, errors.New("the adapter of the platform failed without an error"))},
		"unknown class":      {platforms.Fail("tired", cause), platforms.Fail(platforms.Unknown, cause)},
		"no class":           {&platforms.Error{Cause: cause}, platforms.Fail(platforms.Unknown, cause)},
		"too long a pause":   {&platforms.Error{Class: platforms.Retry, RetryAfter: 1000 * time.Hour, Cause: cause}, platforms.RetryLater(24*time.Hour, cause)},
		"one customer":       {platforms.TooManyForOne(0, cause), &platforms.Error{Class: platforms.Retry, RetryAfter: 2 * time.Second, OneCustomer: true, Cause: cause}},
		"three tries":        {&platforms.Error{Class: platforms.Retry, MostTries: 3, Cause: cause}, &platforms.Error{Class: platforms.Retry, MostTries: 3, Cause: cause}},
		"fewer than none":    {&platforms.Error{Class: platforms.Retry, MostTries: -1, Cause: cause}, platforms.RetryLater(0, cause)},
		"nobody's pause":     {&platforms.Error{Class: platforms.Retry, OneCustomer: true, Cause: cause}, platforms.RetryLater(0, cause)},
		"closed":             {platforms.ClosedFor(8*time.Hour, cause), platforms.ClosedFor(8*time.Hour, cause)},
		"closed for days":    {&platforms.Error{Class: platforms.Retry, Closed: true, RetryAfter: 100 * time.Hour, Cause: cause}, platforms.ClosedFor(12*time.Hour, cause)},
		"closed and refused": {&platforms.Error{Class: platforms.Refused, Closed: true, Cause: cause}, platforms.Fail(platforms.Refused, cause)},
		"pause of a refusal": {&platforms.Error{Class: platforms.Refused, RetryAfter: time.Minute, Cause: cause}, platforms.Fail(platforms.Refused, cause)},
		"refreshable":        {platforms.Unauthorized(true, cause), platforms.Unauthorized(true, cause)},
		"refreshable retry":  {&platforms.Error{Class: platforms.Retry, Refreshable: true, Cause: cause}, platforms.RetryLater(0, cause)},
	} {
		set, _ := guests(t, &guest{send: func(context.Context, *platforms.Outgoing) (string, error) { return "m", test.err }})
		_, err := set.Send(t.Context(), toGuest())
		require.Equal(t, test.want, err, name)
	}
	for name, id := range map[string]string{"none": "", "too long": strings.Repeat("m", platforms.MaxID+1), "NUL": "a\x00", "no UTF-8": "\xff"} {
		set, _ := guests(t, &guest{send: func(context.Context, *platforms.Outgoing) (string, error) { return id, nil }})
		_, err := set.Send(t.Context(), toGuest())
		require.Equal(t, platforms.Unknown, requireFailure(t, err).Class, name)
	}
	for name, next := range map[string]platforms.Credentials{
		"none": nil, "no refresh token": {platforms.AccessToken: "a"},
		"another field": {platforms.AccessToken: "a", platforms.RefreshToken: "b", "pigeon": "c"},
	} {
		set, _ := guests(t, &guest{refresh: func(context.Context, *platforms.Channel) (platforms.Credentials, error) { return next, nil }})
		_, err := set.Refresh(t.Context(), ofGuest())
		require.Equal(t, platforms.Unknown, requireFailure(t, err).Class, name)
	}
}

// TestItemsOfAGuest guarantees that items which break the contract are dropped, the others kept, with one line in the log for
// each delivery and nothing of the items in it.
func TestItemsOfAGuest(t *testing.T) {
	t.Parallel()
	good := platforms.Inbound{Type: guestType, ExternalID: "1", Kind: platforms.Text, Conversation: "2", Address: "2", MessageID: "3", Text: "hello"}
	items := []platforms.Inbound{good}
	for _, spoil := range []func(*platforms.Inbound){
		func(in *platforms.Inbound) { in.Type = "bot" },
		func(in *platforms.Inbound) { in.ExternalID = "" },
		func(in *platforms.Inbound) { in.ExternalID = strings.Repeat("x", platforms.MaxID+1) },
		func(in *platforms.Inbound) { in.Kind = 0 },
		func(in *platforms.Inbound) { in.Kind = platforms.AccessRefused + 1 },
		func(in *platforms.Inbound) { in.Kind = platforms.Blocked },
		func(in *platforms.Inbound) { in.Conversation = "" },
		func(in *platforms.Inbound) { in.Conversation = "\xff" },
		func(in *platforms.Inbound) { in.Address = "a\x00b" },
		func(in *platforms.Inbound) { in.MessageID = "" },
		func(in *platforms.Inbound) { in.Text = " " },
		func(in *platforms.Inbound) { in.Text = strings.Repeat("x", platforms.MaxText+1) },
		func(in *platforms.Inbound) { in.CustomerName = strings.Repeat("x", platforms.MaxName+1) },
		func(in *platforms.Inbound) { in.Failure = platforms.Retry },
		func(in *platforms.Inbound) { in.Kind, in.Failure = platforms.FailedDelivery, "tired" },
		func(in *platforms.Inbound) { in.SentAt = time.Unix(-1, 0) },
	} {
		bad := good
		bad.CustomerName = "Lan"
		spoil(&bad)
		items = append(items, bad)
	}
	items = append(items, good)
	set, log := guests(t, &guest{extract: func() ([]platforms.Inbound, error) { return items, nil }})
	kept, err := set.Platform("guest").Extract([]byte(`{}`))
	require.NoError(t, err)
	require.Equal(t, []platforms.Inbound{good, good}, kept)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "platform=guest items=16")
	require.NotContains(t, log.String(), "Lan")
}

// TestDescriptionsOfAGuest guarantees that the product doesn't start with a description that breaks the contract.
func TestDescriptionsOfAGuest(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*platforms.Description){
		`platform Guest: the name "Guest" is not made of`: func(d *platforms.Description) { d.Name = "Guest" },
		"SignatureHeader or SignatureHelp is missing":     func(d *platforms.Description) { d.SignatureHelp = "" },
		"it has no channel type":                          func(d *platforms.Description) { d.Channels = nil },
		`channel type "guest" is there twice`:             func(d *platforms.Description) { d.Channels = append(d.Channels, d.Channels[0]) },
		`channel type "widget": the name is taken`:        func(d *platforms.Description) { d.Channels[0].Type = messaging.Widget },
		`option "ack": the name is taken`:                 func(d *platforms.Description) { d.Options = []option.Option{{Name: "ack", Help: "x"}} },
		"has no label or no hint":                         func(d *platforms.Description) { d.Channels[0].Credentials[0].Hint = "" },
		"no Refresh, or Refresh and no refresh token":     func(d *platforms.Description) { d.Channels[0].Credentials = d.Channels[0].Credentials[:1] },
		"it describes a handshake and has none":           func(d *platforms.Description) { d.Handshake = nil },
		"a webhook for each channel and no VerifyChannel": func(d *platforms.Description) {
			d.ChannelWebhooks, d.Channels[0].ExternalID, d.Channels[0].ExternalIDHint = true, "", ""
		},
	} {
		_, err := messaging.New(messaging.Config{Drivers: []platforms.Driver{&guest{describe: spoil}}})
		require.ErrorContains(t, err, want)
	}
	_, err := messaging.New(messaging.Config{Drivers: []platforms.Driver{&guest{}, &guest{}}})
	require.ErrorContains(t, err, "platform guest: the name is taken")
	_, err = messaging.New(messaging.Config{Drivers: []platforms.Driver{&guest{made: func(*platforms.Config) (platforms.Platform, error) { return nil, nil }}}})
	require.EqualError(t, err, "platform guest: it made no platform")
}

// TestAGuestNeverSeesTheVault guarantees that nothing which an adapter is handed leads to the product: all types are those of
// package platforms and of Go's library. What an adapter does with credentials stays with it.
func TestAGuestNeverSeesTheVault(t *testing.T) {
	t.Parallel()
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		if path := of.PkgPath(); strings.Contains(path, ".") {
			require.Equal(t, "github.com/caddy-svc/caddy-svc/platforms", path, of)
		}
		switch of.Kind() { //nolint:exhaustive // the others contain nothing
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Chan:
			look(of.Elem())
		case reflect.Struct:
			for field := range of.Fields() {
				look(field.Type)
			}
		}
	}
	for _, handed := range []any{platforms.Config{}, platforms.Delivery{}, platforms.Outgoing{}, platforms.Channel{}} {
		look(reflect.TypeOf(handed))
	}
	mine := toGuest()
	set, _ := guests(t, &guest{send: func(_ context.Context, out *platforms.Outgoing) (string, error) {
		clear(out.Credentials)
		return "m", nil
	}})
	_, err := set.Send(t.Context(), mine)
	require.NoError(t, err)
	require.Equal(t, credentials(guestType), mine.Credentials)
}
