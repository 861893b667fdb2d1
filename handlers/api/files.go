package api

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// CustomerFiles are those that customers sent, or were sent, as [inbox.Queue] has them.
type CustomerFiles interface {
	File(ctx context.Context, orgID, conversationID, id string) (media.File, error)
	// WriteFile writes the content of a stored file; after an error w may have got a part.
	WriteFile(ctx context.Context, file *media.File, w io.Writer) error
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

func showFiles(files []media.File) []FileObject {
	shown := make([]FileObject, len(files))
	for i := range files {
		f := &files[i]
		shown[i] = FileObject{
			ID: f.ID, Kind: f.Kind, State: f.State, Code: endpoint.TextOrNull(f.Code), Name: endpoint.TextOrNull(f.Name),
			MediaType: endpoint.TextOrNull(f.MediaType),
		}
		if f.State == media.Stored {
			shown[i].Bytes = &f.Bytes
		}
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
		h.Set("Content-Disposition", attachment(&file))
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

// attachment returns the header that makes a browser store a file, under the customer's name of it if it has one.
func attachment(file *media.File) string {
	name := file.Name
	if name == "" {
		name = file.ID
	}
	if header := mime.FormatMediaType("attachment", map[string]string{"filename": name}); header != "" {
		return header
	}
	return "attachment"
}

func noFile() error { return handlers.NotFound("The conversation has no stored file with this id.") }
