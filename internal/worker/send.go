package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// endedSent is how a try to send ends well, for [Observer.Sent].
const endedSent = "sent"

// endedRefreshed is how a refresh ends well, for [Observer.Refreshed].
const endedRefreshed = "refreshed"

// send sends rows in order. A wait above 0 is the pause before another try; unsent rows stay pending. With last there is nothing to
// do after them, and the lease ends with the commit of the last one.
func (p *pass) send(ctx context.Context, rows []inbox.Outbound, last bool) (wait time.Duration, err error) {
	if len(rows) > 0 {
		p.makeReady(ctx)
	}
	for i := range rows {
		row := &rows[i]
		ready, wait, err := p.mark(ctx, row)
		switch {
		case err != nil:
			return 0, err
		case wait > 0 && !p.outdated(row):
			p.postponed = true
			return wait, nil
		case wait > 0:
			if err := p.failRest(ctx, row, codes.SendFailed); err != nil {
				return 0, err
			}
			continue
		case !ready:
			continue
		}
		id, failure := p.deliver(ctx, row)
		switch {
		case failure != nil:
			wait, err = p.failedToSend(ctx, row, failure)
		case last && i == len(rows)-1:
			err = p.sentLast(ctx, row, id)
		default:
			err = p.sent(ctx, row, id, p.next(ctx, rows[i+1:]))
		}
		if wait > 0 || err != nil {
			return wait, err
		}
		if failure == nil && row.Part == 0 && row.Since > 0 {
			p.Observer.Answered(p.work.Channel.Type, p.waited(row.Since))
		}
	}
	return 0, nil
}

// mark commits that the row is being sent. It reports false for a row that must not be sent: a person has taken the conversation, an
// earlier part failed and took this one with it, or its text doesn't open. A wait above 0 is the pause until the platform's pace lets it be
// sent. After an unconfirmed commit the row is pending again: its platform was not called.
func (p *pass) mark(ctx context.Context, row *inbox.Outbound) (ready bool, wait time.Duration, err error) {
	if row.State == inbox.OutboundSending {
		return true, 0, nil
	}
	if code := p.unsendable(row); code != "" {
		return false, 0, p.failRest(ctx, row, code)
	}
	for range maxPaced {
		if early := p.early; early != nil { // it waits with the lease if that is short
			p.early = nil
			if early.Wait > inbox.PatientFor {
				return false, early.Wait, nil
			}
			p.lease.Paces.Slot = early.Slot
			_ = repeat.Pause(ctx, early.Wait)
		}
		if row.Author == inbox.AuthorAssistant {
			if err := p.lookForPeople(ctx); err != nil {
				return false, 0, err
			}
		}
		if ctx.Err() != nil {
			return false, 0, context.Cause(ctx)
		}
		bounded, cancel := storing(ctx)
		err := p.Queue.Sending(bounded, p.lease, row.ID)
		cancel()
		p.lease.Paces.Slot = 0
		switch {
		case p.tooEarly(err):
		case over(err):
			return false, 0, nil
		case err != nil:
			if unconfirmed(err) {
				p.unmark(ctx, "")
			}
			return false, 0, fmt.Errorf("marking a message as sending: %w", err)
		default:
			row.State = inbox.OutboundSending
			return true, 0, nil
		}
	}
	wait, p.early = p.early.Wait, nil
	return false, wait, nil
}

// over reports whether a turn or a message has ended since, so that there is nothing left to do for it.
func over(err error) bool {
	return errors.Is(err, inbox.ErrHandedOver) || errors.Is(err, inbox.ErrEnded)
}

// next is the row to mark as sending together with the end of the row before it, or nil: it saves a commit for each part of a long answer.
func (p *pass) next(ctx context.Context, rest []inbox.Outbound) *inbox.Outbound {
	if len(rest) == 0 || rest[0].State != inbox.OutboundPending || ctx.Err() != nil || p.looksFirst() {
		return nil
	}
	return &rest[0]
}

