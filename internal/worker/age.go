package worker

import (
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
)

// tooOld reports whether the customer wrote, or a person had what stood tried again, longer ago than the channel's assistant still
// answers. Only the time since the business opened counts.
func (p *pass) tooOld() bool {
	most := time.Duration(p.work.Channel.Answers.MaxAgeMinutes) * time.Minute
	c := &p.work.Conversation
	if most == 0 || p.waited(max(c.LastCustomerAt, c.RetriedAt)) <= most {
		return false
	}
	open, since := p.openNow()
	return open && (since.IsZero() || p.waited(since.UnixMilli()) > most)
}

// unsendable returns the code of a part that must not be sent, "" for any other. Of an answer that has become too old nothing is sent,
// but one that has begun is sent to its end, and so is what a person has sent again.
func (p *pass) unsendable(row *inbox.Outbound) string {
	switch {
	case row.Unreadable:
		return codes.Unreadable
	case row.Author == inbox.AuthorAssistant && row.Part == 0 && row.Resends == 0 && p.tooOld():
		return codes.TooOld
	}
	return ""
}
