package messaging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// callTimeout bounds a call of an adapter, which may make two requests.
const callTimeout = 2 * platforms.DefaultTimeout

// lateReturn is how long an adapter may take to return after the end of its context.
const lateReturn = 5 * time.Second

var errTooSlow = errors.New("the adapter of the platform did not return in time")

// errNoError is the cause of a failure for which an adapter returned a nil *platforms.Error.
var errNoError = errors.New("the adapter of the platform failed without an error")

// errPanicked is the cause of a failure for which an adapter panicked. The panic is in the log.
var errPanicked = errors.New("the adapter of the platform panicked")

// Config configures a [Set].
type Config struct {
	Drivers []platforms.Driver
	// Options are the options of the configured platforms, by name, with references resolved.
	Options map[string]map[string]string
	// Client makes the calls. Nil means a client of the set's own, which [Set.Close] closes.
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
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	catalog, err := NewCatalog(config.Drivers)
	if err != nil {
		return nil, err
	}
	s := &Set{Catalog: catalog, byName: map[string]*Platform{}, client: config.Client}
	var faults []error
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

// ability returns the platform of a channel type, and its adapter as one of the optional interfaces.
func ability[A any](s *Set, t platforms.Type) (p *Platform, adapter A, has bool) {
	if p = s.of(t); p != nil {
		adapter, has = p.adapter.(A)
	}
	return p, adapter, has
}

// Refreshable reports whether channels of the type have tokens that can be refreshed.
func (s *Set) Refreshable(t platforms.Type) bool {
	_, _, has := ability[platforms.Refresher](s, t)
	return has && s.byType[t].Refreshable()
}

// OwnSigner returns the credentials of a channel of a type with a signing secret for each channel, nil if it has no such secret. They are
// opened only where the type has such secrets. secret is equal for all channels of a platform that the same secret signs for.
func (s *Set) OwnSigner(t platforms.Type, open func() (platforms.Credentials, error)) (credentials platforms.Credentials, secret string, err error) {
	p, kind := s.of(t), s.byType[t]
	if p == nil || p.own == nil || len(kind.SigningFields()) == 0 {
		return nil, "", nil
	}
	if credentials, err = open(); err != nil {
		return nil, "", err
	}
	defer p.contain(&err)
	if !p.own.SignsItself(credentials) {
		return nil, "", nil
	}
	var signing []string
	for _, field := range kind.Credentials {
		if field.Signs {
			signing = append(signing, credentials[field.Name], credentials[field.With])
		}
	}
	return credentials, fmt.Sprintf("%q", signing), nil
}

// Send sends one message and returns the platform's id of it. The error is a [*platforms.Error].
func (s *Set) Send(ctx context.Context, out platforms.Outgoing) (messageID string, err error) {
	p := s.of(out.Type)
	switch {
	case p == nil:
		return "", platforms.Refusef("channels of type %q have no platform to send to", string(out.Type))
	case strings.TrimSpace(out.Text) == "":
		return "", platforms.Refusef("the message is empty")
	case out.Template != nil && !s.HasTemplates(out.Type):
		return "", platforms.Refusef("channels of type %q have no templates", string(out.Type))
	case out.Address == "" || len(out.Address) > platforms.MaxID:
		return "", platforms.Refusef("the customer's address is empty or too long")
	}
	out.Credentials = maps.Clone(out.Credentials)
	return taken(call(ctx, p, func(ctx context.Context) (string, error) { return p.adapter.Send(ctx, &out) }))
}

// SendFile sends a file as [platforms.FileSender] describes it. The error is a [*platforms.Error].
func (s *Set) SendFile(ctx context.Context, out platforms.Outgoing, file platforms.File) (messageID string, err error) {
	p, sender, has := ability[platforms.FileSender](s, out.Type)
	switch {
	case !has || !slices.Contains(s.byType[out.Type].Files, file.Kind):
		return "", platforms.Refusef("channels of type %q take no files of the kind %q", string(out.Type), file.Kind)
	case out.Address == "" || len(out.Address) > platforms.MaxID:
		return "", platforms.Refusef("the customer's address is empty or too long")
	}
	out.Credentials, out.Text = maps.Clone(out.Credentials), ""
	return taken(callWithin(ctx, p, platforms.UploadTime, func(ctx context.Context) (string, error) { return sender.SendFile(ctx, &out, &file) }))
}

// taken checks the platform's id of a message that it has taken.
func taken(messageID string, err error) (string, error) {
	switch {
	case err != nil:
		return "", err
	case messageID == "" || len(messageID) > platforms.MaxID || strings.ContainsRune(messageID, 0) || !utf8.ValidString(messageID):
		return "", platforms.Fail(platforms.Unknown, errors.New("the platform took the message and gave it no usable id"))
	}
	return messageID, nil
}

// HasTemplates reports whether channels of the type have message templates.
func (s *Set) HasTemplates(t platforms.Type) bool {
	_, _, has := ability[platforms.Templater](s, t)
	return has && s.byType[t].WindowClass() == platforms.TemplateRequired
}

// Templates reads a page of a channel's templates as [platforms.Templater] describes it. The error is a [*platforms.Error].
func (s *Set) Templates(ctx context.Context, channel *platforms.Channel, query platforms.TemplateQuery) (page platforms.TemplatePage, err error) {
	if !s.HasTemplates(channel.Type) {
		return page, platforms.Refusef("channels of type %q have no templates", string(channel.Type))
	}
	p, templater, _ := ability[platforms.Templater](s, channel.Type)
	lent := lend(channel)
	page, err = call(ctx, p, func(ctx context.Context) (platforms.TemplatePage, error) {
		return templater.Templates(ctx, lent, query)
	})
	if err != nil {
		return page, err
	}
	if fault := platforms.CheckTemplatePage(&page); fault != nil {
		return platforms.TemplatePage{}, platforms.Fail(platforms.Unknown, fault)
	}
	return page, nil
}

// Signals reports whether the platform can show customers of the type what becomes of their messages, see [platforms.Signaler].
func (s *Set) Signals(t platforms.Type) bool {
	_, _, has := ability[platforms.Signaler](s, t)
	return has
}

// Signal shows a customer something as [platforms.Signaler] describes it. The error is a [*platforms.Error].
func (s *Set) Signal(ctx context.Context, signal platforms.Signal) error {
	p, signaler, has := ability[platforms.Signaler](s, signal.Type)
	if !has {
		return platforms.Refusef("channels of type %q show customers nothing", string(signal.Type))
	}
	signal.Credentials = maps.Clone(signal.Credentials)
	_, err := call(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, signaler.Signal(ctx, &signal) })
	return err
}

