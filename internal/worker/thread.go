package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// threadTime bounds a look at what people wrote.
	threadTime = 5 * time.Second
	// threadAge is how old a person's message is taken in: one from before doesn't pause the assistant any more.
	threadAge = 24 * time.Hour
)

// looksFirst reports whether the platform has to be asked before an answer is sent what people wrote there meanwhile.
func (p *pass) looksFirst() bool { return p.Platforms.ReadsThreads(p.channelType()) }

// lookForPeople takes in what people of the business wrote to the customer in the platform's own app, as if the platform had reported it.
// If a person has the conversation then, the queue refuses to mark the answer as being sent. A platform that doesn't tell holds up no
// answer: to be silent for good would be worse.
func (p *pass) lookForPeople(ctx context.Context) error {
	if !p.looksFirst() || p.credentials == nil { // without credentials nothing can be sent either
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, threadTime)
	found, err := p.Platforms.ReadThread(bounded, platforms.Thread{
		Type: p.channelType(), ExternalID: p.work.Channel.ExternalID, Conversation: p.lease.CustomerRef, Credentials: p.credentials,
	})
	cancel()
	if err != nil {
		p.Logger.WarnContext(ctx, "what people of the business wrote can't be read", "channel", p.work.Channel.ID, "error", err)
		return nil
	}
	var items []inbox.Item
	for i := range found {
		if in := &found[i]; p.Now().Sub(in.SentAt) < threadAge {
			items = append(items, echoOf(in))
		}
	}
	if len(items) == 0 {
		return nil
	}
	bounded, cancel = storing(ctx)
	defer cancel()
	route, known, err := p.DB.Routes.ByID(bounded, p.work.Channel.ID)
	if err == nil && known {
		err = p.Queue.Enqueue(bounded, []inbox.Arrival{{Route: route, Items: items}})
	}
	if err != nil {
		return fmt.Errorf("storing what people of the business wrote: %w", err)
	}
	return nil
}

// echoOf returns the queue's form of a message of the business.
func echoOf(in *platforms.Inbound) inbox.Item {
	kind := inbox.HumanEcho
	if in.Kind == platforms.AutomaticEcho {
		kind = inbox.AutomaticEcho
	}
	item := inbox.Item{
		Kind: kind, Unmarked: in.Kind == platforms.UnmarkedEcho, CustomerRef: in.Conversation, Address: in.Address, MessageID: in.MessageID,
		Text: in.Text, Other: &inbox.OtherIDs{Business: in.OtherIDs().Business}, SentAt: in.SentAt.UnixMilli(),
	}
	if in.Wordless {
		item.Text, item.Media = "", in.Text
	}
	for _, a := range in.Attachments() {
		item.Files = append(item.Files, media.Reference(a))
	}
	return item
}
