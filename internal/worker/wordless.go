package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// belongsWithin is how long before or after a text, by the platform's clock, the rest of an album arrives whose caption the text is.
	// Nobody writes a text and chooses a picture in that time.
	belongsWithin = 3 * time.Second
	// mostWordless bounds the messages without text that a notice answers. More are answered as texts are: a text may be among them that
	// is too old to be read with them.
	mostWordless = 100
)

// isText reports whether a message says something that a model or a search can use.
func isText(m inbox.Message) bool { return m.Kind != inbox.KindEvent }

// wordless reports whether only messages without text wait.
func (p *pass) wordless() bool {
	return p.work.Turn == nil && len(p.work.Waiting) <= mostWordless && !slices.ContainsFunc(p.work.Waiting, isText)
}

// answerWordless answers messages without text with the channel's notice, or leaves them to people. No model is called. In draft mode
// nothing is sent by itself.
func (p *pass) answerWordless(ctx context.Context) (wait time.Duration, err error) {
	if code := p.obstacle(); code != "" {
		return 0, p.stand(ctx, nil, code, nil)
	}
	var parts []string
	if !p.belongToTexts() {
		rules := &p.work.Channel.Answers
		if rules.MediaNotice == "" || rules.Drafts {
			return 0, p.stand(ctx, nil, codes.Media, nil)
		}
		kind, _ := p.Platforms.Find(p.work.Channel.Type)
		parts = platforms.Split(kind.Limit, rules.MediaNotice)
	}
	bounded, cancel := storing(ctx)
	rows, err := p.Turns.SayNotice(bounded, p.lease, p.waitingIDs(), parts)
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
		if !slices.ContainsFunc(p.work.History, func(said inbox.Message) bool {
			apart := time.Duration(m.At-said.At) * time.Millisecond
			return said.Author == inbox.AuthorCustomer && isText(said) && apart.Abs() <= belongsWithin
		}) {
			return false
		}
	}
	return true
}
