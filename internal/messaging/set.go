package messaging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// callTimeout bounds a call of an adapter, which may make two requests.
const callTimeout = 2 * platforms.DefaultTimeout

var errTooSlow = errors.New("the adapter of the platform did not return in time")

// errPanicked is the cause of a failure for which an adapter panicked. The panic is in the log.
var errPanicked = errors.New("the adapter of the platform panicked")

// Config is what a [Set] is made of.
type Config struct {
	Drivers []platforms.Driver
	// Options are those of the configured platforms, by name, with references resolved.
	Options map[string]map[string]string
	// Client makes the calls; nil is one of the set's own, which [Set.Close] closes.
	Client *platforms.Client
	Now    func() time.Time // nil is time.Now
	Logger *slog.Logger     // nil discards
}

// Set is the platforms of one configuration. Its methods may be called concurrently.
type Set struct {
	*Catalog

	byName map[string]*Platform
	client *platforms.Client
}

// New makes the platforms. The error names every platform that can't be made.
func New(config Config) (*Set, error) {
	if config.Client == nil {
		config.Client = platforms.NewClient(platforms.ClientConfig{})
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	catalog, err := NewCatalog(config.Drivers)
	s := &Set{Catalog: catalog, byName: map[string]*Platform{}, client: config.Client}
	faults := []error{err}
	for i, driver := range config.Drivers {
		p := &Platform{Description: catalog.platforms[i], log: config.Logger}
		options := config.Options[p.Name]
		if options == nil {
			options = map[string]string{}
		}
		faults = append(faults, p.open(driver, &platforms.Config{
			Options: options, Client: config.Client, Now: config.Now, Logger: config.Logger,
		}))
		s.byName[p.Name] = p
	}
	return s, errors.Join(faults...)
}

// Close closes idle connections.
func (s *Set) Close() { s.client.Close() }

// Platform returns the platform of a name, nil if the build has none.
func (s *Set) Platform(name string) *Platform { return s.byName[name] }

// of returns the platform of a channel type, nil if it has none.
func (s *Set) of(t platforms.Type) *Platform {
	if found := s.byType[t].Platform; found != nil {
		return s.byName[found.Name]
	}
	return nil
}

// Refreshable reports whether channels of the type have a refresh token.
func (s *Set) Refreshable(t platforms.Type) bool {
	p := s.of(t)
	return p != nil && p.refresher != nil
}

// Send sends one message and returns the platform's id of it. The error is a [*platforms.Error].
func (s *Set) Send(ctx context.Context, out platforms.Outgoing) (messageID string, err error) {
	p := s.of(out.Type)
	switch {
	case p == nil:
		return "", platforms.Refusef("channels of type %q have no platform to send to", string(out.Type))
	case strings.TrimSpace(out.Text) == "":
		return "", platforms.Refusef("the message is empty")
	case out.Address == "" || len(out.Address) > platforms.MaxID:
		return "", platforms.Refusef("the customer's address is empty or too long")
	}
	err = p.call(ctx, func(ctx context.Context) (err error) {
		messageID, err = p.adapter.Send(ctx, &out)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case messageID == "" || !storable(messageID, platforms.MaxID):
		return "", platforms.Fail(platforms.Unknown, errors.New("the platform took the message and gave it no usable id"))
	}
	return messageID, nil
}

// Identify asks the platform which account the credentials belong to and returns its external ids. The error is a
// [*platforms.Error].
func (s *Set) Identify(ctx context.Context, channel *platforms.Channel) (externalIDs []string, err error) {
	p := s.of(channel.Type)
	if p == nil {
		return nil, platforms.Refusef("channels of type %q have no platform to ask", string(channel.Type))
	}
	err = p.call(ctx, func(ctx context.Context) (err error) {
		externalIDs, err = p.adapter.Identify(ctx, channel)
		return err
	})
	if err != nil {
		return nil, err
	}
	return externalIDs, nil
}

// Refresh exchanges a channel's refresh token as [platforms.Refresher] describes it. The error is a [*platforms.Error].
func (s *Set) Refresh(ctx context.Context, channel *platforms.Channel) (next platforms.Credentials, err error) {
	if !s.Refreshable(channel.Type) {
		return nil, platforms.Refusef("channels of type %q have no refresh token", string(channel.Type))
	}
	p := s.of(channel.Type)
	err = p.call(ctx, func(ctx context.Context) (err error) {
		next, err = p.refresher.Refresh(ctx, channel)
		return err
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

// Platform is one platform at work.
type Platform struct {
	*platforms.Description

	adapter    platforms.Platform
	signed     platforms.SignedDeliveries
	secrets    platforms.ChannelSecrets
	handshaker platforms.Handshaker
	refresher  platforms.Refresher
	log        *slog.Logger
}

// open makes the adapter and checks that it can do what its description says.
func (p *Platform) open(driver platforms.Driver, config *platforms.Config) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("platform %s: %w", p.Name, err)
		}
	}()
	defer p.contain(&err)
	if p.adapter, err = driver.New(config); err != nil {
		return err //nolint:wrapcheck // the deferred function says what was being done
	}
	p.signed, _ = p.adapter.(platforms.SignedDeliveries)
	p.secrets, _ = p.adapter.(platforms.ChannelSecrets)
	p.handshaker, _ = p.adapter.(platforms.Handshaker)
	p.refresher, _ = p.adapter.(platforms.Refresher)
	switch {
	case p.ChannelWebhooks && p.secrets == nil:
		return errors.New("it has a webhook for each channel and no VerifyChannel")
	case !p.ChannelWebhooks && p.signed == nil:
		return errors.New("it has one webhook and no Verify")
	case (p.Handshake != nil) != (p.handshaker != nil):
		return errors.New("it describes a handshake and has none, or has one and doesn't describe it")
	}
	return nil
}

// contain turns a panic of the adapter into an error. Its value is not logged: it may quote a secret.
func (p *Platform) contain(err *error) {
	if value := recover(); value != nil {
		p.log.Error("the adapter of a platform panicked", "platform", p.Name, "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

// call calls the adapter under our deadline. Its error is a [*platforms.Error]; after a panic the outcome is unknown.
func (p *Platform) call(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errTooSlow)
	defer cancel()
	err := func() (err error) {
		defer p.contain(&err)
		return do(ctx)
	}()
	if err == nil {
		return nil
	}
	if failure, ok := errors.AsType[*platforms.Error](err); ok && failure != nil {
		return failure
	}
	return platforms.Fail(platforms.Unknown, err)
}

// Verify returns an error unless the platform signed the delivery. [IsPanic] reports whether it is a fault of the adapter.
func (p *Platform) Verify(delivery *platforms.Delivery) (err error) {
	defer p.contain(&err)
	return p.signed.Verify(delivery) //nolint:wrapcheck // the caller only asks whether
}

// VerifyChannel returns an error unless the headers of a delivery prove the platform to the channel.
func (p *Platform) VerifyChannel(header http.Header, credentials platforms.Credentials) (err error) {
	defer p.contain(&err)
	return p.secrets.VerifyChannel(header, credentials) //nolint:wrapcheck // the caller only asks whether
}

// Answer returns the body of the answer to a handshake.
func (p *Platform) Answer(query url.Values) (body string, err error) {
	defer p.contain(&err)
	return p.handshaker.Handshake(query) //nolint:wrapcheck // the caller only asks whether
}

// IsPanic reports whether err is a fault of an adapter, and says nothing about the request.
func IsPanic(err error) bool { return errors.Is(err, errPanicked) }

// Extract returns what a verified delivery contains, without items that the contract forbids: of another platform's types,
// with ids or texts that can't be stored.
func (p *Platform) Extract(body []byte) (items []platforms.Inbound, err error) {
	defer p.contain(&err)
	if items, err = p.adapter.Extract(body); err != nil {
		return nil, err //nolint:wrapcheck // it is ErrMalformed
	}
	kept := items[:0]
	for i := range items {
		if p.sound(&items[i]) {
			kept = append(kept, items[i])
		} else {
			p.log.Error("the adapter of a platform extracted an item that breaks its contract", "platform", p.Name)
		}
	}
	return kept, nil
}

// maxMessageID is larger than one id: the ids of some platforms are unique only with that of the conversation.
const maxMessageID = 2*platforms.MaxID + 1

func (p *Platform) sound(in *platforms.Inbound) bool {
	for i := range p.Channels {
		if p.Channels[i].Type == in.Type {
			return (in.ExternalID == "") == p.ChannelWebhooks &&
				storable(in.ExternalID, platforms.MaxID) && storable(in.Conversation, platforms.MaxID) && storable(in.Address, platforms.MaxID) &&
				storable(in.MessageID, maxMessageID) && storable(in.CustomerName, platforms.MaxName) && storable(in.Text, platforms.MaxText)
		}
	}
	return false
}

// storable reports whether a text is valid UTF-8 without NUL and within the limit.
func storable(text string, limit int) bool {
	return len(text) <= limit && strings.IndexByte(text, 0) < 0 && utf8.ValidString(text)
}
