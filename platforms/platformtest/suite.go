// Package platformtest checks adapters to messaging platforms against the contract of package platforms. A test of an adapter
// calls [Run]:
//
//	func TestContract(t *testing.T) {
//		platformtest.Run(t, platformtest.Suite{Driver: Driver{}, Options: …, Channels: …, Sign: …})
//	}
//
// The suite plays the platform over HTTP: it makes deliveries of the samples, spoils them, and answers the adapter's calls with
// what the samples say and with what no platform should send. What is special about a platform (its kinds of messages, the
// form of its requests) is for the adapter's own tests; [RequireDeliveries] compares what is extracted.
package platformtest

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Suite describes an adapter to the checks.
type Suite struct {
	Driver platforms.Driver
	// Options are values for the driver's options, as in [platforms.Config]. Those that are addresses are the suite's.
	Options map[string]string
	// Sign adds the headers that prove the platform to a delivery for a channel, with the secrets of options, of which some or all may
	// be missing. It is called for every delivery of the suite. A channel with credentials of [Sample.Own] signs with these.
	Sign func(delivery *platforms.Delivery, channel *platforms.Channel, options map[string]string)
	// Handshake is a good request for a [platforms.Handshaker], and the answer to it.
	Handshake       url.Values
	HandshakeAnswer string
	// Channels has a sample for each channel type of the description.
	Channels map[platforms.Type]Sample

	// patience replaces returnWait in tests of the suite. 0 means returnWait.
	patience time.Duration
}

// Sample is a channel with the deliveries and answers of its platform, in the platform's own form. In them %e is the channel's
// external id, and %c is the customer: the id, a whole number, to which a reply is addressed and by which the platform tells
// conversations apart.
type Sample struct {
	// ExternalID is empty with [platforms.Description.ChannelWebhooks].
	ExternalID string
	// Credentials are those of the channel. Every request for it has one of their values.
	Credentials platforms.Credentials
	// Own are additional credentials of channels with an application of their own, one set for each way to give a secret that signs
	// deliveries. See [platforms.ChannelSigned].
	Own []platforms.Credentials
	// Text is the body of a delivery to the channel: a customer's message with the id %m, a whole number, whose text is the
	// JSON string "%t".
	Text string
	// Pair is the body of a delivery with two customers' messages to two channels: one as in Text, and one whose parts are %E, %C, %M and
	// "%T". Empty for platforms that deliver messages one by one.
	Pair string
	// Edited is the body of a delivery to the channel: the customer has changed the message %m to the JSON string "%t". Empty for platforms
	// that don't report changes.
	Edited string
	// Sent is the answer to a message that was taken under the id %m, a whole number.
	Sent string
	// Uploaded is the answer to the first of two requests by which a [platforms.FileSender] sends a file; empty if one suffices.
	Uploaded string
	// Identified is the answer from which Identify reads the channel's external id, %e, or any id if the channel has none. Without %e the
	// request names the channel, and the platform answers only with a token of that channel.
	Identified string
	// Refreshed is the answer of a [platforms.Refresher]'s platform with the new tokens %a and, if there are refresh tokens, %r; empty
	// for types without.
	Refreshed string
	// Failures are answers to a message that was not accepted.
	Failures []Failure

	// customer is %c. Empty means the first of customers.
	customer string
}

// Failure is an answer of the platform, and the class that it must have. Refreshable is that of [platforms.Error].
type Failure struct {
	Status      int
	Body        string
	Class       platforms.Class
	Refreshable bool
}

// Run checks the adapter.
func Run(t *testing.T, s Suite) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(s, t) })
	}
}

// check is one part of the contract.
type check struct {
	name string
	run  func(Suite, testing.TB)
}