// ReadsThreads reports whether channels of the type need a look at newer messages of people before an answer is sent, see
// [platforms.ThreadReader].
func (s *Set) ReadsThreads(t platforms.Type) bool {
	_, _, has := ability[platforms.ThreadReader](s, t)
	return has
}

// ReadThread reads a thread as [platforms.ThreadReader] describes it, and returns nothing of another one. The error is a
// [*platforms.Error].
func (s *Set) ReadThread(ctx context.Context, thread platforms.Thread) ([]platforms.Inbound, error) {
	p, reader, has := ability[platforms.ThreadReader](s, thread.Type)
	if !has {
		return nil, platforms.Refusef("channels of type %q list no messages", string(thread.Type))
	}
	thread.Credentials = maps.Clone(thread.Credentials)
	items, err := call(ctx, p, func(ctx context.Context) ([]platforms.Inbound, error) { return reader.ReadThread(ctx, &thread) })
	return slices.DeleteFunc(p.checked(items), func(in platforms.Inbound) bool {
		return !in.IsEcho() || in.Type != thread.Type || in.ExternalID != thread.ExternalID || in.Conversation != thread.Conversation
	}), err
}

// Identify reads from the platform which account the credentials belong to and returns its external ids. The error is a [*platforms.Error].
func (s *Set) Identify(ctx context.Context, channel *platforms.Channel) (externalIDs []string, err error) {
	p := s.of(channel.Type)
	if p == nil {
		return nil, platforms.Refusef("channels of type %q have no platform to ask", string(channel.Type))
	}
	lent := lend(channel)
	return call(ctx, p, func(ctx context.Context) ([]string, error) { return p.adapter.Identify(ctx, lent) })
}

