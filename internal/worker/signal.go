package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/platforms"
)

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
	kind, _ := p.Platforms.Find(channel.Type)
	signal := platforms.Signal{
		Type: p.channelType(), ExternalID: channel.ExternalID, Conversation: p.lease.CustomerRef,
		Address: p.work.Conversation.Address, MessageID: p.work.Waiting[len(p.work.Waiting)-1].PlatformMessageID, Credentials: credentials,
	}
	ctx, stop = context.WithCancel(ctx)
	w, channelID, lasts := p.Worker, channel.ID, kind.TypingFor
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