var checks = []check{
	{"description", Suite.description},
	{"credentials", Suite.credentials},
	{"options", Suite.options},
	{"handshake", Suite.handshake},
	{"verification", Suite.verification},
	{"own signatures", Suite.ownSignatures},
	{"deliveries", Suite.deliveries},
	{"two accounts", Suite.twoAccounts},
	{"changes", Suite.changes},
	{"written texts", Suite.writtenTexts},
	{"truncated deliveries", Suite.truncatedDeliveries},
	{"odd deliveries", Suite.oddDeliveries},
	{"send", Suite.send},
	{"addresses", Suite.addresses},
	{"failures", Suite.failures},
	{"odd answers", Suite.oddAnswers},
	{"broken connections", Suite.brokenConnections},
	{"end of the context", Suite.endOfContext},
	{"without credentials", Suite.withoutCredentials},
	{"identify", Suite.identify},
	{"refresh", Suite.refresh},
	{"templates", Suite.templates},
	{"signals", Suite.signals},
	{"threads", Suite.threads},
	{"files", Suite.files},
	{"concurrency", Suite.concurrency},
}

// New returns the platform of a driver for the options. Its client is closed at the end of the test.
func New(t testing.TB, driver platforms.Driver, options map[string]string) platforms.Platform {
	t.Helper()
	client := platforms.NewClient(platforms.ClientConfig{})
	t.Cleanup(client.Close)
	platform, err := driver.New(&platforms.Config{Options: options, Client: client, Now: time.Now})
	require.NoError(t, err)
	return platform
}

// platform makes the adapter with the suite's options, and its platform at the address; change may change the options.
func (s Suite) platform(t testing.TB, address string, change func(map[string]string)) platforms.Platform {
	t.Helper()
	options := maps.Clone(s.Options)
	if options == nil {
		options = map[string]string{}
	}
	options["api_base"] = address
	for _, o := range s.Driver.Describe().Options {
		if o.Kind == option.Address {
			options[o.Name] = address
		}
	}
	if change != nil {
		change(options)
	}
	return New(t, s.Driver, options)
}

// unreachable is an address at which nothing listens.
const unreachable = "http://127.0.0.1:1"

// served makes the adapter for a platform that answers with serve.
func (s Suite) served(t testing.TB, serve http.HandlerFunc) platforms.Platform {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	return s.platform(t, server.URL+"/some/base", nil)
}

// answered makes the adapter for a platform whose answer is set before each call. Setting it also forgets the requests of wire.
func (s Suite) answered(t testing.TB, wire *traffic) (p platforms.Platform, answer func(status int, body string)) {
	t.Helper()
	var current atomic.Value
	p = s.served(t, wire.recording(func(w http.ResponseWriter, r *http.Request) { current.Load().(http.HandlerFunc)(w, r) }))
	return p, func(status int, body string) {
		current.Store(answering(status, body))
		wire.mu.Lock()
		defer wire.mu.Unlock()
		wire.requests = nil
	}
}

// channel is a sample's channel, with credentials of its own.
func (s Suite) channel(of platforms.Type) *platforms.Channel {
	sample := s.Channels[of]
	return &platforms.Channel{Type: of, ExternalID: sample.ExternalID, Credentials: maps.Clone(sample.Credentials)}
}

// types are the channel types in the order of the description.
func (s Suite) types() (all []platforms.Type) {
	for _, t := range s.Driver.Describe().Channels {
		all = append(all, t.Type)
	}
	return all
}

// The description is complete, always the same, and true of the platform.
func (s Suite) description(t testing.TB) {
	t.Helper()
	d := s.Driver.Describe()
	require.NotNil(t, d)
	require.NoError(t, d.Check())
	require.Equal(t, withoutChecks(d), withoutChecks(s.Driver.Describe()), "the description is always the same")
	require.Len(t, s.Channels, len(d.Channels), "the suite has a sample for each channel type")
	for _, channel := range s.types() {
		require.Contains(t, s.Channels, channel)
	}
	require.NoError(t, d.CheckPlatform(s.platform(t, unreachable, nil)))
	require.NoError(t, d.CheckPlatform(New(t, s.Driver, map[string]string{})), "New succeeds without a block in the configuration")
}