// Refresh exchanges a channel's refresh token as [platforms.Refresher] describes it. The error is a [*platforms.Error].
func (s *Set) Refresh(ctx context.Context, channel *platforms.Channel) (next platforms.Credentials, err error) {
	if !s.Refreshable(channel.Type) {
		return nil, platforms.Refusef("channels of type %q have no token that can be refreshed", string(channel.Type))
	}
	p, refresher, _ := ability[platforms.Refresher](s, channel.Type)
	lent := lend(channel)
	next, err = call(ctx, p, func(ctx context.Context) (platforms.Credentials, error) { return refresher.Refresh(ctx, lent) })
	if err != nil {
		return nil, err
	}
	if fault := s.byType[channel.Type].CheckCredentials(next); fault != nil {
		return nil, platforms.Fail(platforms.Unknown, fmt.Errorf("the credentials after a refresh are faulty: %w", fault))
	}
	return next, nil
}

// Locate returns where a file of a message on the channel can be fetched now. An address is its own location. The error is a
// [*platforms.Error].
func (s *Set) Locate(ctx context.Context, channel *platforms.Channel, reference string) (where platforms.Location, err error) {
	if platforms.IsAddress(reference) {
		return platforms.Location{Address: reference}, nil
	}
	p, source, has := ability[platforms.MediaSource](s, channel.Type)
	if !has {
		return where, platforms.Refusef("channels of type %q have no files that can be fetched", string(channel.Type))
	}
	lent := lend(channel)
	return call(ctx, p, func(ctx context.Context) (platforms.Location, error) { return source.Locate(ctx, lent, reference) })
}

// Transport carries requests to the addresses that the operator has configured.
func (s *Set) Transport() http.RoundTripper { return s.client.Transport() }

// lend returns a copy of a channel for an adapter, which may keep it beyond the call.
func lend(channel *platforms.Channel) *platforms.Channel {
	lent := *channel
	lent.Credentials = maps.Clone(channel.Credentials)
	return &lent
}

// Platform is one platform at work.
type Platform struct {
	*platforms.Description

	adapter    platforms.Platform
	signed     platforms.SignedDeliveries
	own        platforms.ChannelSigned
	secrets    platforms.ChannelSecrets
	handshaker platforms.Handshaker
	log        *slog.Logger
}

// open makes the adapter and checks that it implements its description.
func (p *Platform) open(driver platforms.Driver, config *platforms.Config) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("platform %s: %w", p.Name, err)
		}
	}()
	defer p.contain(&err)
	if p.adapter, err = driver.New(config); err != nil {
		return err
	}
	p.signed, _ = p.adapter.(platforms.SignedDeliveries)
	p.own, _ = p.adapter.(platforms.ChannelSigned)
	p.secrets, _ = p.adapter.(platforms.ChannelSecrets)
	p.handshaker, _ = p.adapter.(platforms.Handshaker)
	return p.CheckPlatform(p.adapter)
}