// deliver calls the platform, and once more when a newer token may help.
func (p *pass) deliver(ctx context.Context, row *inbox.Outbound) (id string, failure *platforms.Error) {
	ctx, span := p.startSpan(ctx, "send", trace.WithSpanKind(trace.SpanKindProducer))
	if failure = p.refusal(row.Author, row.Template != nil); failure == nil {
		failure = p.tooMany(ctx)
	}
	if failure == nil {
		id, failure = p.callPlatform(ctx, row)
		if failure != nil && failure.Class == platforms.NeedsReauth {
			switch renewed, temporary := p.renewed(ctx, failure.Refreshable); {
			case renewed:
				id, failure = p.callPlatform(ctx, row)
			case temporary != nil: // the token was refused, so the message was not taken
				failure = temporary
			}
		}
	}
	outcome := endedSent
	if failure != nil {
		outcome = string(failure.Class)
		p.Logger.WarnContext(ctx, "a message was not sent", "message", row.ID, "channel", p.work.Channel.ID, "error", failure)
	}
	p.Observer.Sent(p.work.Channel.Type, outcome)
	endSend(span, outcome)
	return id, failure
}

// refusal is why the platform need not be called for a message of the author, or nil. A template may be sent after the window.
func (p *pass) refusal(author string, template bool) *platforms.Error {
	channel, kind := &p.work.Channel, p.channelType()
	if channel.ID == "" {
		return refused(platforms.Refused, "the channel was deleted")
	}
	if class := p.windowOver(author); class != "" && !template {
		return refused(class, "the customer's last message is too long ago")
	}
	switch {
	case channel.State == store.ChannelNeedsReauth, channel.Credentials == nil && kind != messaging.Widget:
		return refused(platforms.NeedsReauth, "the channel has no credentials that its platform accepts")
	case p.credentials == nil:
		return refused(platforms.Retry, "the channel's credentials can't be opened")
	}
	return nil
}

