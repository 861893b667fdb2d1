package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/hours"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// belongsWithin is how long before or after a text, by the platform's clock, the rest of an album arrives after its caption, which is
	// the text. Nobody writes a text and chooses a picture in that time.
	belongsWithin = 3 * time.Second
	// mostWordless bounds the messages without text that get a notice. More become a turn as texts do: a text may be among them that is too
	// old to be read with them.
	mostWordless = 100
)

// isText reports whether a message says something that a model or a search can use.
func isText(m inbox.Message) bool { return m.Kind != inbox.KindEvent }

// answerWordless replies to messages without text with the channel's notice, or leaves them to people. No model is called. In draft mode
// nothing is sent by itself.
func (p *pass) answerWordless(ctx context.Context) (wait time.Duration, err error) {
	if code := p.obstacle(); code != "" {
		return 0, p.stand(ctx, nil, inbox.Standing{Code: code})
	}
	var parts []string
	if !p.belongToTexts() {
		rules := &p.work.Channel.Answers
		if rules.MediaNotice == "" || rules.Drafts {
			return 0, p.stand(ctx, nil, inbox.Standing{Code: codes.Media})
		}
		parts = platforms.Split(p.kind().Limit, rules.MediaNotice)
	}
	bounded, cancel := storing(ctx)
	rows, err := p.Queue.SayNotice(bounded, p.lease, p.waitingIDs(), parts)
	cancel()
	if err != nil {
		return 0, fmt.Errorf("answering messages without text: %w", err)
	}
	p.turnEnded(endedNotice)
	return p.send(ctx, rows, false)
}

// belongToTexts reports whether each waiting message belongs to a text of the customer, which has or gets an answer of its own.
func (p *pass) belongToTexts() bool {
	for _, m := range p.work.Waiting {
		if !slices.ContainsFunc(p.work.History, func(earlier inbox.Message) bool {
			apart := time.Duration(m.At-earlier.At) * time.Millisecond
			return earlier.Author == inbox.AuthorCustomer && isText(earlier) && apart.Abs() <= belongsWithin
		}) {
			return false
		}
	}
	return true
}

// longestClosed bounds how long a conversation rests while its business is closed: then it looks whether the hours were changed.
const longestClosed = 15 * time.Minute

// openNow returns whether the channel's business is open, and since when or when it opens next, zero for any time. Hours that can't be
// read, which no version writes, keep no customer from getting an answer.
func (p *pass) openNow() (open bool, change time.Time) {
	rules := &p.work.Channel.Answers
	if rules.OpeningHours == "" {
		return true, time.Time{}
	}
	when, err := hours.Parse(rules.TimeZone, strings.Split(rules.OpeningHours, "\n"))
	if err != nil {
		p.Logger.Error("a channel's opening hours can't be read", "channel", p.work.Channel.ID, "error", err)
		return true, time.Time{}
	}
	return when.At(time.UnixMilli(p.work.ReadAt).Add(time.Since(p.opened)))
}

// opening returns when the business opens, zero while it is open. A turn that was begun is answered, and for a suspended organization
// nothing is sent.
func (p *pass) opening() time.Time {
	if p.work.Turn != nil || p.work.Suspended {
		return time.Time{}
	}
	open, change := p.openNow()
	if open {
		return time.Time{}
	}
	return change
}

// untilOpening lets the texts wait until the business opens, and sends the notice once. No model is called. In draft mode nothing is sent
// by itself.
func (p *pass) untilOpening(ctx context.Context, opening time.Time) (wait time.Duration, err error) {
	var notice []string
	if rules := &p.work.Channel.Answers; !rules.Drafts {
		notice = platforms.Split(p.kind().Limit, rules.ClosedNotice)
	}
	bounded, cancel := storing(ctx)
	rows, err := p.Queue.SayClosed(bounded, p.lease, notice, opening)
	cancel()
	switch {
	case over(err):
		p.turnEnded(endedDiscarded)
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("telling a customer that the business is closed: %w", err)
	}
	if wait, err := p.send(ctx, rows, false); wait > 0 || err != nil {
		return wait, err
	}
	p.postponed = true
	p.turnEnded(endedClosed)
	left := time.Duration(opening.UnixMilli()-p.work.ReadAt)*time.Millisecond - time.Since(p.opened)
	return min(max(left, time.Second), longestClosed+repeat.Jitter(time.Minute)), nil
}

const (
	// signalTime bounds one signal to a customer, and maxSignals how many show them that one answer is being written.
	signalTime = 5 * time.Second
	maxSignals = 12
	// signalRest is the time without signals to customers of a channel after a failed signal, unless the platform demands a longer pause.
	signalRest = time.Minute
	// maxResting bounds the channels that are remembered for that.
	maxResting = 1000
)

// signals show customers that a reply is being written. The zero value is ready.
type signals struct {
	running sync.WaitGroup

	mu      sync.Mutex
	resting map[string]time.Time // until when, by the channel's id
}

// rest lets no signal go to customers of the channel for a while.
func (s *signals) rest(channelID string, now time.Time, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resting == nil || len(s.resting) >= maxResting {
		s.resting = map[string]time.Time{}
	}
	s.resting[channelID] = now.Add(max(pause, signalRest))
}

func (s *signals) rests(channelID string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.resting[channelID])
}

// signal shows the customer that their message was read and that an answer is being written, until stop is called. stop doesn't wait for
// calls that still run. Nothing is shown if the agent's typing is off, if the assistant writes drafts, or if the turn was begun in an
// earlier pass.
func (p *pass) signal(ctx context.Context) (stop func()) {
	channel := &p.work.Channel
	if !p.work.Agent.Typing || channel.Answers.Drafts || len(p.work.Waiting) == 0 || !p.Platforms.Signals(p.channelType()) ||
		p.windowOver(inbox.AuthorAssistant) != "" || p.signals.rests(channel.ID, p.Now()) {
		return func() {}
	}
	credentials, err := p.openCredentials(channel)
	if err != nil || credentials.Expiry() != 0 && !p.Now().Before(time.UnixMilli(credentials.Expiry())) {
		return func() {} // the answer's own send says what is wrong, or renews the token
	}
	signal := platforms.Signal{
		Type: p.channelType(), ExternalID: channel.ExternalID, Conversation: p.lease.CustomerRef,
		Address: p.work.Conversation.Address, MessageID: p.work.Waiting[len(p.work.Waiting)-1].PlatformMessageID, Credentials: credentials,
	}
	ctx, stop = context.WithCancel(ctx)
	w, channelID, lasts := p.Worker, channel.ID, p.kind().TypingFor
	w.signals.running.Go(func() { w.signalUntil(ctx, channelID, signal, lasts) })
	return stop
}

// signalUntil repeats a signal that lasts for a while until ctx ends; a signal that doesn't last is sent once.
func (w *Worker) signalUntil(ctx context.Context, channelID string, signal platforms.Signal, lasts time.Duration) {
	for range maxSignals {
		bounded, cancel := context.WithTimeout(ctx, signalTime)
		err := w.Platforms.Signal(bounded, signal)
		cancel()
		switch {
		case ctx.Err() != nil, err == nil && lasts == 0:
			return
		case err != nil:
			failure, _ := errors.AsType[*platforms.Error](err)
			pause := time.Duration(0)
			if failure != nil {
				pause = failure.RetryAfter
			}
			w.signals.rest(channelID, w.Now(), pause)
			w.Logger.WarnContext(ctx, "a customer isn't shown that an answer is being written", "channel", channelID, "error", err)
			return
		}
		signal.Again = true
		if repeat.Pause(ctx, lasts-lasts/10) != nil {
			return
		}
	}
}
