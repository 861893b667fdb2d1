package worker

import (
	"context"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
)

// propose stores the model's answer as a draft, which a person sends.
func (p *pass) propose(ctx context.Context, turn *inbox.Turn, text string) error {
	parts := p.split(text)
	err := insist(ctx, func(ctx context.Context) error { return p.Turns.Propose(ctx, p.lease, turn.ID, parts) })
	if err != nil {
		return fmt.Errorf("storing a draft: %w", err)
	}
	p.turnEnded(endedAttention + codes.Draft)
	return nil
}

// countRequests lets the loop guard count model calls where answers become drafts: nothing is sent there that it could count.
func (p *pass) countRequests(ctx context.Context) error {
	if p.work.Turn != nil || !p.work.Channel.Answers.Drafts {
		return nil
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	asked, err := p.Queue.RecentRequests(ctx, p.lease)
	if err != nil {
		return fmt.Errorf("counting drafts: %w", err)
	}
	p.work.RecentReplies = max(p.work.RecentReplies, asked)
	return nil
}