// tooMany is why the platform need not be called for one more message until the customer writes again. It returns nil if the platform
// accepts any number in a row, or has not taken as many. Without the store it is nil, too: the platform refuses by itself.
func (p *pass) tooMany(ctx context.Context) *platforms.Error {
	kind := p.kind()
	if kind.Unanswered == 0 {
		return nil
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	switch sent, err := p.Queue.Unanswered(ctx, p.lease); {
	case err != nil:
		p.Logger.WarnContext(ctx, "counting unanswered messages failed", "channel", p.work.Channel.ID, "error", err)
		return nil
	case sent < kind.Unanswered:
		return nil
	}
	return refused(kind.WindowClass(), "the platform takes no more messages until the customer writes")
}

func refused(class platforms.Class, cause string) *platforms.Error {
	return platforms.Fail(class, errors.New(cause))
}

func (p *pass) channelType() platforms.Type { return platforms.Type(p.work.Channel.Type) }

// kind describes the type of the channel. The description is empty if the channel was deleted.
func (p *pass) kind() messaging.ChannelType {
	if p.work.Channel.ID != "" {
		if kind, known := p.Platforms.Find(p.work.Channel.Type); known {
			return kind
		}
	}
	return messaging.ChannelType{ChannelType: &platforms.ChannelType{}}
}

// windowOver returns the class of failure of a message after the platform's service window for its author, by our own record. It is empty
// while the window is open.
func (p *pass) windowOver(author string) platforms.Class {
	window := p.window(author)
	if window == 0 || p.silence() <= window {
		return ""
	}
	return p.kind().WindowClass()
}

// window is for how long after the customer's last message the platform accepts messages of the author. 0 means at any time.
func (p *pass) window(author string) time.Duration {
	kind := p.kind()
	switch {
	case kind.Window == 0:
		return 0
	case author == inbox.AuthorHuman:
		return kind.PersonalWindow()
	}
	return kind.Window
}

// silence is how long ago the customer wrote last, 0 if that is unknown.
func (p *pass) silence() time.Duration {
	last := p.work.Conversation.LastCustomerAt
	if last == 0 {
		return 0
	}
	return p.Now().Sub(time.UnixMilli(last))
}

// callPlatform sends once. An error that isn't the platform's leaves everything open. The widget has no platform: its visitor fetches the
// stored messages.
func (p *pass) callPlatform(ctx context.Context, row *inbox.Outbound) (id string, failure *platforms.Error) {
	if p.channelType() == messaging.Widget {
		return row.ID, nil
	}
	var template *platforms.FilledTemplate // nil for a text
	if row.Template != nil {
		if err := json.Unmarshal(row.Template, &template); err != nil {
			return "", platforms.Fail(platforms.Refused, fmt.Errorf("reading a stored template: %w", err))
		}
	}
	kind := p.kind()
	failpoint.Hit(failpoint.BeforeSend)
	out := platforms.Outgoing{
		Type: p.channelType(), ExternalID: p.work.Channel.ExternalID, Conversation: p.lease.CustomerRef,
		Address: p.work.Conversation.Address, Text: row.Text, Template: template, Credentials: p.credentials,
		Mark: row.Mark(), Late: kind.PersonWindow > 0 && p.silence() > kind.Window,
	}
	var err error
	if row.FileID == "" {
		id, err = p.Platforms.Send(ctx, out)
	} else {
		id, err = p.sendFile(ctx, row, &out)
	}
	if err == nil {
		failpoint.Hit(failpoint.AfterSend)
		return id, nil
	}
	failure, ok := errors.AsType[*platforms.Error](err)
	if !ok {
		failure = &platforms.Error{Class: platforms.Unknown, Cause: err}
	}
	return "", failure
}

// sent stores the platform's id of a message, and marks the next one.
func (p *pass) sent(ctx context.Context, row *inbox.Outbound, id string, next *inbox.Outbound) error {
	nextID := ""
	if next != nil {
		nextID = next.ID
	}
	err := insist(ctx, func(ctx context.Context) error { return p.Queue.Sent(ctx, p.lease, row.ID, id, nextID) })
	switch {
	case p.tooEarly(err), over(err): // the row is stored as sent; the next one is not ours any more
		return nil
	case err != nil:
		if next != nil && unconfirmed(err) {
			p.unmark(ctx, row.ID)
		}
		return fmt.Errorf("storing that a message was sent: %w", err)
	}
	if next != nil {
		next.State = inbox.OutboundSending
	}
	return nil
}

// sentLast stores the platform's id of the last message, and gives the lease back.
func (p *pass) sentLast(ctx context.Context, row *inbox.Outbound, id string) error {
	if p.ending != nil {
		p.ending()
	}
	err := insist(ctx, func(ctx context.Context) error { return p.Queue.SentAndRelease(ctx, p.lease, row.ID, id) })
	p.released = err == nil
	if over(err) {
		return nil
	}
	return store.Wrap("storing that the last message was sent", err)
}

// failedToSend stores what became of a message that its platform has not taken, or perhaps has. wait > 0: it stays pending and may be tried
// again after that.
func (p *pass) failedToSend(ctx context.Context, row *inbox.Outbound, failure *platforms.Error) (wait time.Duration, err error) {
	switch failure.Class {
	case platforms.Unknown:
		return 0, p.unclear(ctx, row)
	case platforms.Retry:
		return p.later(ctx, row, failure)
	case platforms.NeedsReauth:
		renewed, err := p.needsReauth(ctx)
		switch {
		case err != nil:
			return 0, err
		case renewed:
			return p.later(ctx, row, &platforms.Error{Class: platforms.Retry})
		}
		return p.untilReconnected(ctx, row)
	case platforms.WindowExpired, platforms.TemplateRequired, platforms.TemplatePaused, platforms.TemplateRefused:
		return 0, p.failRest(ctx, row, messaging.FailureCode(failure.Class))
	case platforms.CustomerBlocked:
		closes := inbox.SendFailure{RestOfTurn: true, CloseConversation: true}
		return 0, p.sendFailed(ctx, row, inbox.OutboundFailed, codes.CustomerBlocked, closes)
	case platforms.Refused:
	}
	return 0, p.failRest(ctx, row, codes.SendRefused)
}

// later keeps a message pending for another try, or lets it fail when it is useless by that time. A pause that the platform demands also
// holds for its other messages.
func (p *pass) later(ctx context.Context, row *inbox.Outbound, failure *platforms.Error) (wait time.Duration, err error) {
	if p.outdated(row) || failure.MostTries > 0 && row.Attempts+1 >= failure.MostTries {
		return 0, p.failRest(ctx, row, codes.SendFailed)
	}
	o := inbox.SendFailure{Uncounted: failure.Closed, HoldChannel: failure.RetryAfter}
	if failure.OneCustomer {
		o.HoldChannel, o.HoldCustomer = 0, failure.RetryAfter
	}
	p.postponed = failure.Closed
	return max(backoff(row.Attempts, 0), failure.RetryAfter), p.sendFailed(ctx, row, inbox.OutboundPending, "", o)
}

// outdated reports whether a message has waited until it is useless.
func (p *pass) outdated(row *inbox.Outbound) bool {
	return p.waited(row.CreatedAt) >= codes.Life
}

// failRest ends a message with a code, and with it the rest of its answer.
func (p *pass) failRest(ctx context.Context, row *inbox.Outbound, code string) error {
	return p.sendFailed(ctx, row, inbox.OutboundFailed, code, inbox.SendFailure{RestOfTurn: true})
}

// untilReconnected keeps a message pending until its channel is connected again, as long as its platform would still accept it. The resume
// loop ends the wait.
func (p *pass) untilReconnected(ctx context.Context, row *inbox.Outbound) (wait time.Duration, err error) {
	wait = codes.Life - p.waited(row.CreatedAt)
	if wait <= 0 {
		return 0, p.failRest(ctx, row, codes.NeedsReauth)
	}
	if window := p.window(row.Author); window > 0 && row.Template == nil {
		wait = min(wait, max(0, window-p.silence()))
	}
	p.postponed = true
	return wait + time.Second, p.sendFailed(ctx, row, inbox.OutboundPending, codes.NeedsReauth, inbox.SendFailure{Uncounted: true})
}

// unclear stores that the delivery is unknown. The message is never sent again by itself.
func (p *pass) unclear(ctx context.Context, row *inbox.Outbound) error {
	return p.sendFailed(ctx, row, inbox.OutboundDeliveryUnknown, codes.DeliveryUnknown, inbox.SendFailure{})
}

func (p *pass) sendFailed(ctx context.Context, row *inbox.Outbound, state, code string, o inbox.SendFailure) error {
	err := insist(ctx, func(ctx context.Context) error {
		return p.Queue.SendFailed(ctx, p.lease, row.ID, state, code, o)
	})
	if over(err) {
		return nil
	}
	return store.Wrap("storing that a message was not sent", err)
}

const (
	// recordTime, recordTries and recordPause: what happened outside is known only here, and a fault of the store that passes shouldn't
	// make a delivery unknown or lose a token. A lease lasts about as long without the store.
	recordTime  = time.Minute
	recordTries = 3
	recordPause = 500 * time.Millisecond
)

// insist writes down what happened outside, again after a fault of the store: three times at least, and for a minute until ctx ends.
func insist(ctx context.Context, write func(ctx context.Context) error) error {
	until := time.Now().Add(recordTime)
	for try := 1; ; try++ {
		bounded, cancel := storing(ctx)
		err := write(bounded)
		cancel()
		if !unconfirmed(err) || try >= recordTries && (ctx.Err() != nil || time.Now().After(until)) {
			return err
		}
		_ = repeat.Pause(context.WithoutCancel(ctx), repeat.Around(recordPause))
	}
}

// maxPaced bounds the tries to send a message in time while its lease is kept: one waits for the customer, one for the channel, and either
// may be held during the wait.
const maxPaced = 4

// tooEarly keeps the refusal of a part for which it is too early, for [pass.mark]. It reports false for other errors.
func (p *pass) tooEarly(err error) bool {
	early, is := errors.AsType[*inbox.PacedError](err)
	if is {
		p.early = early
	}
	return is
}

// filesAtOnce is how many files a worker has in memory at a time.
const filesAtOnce = 4

// sendFile sends a file. What fails before the platform is called is tried again, unless the file can never be read.
func (p *pass) sendFile(ctx context.Context, row *inbox.Outbound, out *platforms.Outgoing) (id string, err error) {
	select {
	case p.files <- struct{}{}:
	case <-ctx.Done():
		return "", platforms.RetryLater(0, context.Cause(ctx))
	}
	defer func() { <-p.files }()
	bounded, cancel := storing(ctx)
	file, err := media.ToSend(bounded, p.DB, p.Ring, p.lease.OrgID, row.FileID)
	cancel()
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "", platforms.Fail(platforms.Refused, fmt.Errorf("reading a file to send: %w", err))
	case err != nil:
		return "", platforms.RetryLater(0, fmt.Errorf("reading a file to send: %w", err))
	}
	return p.Platforms.SendFile(ctx, *out, file)
}