// contain turns a panic of the adapter into an error. Its value is not logged: it may quote a secret.
func (p *Platform) contain(err *error) {
	if value := recover(); value != nil {
		p.log.Error("the adapter of a platform panicked", "platform", p.Name, "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

// call makes a call of an adapter under our deadline. An adapter that ignores the end of its context is left behind after
// lateReturn. The error is a [*platforms.Error] within its bounds; after a panic the outcome is unknown.
func call[T any](ctx context.Context, p *Platform, do func(ctx context.Context) (T, error)) (result T, err error) {
	return callWithin(ctx, p, callTimeout, do)
}

// callWithin is call with another deadline.
func callWithin[T any](ctx context.Context, p *Platform, timeout time.Duration, do func(ctx context.Context) (T, error)) (result T, err error) {
	type outcome struct {
		result T
		err    error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTooSlow)
	defer cancel()
	returned := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() { returned <- o }()
		defer p.contain(&o.err)
		o.result, o.err = do(ctx)
	}()
	var o outcome
	select {
	case o = <-returned:
	case <-ctx.Done():
		late := time.NewTimer(lateReturn)
		defer late.Stop()
		select {
		case o = <-returned:
		case <-late.C:
			p.log.Error("the adapter of a platform ignores the end of its call; it is left behind", "platform", p.Name)
			o.err = context.Cause(ctx)
		}
	}
	if o.err != nil {
		var none T
		return none, p.failure(o.err)
	}
	return o.result, nil
}

// failure returns an adapter's error as an error of the contract, with fields within their bounds.
func (p *Platform) failure(err error) *platforms.Error {
	failed, ok := errors.AsType[*platforms.Error](err)
	switch {
	case ok && failed == nil:
		return platforms.Fail(platforms.Unknown, errNoError)
	case !ok:
		return platforms.Fail(platforms.Unknown, err)
	case failed.Class == platforms.Retry && failed.Closed:
		return platforms.ClosedFor(failed.RetryAfter, failed.Cause)
	case failed.Class == platforms.Retry && failed.RetryAfter > 0 && failed.OneCustomer:
		return platforms.TooManyForOne(failed.RetryAfter, failed.Cause)
	case failed.Class == platforms.Retry:
		later := platforms.RetryLater(failed.RetryAfter, failed.Cause)
		later.MostTries = max(failed.MostTries, 0)
		return later
	case failed.Class == platforms.NeedsReauth:
		_, refreshes := p.adapter.(platforms.Refresher)
		return platforms.Unauthorized(failed.Refreshable && refreshes, failed.Cause)
	case !slices.Contains(platforms.Classes(), failed.Class):
		return platforms.Fail(platforms.Unknown, failed.Cause)
	}
	return platforms.Fail(failed.Class, failed.Cause)
}

// Verify returns an error unless the platform signed the delivery. [IsPanic] reports whether it is a fault of the adapter.
func (p *Platform) Verify(delivery *platforms.Delivery) (err error) {
	defer p.contain(&err)
	return p.signed.Verify(delivery)
}

// Named returns the channels that an unverified delivery is about, up to [platforms.MaxNamed]; none if no channel of the platform can sign
// its deliveries itself, or the delivery has no signature in the platform's form.
func (p *Platform) Named(delivery *platforms.Delivery) (named []platforms.Channel) {
	if p.own == nil {
		return nil
	}
	var err error
	defer p.contain(&err)
	named = p.own.Named(delivery)
	return named[:min(len(named), platforms.MaxNamed)]
}

// VerifyOwn returns an error unless the delivery is signed with the secret of the credentials, which sign themselves.
func (p *Platform) VerifyOwn(delivery *platforms.Delivery, credentials platforms.Credentials) (err error) {
	defer p.contain(&err)
	return p.own.VerifyOwn(delivery, credentials)
}

// VerifyChannel returns an error unless the headers of a delivery prove the platform to the channel.
func (p *Platform) VerifyChannel(header http.Header, credentials platforms.Credentials) (err error) {
	defer p.contain(&err)
	return p.secrets.VerifyChannel(header, credentials)
}

// Answer returns the body of the answer to a handshake.
func (p *Platform) Answer(query url.Values) (body string, err error) {
	defer p.contain(&err)
	return p.handshaker.Handshake(query)
}

// IsPanic reports whether err is a fault of an adapter, and says nothing about the request.
func IsPanic(err error) bool { return errors.Is(err, errPanicked) }

// Extract returns the items of a verified delivery, without the items that break the contract. However many do, the log gets one line.
func (p *Platform) Extract(body []byte) (items []platforms.Inbound, err error) {
	defer p.contain(&err)
	if items, err = p.adapter.Extract(body); err != nil {
		return nil, err
	}
	return p.checked(items), nil
}

// checked returns the items that keep the contract.
func (p *Platform) checked(items []platforms.Inbound) []platforms.Inbound {
	var fault error
	kept := items[:0]
	for i := range items {
		if broken := p.CheckInbound(&items[i]); broken != nil {
			fault = broken
			continue
		}
		kept = append(kept, items[i])
	}
	if fault != nil {
		p.log.Error("the adapter of a platform extracted items that break its contract; they are dropped",
			"platform", p.Name, "items", len(items)-len(kept), "last", fault)
	}
	return kept
}
