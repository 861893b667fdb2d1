package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Drafts are answers that wait for a person, as [inbox.Queue] has them.
type Drafts interface {
	Drafts(ctx context.Context, orgID, conversationID string) ([]inbox.Draft, error)
	// SendDraft queues a draft as a person's message, once for a key; nil is none.
	SendDraft(ctx context.Context, actor, orgID, conversationID, draftID string, parts []string, changed bool, key *inbox.SendKey) (
		sent []inbox.Message, replayed bool, err error)
	DiscardDraft(ctx context.Context, actor, orgID, conversationID, draftID string) error
}

// DraftObject is a proposed answer as the API shows it.
type DraftObject struct {
	ID        string `json:"id"`
	Text      string `json:"text"      doc:"The whole answer; a long one is sent in several messages"`
	CreatedAt string `json:"createdAt" format:"date-time"`
}

func showDraft(d *inbox.Draft) DraftObject {
	return DraftObject{ID: d.ID, Text: d.Text(), CreatedAt: endpoint.Timestamp(d.CreatedAt)}
}

func (d *Deps) listDrafts(
	ctx context.Context, principal *identity.Principal, in *endpoint.PathID,
) (*endpoint.JSON[endpoint.ListObject[DraftObject]], error) {
	drafts, err := d.Conversations.Drafts(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	return endpoint.Listed(endpoint.PageQuery{}, drafts, func(d *inbox.Draft) string { return d.ID }, showDraft), nil
}

// DraftPath names a draft. It is exported for the framework, see [endpoint.PathID].
type DraftPath struct {
	endpoint.PathID

	DraftID string `path:"draftId"`
}

type draftInput struct {
	DraftPath
	endpoint.KeyHeader

	Body draftWish
}

// draftWish is the body of POST /conversations/{id}/drafts/{draftId}/send.
type draftWish struct {
	Text string `json:"text,omitempty" minLength:"1" maxLength:"20000" doc:"What is sent in place of the proposed text; absent: that text"`
}

// sendDraft queues a draft as a message of the person who sends it. Whatever would make the platform refuse it is checked before, but for
// one that was queued before under the same key.
func (d *Deps) sendDraft(
	ctx context.Context, principal *identity.Principal, in *draftInput,
) (*endpoint.Replayable[sentMessage], error) {
	key, err := sendKey(&in.KeyHeader, "draft\n"+in.ID+"\n"+in.DraftID+"\n"+in.Body.Text)
	if err != nil {
		return nil, err
	}
	conversation, channel, err := d.placeMessage(ctx, principal, in.ID)
	if err != nil {
		return nil, err
	}
	if key != nil {
		sent, err := d.Conversations.SentUnder(ctx, principal.OrgID, *key)
		if err != nil || len(sent) > 0 {
			return d.showSent(ctx, principal, in.ID, sent, true, err)
		}
	}
	if err := d.checkSendable(&channel, &conversation, inbox.KindText); err != nil {
		return nil, err
	}
	parts, changed, err := d.draftParts(ctx, principal, in, &channel)
	if err != nil {
		return nil, err
	}
	messages, replayed, err := d.Conversations.SendDraft(ctx, principal.Actor(), principal.OrgID, in.ID, in.DraftID, parts, changed, key)
	if errors.Is(err, inbox.ErrEnded) {
		return nil, draftGone(err)
	}
	return d.showSent(ctx, principal, in.ID, messages, replayed, err)
}

// draftParts returns the messages that the draft is sent as: the text of the body, or what was proposed.
func (d *Deps) draftParts(
	ctx context.Context, principal *identity.Principal, in *draftInput, channel *store.Channel,
) (parts []string, changed bool, err error) {
	if in.Body.Text != "" {
		parts, err = d.splitDraft(channel, in.Body.Text)
		return parts, true, err
	}
	drafts, err := d.Conversations.Drafts(ctx, principal.OrgID, in.ID)
	switch {
	case err != nil:
		return nil, false, d.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	case len(drafts) == 0 || drafts[0].ID != in.DraftID:
		return nil, false, draftGone(nil)
	case drafts[0].Unreadable:
		return nil, false, &handlers.Error{
			Code: errcode.Conflict, Message: "The proposed answer can't be decrypted. Discard it, or send another text.",
		}
	}
	return drafts[0].Parts, false, nil
}

// splitDraft cuts a person's text into messages.
func (d *Deps) splitDraft(channel *store.Channel, text string) ([]string, error) {
	kind, _ := d.Catalog.Find(channel.Type)
	parts := platforms.Split(kind.Limit, text)
	switch {
	case len(parts) == 0:
		return nil, handlers.InvalidRequest("text", "text is blank.")
	case kind.TooMany(parts):
		return nil, handlers.InvalidRequest("text", "text needs %d messages; the platform takes %d in a row, of %d characters each.",
			len(parts), kind.MostParts, kind.Limit.Most)
	}
	return parts, nil
}

func (d *Deps) discardDraft(ctx context.Context, principal *identity.Principal, in *DraftPath) (*endpoint.Empty, error) {
	err := d.Conversations.DiscardDraft(ctx, principal.Actor(), principal.OrgID, in.ID, in.DraftID)
	switch {
	case errors.Is(err, inbox.ErrEnded):
		return nil, draftGone(err)
	case err != nil:
		return nil, d.refuse(ctx, principal, store.OwnedConversations, in.ID, fmt.Errorf("discarding a draft: %w", err))
	}
	return &endpoint.Empty{}, nil
}

// draftGone is the refusal for a draft that doesn't wait any more.
func draftGone(cause error) error {
	return &handlers.Error{
		Code:    errcode.Conflict,
		Message: "This proposed answer doesn't wait any more: it was sent or discarded, or the customer wrote again. Read the drafts again.",
		Cause:   cause,
	}
}
