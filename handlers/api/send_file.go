package api

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// maxMessageBody is the largest body of a message: a file of [media.MaxBytes] in base64, with room for line breaks in it.
const maxMessageBody = 12 << 20

// fileWish is a file that a person sends.
type fileWish struct {
	Name    string `json:"name,omitempty" maxLength:"255" doc:"The name that the customer sees where the platform shows one; its path is left out"`
	Content string `json:"content" minLength:"1" maxLength:"11600000" encoding:"base64" doc:"1 byte to 8 MiB, in base64. What it is, is taken from the content"` //nolint:lll // a struct tag can't be broken
}

// queueFile queues a file. The error is public, or one of the queue.
func (d *Deps) queueFile(
	ctx context.Context, principal *identity.Principal, in *messageInput,
	channel *store.Channel, conversation *inbox.Conversation, key *inbox.SendKey,
) (messages []inbox.Message, replayed bool, err error) {
	if err := d.checkSendable(channel, conversation, inbox.KindEvent); err != nil {
		return nil, false, err
	}
	content, err := base64.StdEncoding.DecodeString(in.Body.File.Content)
	switch {
	case err != nil || len(content) == 0:
		return nil, false, handlers.InvalidRequest("file.content", "file.content is no base64, or empty.")
	case len(content) > media.MaxBytes:
		return nil, false, handlers.InvalidRequest("file.content", "The file has %d bytes; at most %d are sent.", len(content), media.MaxBytes)
	}
	file := media.Describe(in.Body.File.Name, content)
	kind, _ := d.Catalog.Find(channel.Type)
	switch {
	case len(kind.Files) == 0:
		return nil, false, handlers.InvalidRequest("file", "Channels of type %s take no files.", channel.Type)
	case !slices.Contains(kind.Files, file.Kind):
		return nil, false, handlers.InvalidRequest("file", "This is no file that channels of type %s take: %s.",
			channel.Type, strings.Join(kind.Files, ", "))
	}
	messages, replayed, err = d.Conversations.SendFile(ctx, principal.Actor(), principal.OrgID, in.ID, &file, key)
	return messages, replayed, fileError(err)
}

// fileError returns the public form of a refusal to store a file, and other errors as they are.
func fileError(err error) error {
	switch {
	case errors.Is(err, media.ErrFull):
		return &handlers.Error{
			Code: errcode.PlanLimitExceeded, Cause: err,
			Message: "The organization's files take all of the space that there is for them. Erase conversations, or keep them for a shorter time.",
		}
	case errors.Is(err, media.ErrBusy):
		return &handlers.Error{
			Code: errcode.RateLimited, RetryAfter: handlers.BudgetRetryAfter, Cause: err,
			Message: "Several files are being stored now. Retry shortly.",
		}
	}
	return err
}
