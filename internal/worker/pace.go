package worker

import (
	"context"
	"errors"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

// maxPaced bounds the tries to send a message in time while its lease is kept: one waits for the customer, one for the channel, and
// either may be held meanwhile.
const maxPaced = 4

// pace sets how fast the lease may send, by the channel's platform.
func (p *pass) pace() {
	p.lease.Paces = inbox.Paces{}
	if p.work.Channel.ID == "" { // deleted
		return
	}
	if kind, _ := p.Platforms.Find(p.work.Channel.Type); kind.ChannelType != nil {
		p.lease.Paces = inbox.Paces{Channel: inbox.Pace(kind.Pace), Customer: inbox.Pace(kind.CustomerPace)}
	}
}

// tooEarly keeps the refusal of a part for which it is too early, for [pass.paced]. It reports false for other errors.
func (p *pass) tooEarly(err error) bool {
	early, is := errors.AsType[*inbox.PacedError](err)
	if is {
		p.early = early
	}
	return is
}

// paced waits until the part that was too early is in time, if that is soon; else it returns for how long to give the conversation back.
func (p *pass) paced(ctx context.Context) (wait time.Duration) {
	early := p.early
	p.early = nil
	switch {
	case early == nil:
		return 0
	case early.Wait > inbox.PatientFor:
		return early.Wait
	}
	p.lease.Paces.Slot = early.Slot
	_ = repeat.Pause(ctx, early.Wait)
	return 0
}

// sending marks a part as sending, or keeps for how long it is too early.
func (p *pass) sending(ctx context.Context, row *inbox.Outbound) error {
	bounded, cancel := storing(ctx)
	defer cancel()
	err := p.Turns.Sending(bounded, p.lease, row.ID)
	p.lease.Paces.Slot = 0
	if p.tooEarly(err) {
		return nil
	}
	return err
}