// withoutChecks is a copy of a description without its functions, which can't be compared.
func withoutChecks(d *platforms.Description) platforms.Description {
	plain := *d
	plain.Options = slices.Clone(d.Options)
	for i := range plain.Options {
		plain.Options[i].Check = nil
	}
	plain.Channels = slices.Clone(d.Channels)
	for i := range plain.Channels {
		plain.Channels[i].Credentials = slices.Clone(plain.Channels[i].Credentials)
		for k := range plain.Channels[i].Credentials {
			plain.Channels[i].Credentials[k].Check = nil
		}
	}
	return plain
}

// Every field of the credentials that isn't optional is needed, and all are judged without being quoted.
func (s Suite) credentials(t testing.TB) {
	t.Helper()
	for _, channel := range s.Driver.Describe().Channels {
		good := s.Channels[channel.Type].Credentials
		require.NoError(t, channel.CheckCredentials(good), "the sample of %s", channel.Type)
		for _, field := range channel.Credentials {
			for name, value := range map[string]string{
				"missing": "", "blank": " ", "with a line break": "marker\r\nX: y", "too long": strings.Repeat("marker", platforms.MaxCredential),
			} {
				if field.Optional && value == "" {
					continue
				}
				bad := maps.Clone(good)
				bad[field.Name] = value
				if field.With != "" {
					bad[field.With] = "1"
				}
				err := channel.CheckCredentials(bad)
				var fault *platforms.FieldError
				require.ErrorAs(t, err, &fault, "%s %s", field.Name, name)
				require.Equal(t, field.Name, fault.Field)
				require.NotContains(t, err.Error(), "marker", "the value is not quoted")
			}
		}
	}
}

// The samples of the options are good, and no value makes a judgement panic.
func (s Suite) options(t testing.TB) {
	t.Helper()
	names := []string{"header", "api_base"}
	for _, o := range s.Driver.Describe().Options {
		for _, key := range o.Keys {
			names = append(names, o.Name+"["+key+"]")
		}
		names = append(names, o.Name)
		value, given := s.Options[o.Name]
		if o.Required {
			require.True(t, given || o.Kind == option.Address, "option %s is required, and the suite has no value", o.Name)
		}
		if o.Check == nil {
			continue
		}
		if given {
			require.Empty(t, o.Check(value), "option %s", o.Name)
		}
		for _, odd := range []string{" ", "\x00", "\xff", "-1", strings.Repeat("x", 1<<16)} {
			_ = o.Check(odd)
		}
	}
	for name := range s.Options {
		require.Contains(t, names, name, "the suite's option is none of the platform's")
	}
	if checker, ok := s.Driver.(option.Checker); ok {
		require.Empty(t, checker.CheckOptions(maps.Clone(s.Options)))
		require.NotPanics(t, func() { checker.CheckOptions(map[string]string{}) })
	}
}

// A handshake is answered for the configured secret only.
func (s Suite) handshake(t testing.TB) {
	t.Helper()
	handshaker, ok := s.platform(t, unreachable, nil).(platforms.Handshaker)
	if !ok {
		return
	}
	answer, err := handshaker.Handshake(s.Handshake)
	require.NoError(t, err)
	require.Equal(t, s.HandshakeAnswer, answer)
	_, err = handshaker.Handshake(url.Values{})
	require.Error(t, err)
	unconfigured, _ := New(t, s.Driver, map[string]string{}).(platforms.Handshaker)
	_, err = unconfigured.Handshake(s.Handshake)
	require.Error(t, err, "without a configured secret every handshake fails")
	other, _ := s.platform(t, unreachable, s.otherSecrets).(platforms.Handshaker)
	_, err = other.Handshake(s.Handshake)
	require.Error(t, err, "another secret proves nothing")
}

const otherSecret = "another-secret-0123456789"

// otherSecrets replaces the secrets of the options.
func (s Suite) otherSecrets(options map[string]string) {
	for _, o := range s.Driver.Describe().Options {
		if o.Kind == option.Secret {
			options[o.Name] = otherSecret
		}
	}
}
