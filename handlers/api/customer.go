package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func (d *Deps) blockCustomer(
	ctx context.Context, principal *identity.Principal, in *endpoint.PathID,
) (*endpoint.JSON[ConversationObject], error) {
	if err := d.change(ctx, principal, store.OwnedConversations, in.ID, d.Conversations.Block); err != nil {
		return nil, err
	}
	return d.getConversation(ctx, principal, in)
}

func (d *Deps) unblockCustomer(
	ctx context.Context, principal *identity.Principal, in *endpoint.PathID,
) (*endpoint.JSON[ConversationObject], error) {
	if err := d.change(ctx, principal, store.OwnedConversations, in.ID, d.Conversations.Unblock); err != nil {
		return nil, err
	}
	return d.getConversation(ctx, principal, in)
}

// exportContent describes the export of a conversation, whose form is [inbox.Queue.Export]'s.
var exportContent = map[string]*huma.MediaType{
	"application/json": {Schema: &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true,
		Description: "The members conversation, messages and turns, with texts, names and the platform's ids",
	}},
}

func (d *Deps) exportConversation(
	_ context.Context, principal *identity.Principal, in *endpoint.PathID,
) (*endpoint.Stream, error) {
	return endpoint.Streamed(func(w http.ResponseWriter, r *http.Request) error {
		begun := false
		err := d.Conversations.Export(r.Context(), principal.OrgID, in.ID, w, func() {
			begun = true
			h := w.Header()
			h.Set("Content-Type", "application/json")
			h.Set("Content-Disposition", `attachment; filename="`+in.ID+`.json"`)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusOK)
		})
		switch {
		case err != nil && begun:
			panic(http.ErrAbortHandler) // a part must not be taken for the whole
		case err != nil:
			return d.refuse(r.Context(), principal, store.OwnedConversations, in.ID, err)
		}
		return nil
	}), nil
}
