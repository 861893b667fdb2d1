package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// maxMessageBody is the largest body of a message: a file of [media.MaxBytes] in base64, with room for line breaks in it.
const maxMessageBody = 12 << 20

// fileWish is a file that a person sends.
type fileWish struct {
	Name    string `json:"name,omitempty" maxLength:"255" doc:"The name that the customer sees where the platform shows one; its path is left out"`
	Content string `json:"content" minLength:"1" maxLength:"11600000" encoding:"base64" doc:"1 byte to 8 MiB, in base64. What it is, is taken from the content"` //nolint:lll // a struct tag can't be broken
}

// queueFile queues a file.
func (d *Deps) queueFile(ctx context.Context, principal *identity.Principal, in *messageInput, to *recipient) ([]inbox.Message, bool, error) {
	if err := d.checkSendable(to, inbox.KindEvent); err != nil {
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
	kind, _ := d.Catalog.Find(to.channel.Type)
	switch {
	case len(kind.Files) == 0:
		return nil, false, handlers.InvalidRequest("file", "Channels of type %s take no files.", to.channel.Type)
	case !slices.Contains(kind.Files, file.Kind):
		return nil, false, handlers.InvalidRequest("file", "This is no file that channels of type %s take: %s.",
			to.channel.Type, strings.Join(kind.Files, ", "))
	}
	messages, replayed, err := d.Conversations.SendFile(ctx, principal.Actor(), principal.OrgID, in.ID, &file, to.key)
	switch {
	case errors.Is(err, media.ErrFull):
		err = endpoint.Refusal(errcode.PlanLimitExceeded, err,
			"The organization's files take all of the space that there is for them. Erase conversations, or keep them for a shorter time.")
	case errors.Is(err, media.ErrBusy):
		err = endpoint.RateLimited(handlers.BudgetRetryAfter, err, "Several files are being stored now. Retry shortly.")
	}
	return messages, replayed, err
}

// DraftObject is a proposed answer as the API shows it.
type DraftObject struct {
	ID        string `json:"id"`
	Text      string `json:"text"      doc:"The whole answer; a long one is sent in several messages"`
	CreatedAt string `json:"createdAt" format:"date-time"`
}

func (d *Deps) listDrafts(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.ListObject[DraftObject], error) {
	drafts, err := d.Conversations.Drafts(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	return onePage(drafts, func(d *inbox.Draft) DraftObject { return DraftObject{d.ID, d.Text(), endpoint.Timestamp(d.CreatedAt)} }), nil
}

// DraftPath names a draft. It is exported for huma, see [endpoint.PathID].
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

// sendDraft queues a draft as a message of the person who sends it.
func (d *Deps) sendDraft(ctx context.Context, principal *identity.Principal, in *draftInput) (*endpoint.Replayable[sentMessage], error) {
	content := "draft\n" + in.ID + "\n" + in.DraftID + "\n" + in.Body.Text
	return d.send(ctx, principal, in.ID, &in.KeyHeader, content, func(to *recipient) ([]inbox.Message, bool, error) {
		if err := d.checkSendable(to, inbox.KindText); err != nil {
			return nil, false, err
		}
		parts, changed, err := d.draftParts(ctx, principal, in, &to.channel)
		if err != nil {
			return nil, false, err
		}
		sent, replayed, err := d.Conversations.SendDraft(ctx, principal.Actor(), principal.OrgID, in.ID, in.DraftID, parts, changed, to.key)
		if errors.Is(err, inbox.ErrEnded) {
			return nil, false, draftGone(err)
		}
		return sent, replayed, err
	})
}

// draftParts returns the messages that the draft is sent as: the text of the body, or the proposed text.
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
		return nil, false, endpoint.Refusal(errcode.Conflict, nil,
			"The proposed answer can't be decrypted. Discard it, or send another text.")
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
	if errors.Is(err, inbox.ErrEnded) {
		return nil, draftGone(err)
	}
	return &endpoint.Empty{}, d.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
}

// draftGone is the refusal for a draft that no longer waits.
func draftGone(cause error) error {
	return endpoint.Refusal(errcode.Conflict, cause,
		"This proposed answer doesn't wait any more: it was sent or discarded, or the customer wrote again. Read the drafts again.")
}

// FileObject is a file of a message as the API shows it.
type FileObject struct {
	ID        string  `json:"id"`
	Kind      string  `json:"kind"      enum:"image,audio,video,sticker,file"`
	State     string  `json:"state"     enum:"waiting,stored,failed" doc:"waiting: a worker fetches it from the platform; stored: GET …/files/{fileId} has it; failed: nobody will"`                                  //nolint:lll // a struct tag can't be broken
	Code      *string `json:"code"      doc:"Why it failed: media_too_large, media_type, media_expired, media_refused, media_unavailable, media_storage_full (also of a file that waits for room) or media_replaced"` //nolint:lll // a struct tag can't be broken
	Name      *string `json:"name"      doc:"The name that the file has"`
	MediaType *string `json:"mediaType" doc:"Of a stored file, by its content"`
	Bytes     *int64  `json:"bytes"     doc:"The size of a stored file"`
}

func showFile(f *media.File) FileObject {
	shown := FileObject{
		ID: f.ID, Kind: f.Kind, State: f.State, Code: endpoint.OrNull(f.Code), Name: endpoint.OrNull(f.Name),
		MediaType: endpoint.OrNull(f.MediaType),
	}
	if f.State == media.Stored {
		shown.Bytes = &f.Bytes
	}
	return shown
}

type fileInput struct {
	endpoint.PathID

	FileID string `path:"fileId"`
}

// fileContent describes the content of a file by the media types that are kept.
func fileContent() map[string]*huma.MediaType {
	content := map[string]*huma.MediaType{}
	for _, mediaType := range media.Types() {
		content[mediaType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
	return content
}

// getFile sends a file as what no browser runs, whatever the customer has put into it.
func (d *Deps) getFile(ctx context.Context, principal *identity.Principal, in *fileInput) (*endpoint.Stream, error) {
	if _, err := d.Conversations.Conversation(ctx, principal.OrgID, in.ID); err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	if !handlers.WellFormedID(in.FileID) {
		return nil, noFile()
	}
	file, err := d.Conversations.File(ctx, principal.OrgID, in.ID, in.FileID)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && file.State != media.Stored:
		return nil, noFile()
	case err != nil:
		return nil, handlers.Internal(err)
	}
	return endpoint.Streamed(func(w http.ResponseWriter, r *http.Request) error {
		room := handlers.NewRoom(d.Bodies, handlers.AccountOf(r))
		defer room.Close()
		// A piece is in memory as it is stored, sealed, and as it is sent.
		if !room.Grow(2 * min(file.Bytes, media.PieceBytes)) {
			return handlers.NoRoom()
		}
		h := w.Header()
		h.Set("Content-Type", file.MediaType)
		h.Set("Content-Length", strconv.FormatInt(file.Bytes, 10))
		disposition := mime.FormatMediaType("attachment", map[string]string{"filename": cmp.Or(file.Name, file.ID)})
		h.Set("Content-Disposition", cmp.Or(disposition, "attachment"))
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "private, no-store")
		w.WriteHeader(http.StatusOK)
		if d.Conversations.WriteFile(r.Context(), &file, handlers.NewAnswerWriter(w)) != nil {
			panic(http.ErrAbortHandler) // a part must not be taken for the whole
		}
		return nil
	}), nil
}

func noFile() error { return handlers.NotFound("The conversation has no stored file with this id.") }
