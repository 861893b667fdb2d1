package widget

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// defaultSpendShare is the part of the wallet, one tenth, that a widget may spend in a day (UTC) unless its
	// organization says otherwise. It is a part because the operator's currency isn't known here.
	defaultSpendShare = 10
	// firstWait limits the wait of a message for the holds of the first answers of a day.
	firstWait = 5 * time.Second
)

// channelAnswers are the answers to new messages of a channel that this process makes.
type channelAnswers struct {
	making int
	// first has room for one: while no answer of the day has ended, the answer before its hold.
	first chan struct{}
}

// answerPlaces are the channelAnswers of all channels that have some. The zero value has none.
type answerPlaces struct {
	mu       sync.Mutex
	channels map[string]*channelAnswers
}

// answerPlace is the place of one answer. The zero value belongs to an answer that is counted elsewhere.
type answerPlace struct {
	// others is how many answers of the channel had a place before. All that had ended by then are in the channel's sum.
	others int64
	first  chan struct{}
	unlock func()
	leave  func()
}

func (p *answerPlaces) join(channelID string) *answerPlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	answers := p.channels[channelID]
	if answers == nil {
		if p.channels == nil {
			p.channels = make(map[string]*channelAnswers)
		}
		answers = &channelAnswers{first: make(chan struct{}, 1)}
		p.channels[channelID] = answers
	}
	place := &answerPlace{others: int64(answers.making), first: answers.first}
	answers.making++
	place.leave = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if answers.making--; answers.making == 0 {
			delete(p.channels, channelID)
		}
	}
	return place
}

// beFirst waits for up to [firstWait] until no other answer of the channel is before its hold.
func (p *answerPlace) beFirst(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	select {
	case p.first <- struct{}{}:
		p.unlock = sync.OnceFunc(func() { <-p.first })
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// held says that the answer's hold, if it has one, is committed.
func (p *answerPlace) held() {
	if p.unlock != nil {
		p.unlock()
	}
}

// end gives the place back when the answer's charge is committed, or there is none.
func (p *answerPlace) end() {
	p.held()
	if p.leave != nil {
		p.leave()
	}
}

// place occupies a place for the answer to a message. A message that was sent before needs none.
func (v *visitRequest) place(ctx context.Context, taskID string) (*answerPlace, error) {
	_, err := v.Inbox.Reply(ctx, v.channel.OrgID, v.channel.ChannelID, taskID)
	switch {
	case err == nil:
		return &answerPlace{}, nil
	case !errors.Is(err, store.ErrNotFound):
		return nil, handlers.Internal(fmt.Errorf("looking for a visitor's message: %w", err))
	}
	return v.answers.join(v.channel.ChannelID), nil
}

// checkSpend refuses a new message when the cost of the day's (UTC) answers has reached the limit. A running answer
// counts as much as the most expensive answer of the day. Until the first answer of the day has ended, each counts as
// much as is held for it, and only one at a time may be before its hold.
func (v *visitRequest) checkSpend(ctx context.Context, place *answerPlace) error {
	if place.leave == nil {
		return nil // the message was checked when it came first
	}
	today := v.Now().UTC().Truncate(24 * time.Hour)
	day, most, err := v.spend(ctx, today)
	if err == nil && day.Calls == 0 && most > 0 {
		if err := place.beFirst(ctx); err != nil {
			return tooManyAnswers(err)
		}
		day, most, err = v.spend(ctx, today)
	}
	switch {
	case err != nil:
		return err
	case day.SpentMicros >= most:
		return &handlers.Error{
			Code: errcode.PlanLimitExceeded, NoRetry: true,
			Message: "This chat has answered as much as it may today. Please come back tomorrow.",
		}
	case day.Calls == 0:
		held, err := v.DB.Widgets.Held(ctx, v.channel.OrgID, v.channel.ChannelID, today)
		if err != nil {
			return handlers.Internal(fmt.Errorf("reading what is held for widget %s: %w", v.channel.ChannelID, err))
		}
		if held >= most {
			return tooManyAnswers(nil)
		}
		return nil
	}
	place.held()
	// This process has a place for an answer before the database has its turn.
	if making := max(day.Asking, place.others); day.SpentMicros+making*day.LargestMicros >= most {
		return tooManyAnswers(nil)
	}
	return nil
}

// spend is the cost of the channel's answers since today began, and its limit.
func (v *visitRequest) spend(ctx context.Context, today time.Time) (day store.ChannelDay, most int64, err error) {
	day, err = v.DB.Widgets.Spend(ctx, v.channel.OrgID, v.channel.ChannelID, today)
	if err != nil {
		return day, 0, handlers.Internal(fmt.Errorf("adding up what widget %s has cost: %w", v.channel.ChannelID, err))
	}
	if v.channel.Settings.DailySpendMicros.Valid {
		return day, v.channel.Settings.DailySpendMicros.Int64, nil
	}
	now, then, err := v.DB.Widgets.WalletSince(ctx, v.channel.OrgID, today)
	if err != nil {
		return day, 0, handlers.Internal(fmt.Errorf("reading the wallet of widget %s: %w", v.channel.ChannelID, err))
	}
	most = max(then, now+day.SpentMicros) / defaultSpendShare
	if day.SpentMicros == 0 { // an empty wallet is for the conversation to show; own provider keys cost nothing
		most = max(most, 1)
	}
	return day, most, nil
}

func tooManyAnswers(cause error) *handlers.Error {
	return endpoint.RateLimited(time.Second, cause, "Too many answers of this chat are being written at once. Retry when one has ended.")
}
