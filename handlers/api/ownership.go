package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// missing is the one way to answer for an id that the organization doesn't have: forbidden when it is another
// organization's, else not_found (design §6). It tells nothing but that.
func (d *Deps) missing(ctx context.Context, principal *identity.Principal, kind store.OwnedKind, id string) error {
	owner, err := d.DB.OwnerOf(ctx, kind, id)
	switch {
	case err == nil && owner != principal.OrgID:
		return &handlers.Error{Code: errcode.Forbidden, Message: fmt.Sprintf("The %s belongs to another organization.", singular(kind))}
	case err == nil, errors.Is(err, store.ErrNotFound): // without an error it was made, or deleted, a moment ago
		return handlers.NotFound("There is no %s with this id.", singular(kind))
	default:
		return handlers.Internal(fmt.Errorf("looking for the owner of %s %s: %w", singular(kind), id, err))
	}
}

// refuse turns an error of the store, or of the queue, about one resource into an answer.
func (d *Deps) refuse(ctx context.Context, principal *identity.Principal, kind store.OwnedKind, id string, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return d.missing(ctx, principal, kind, id)
	case errors.Is(err, inbox.ErrConversationClosed):
		return customerBlocked(err)
	default:
		return handlers.Internal(fmt.Errorf("%s %s: %w", singular(kind), id, err))
	}
}

// singular is what a client calls one of a kind.
func singular(kind store.OwnedKind) string {
	switch kind {
	case store.OwnedAPIKeys:
		return "API key"
	case store.OwnedUsers:
		return "member"
	default:
		return strings.ReplaceAll(strings.TrimSuffix(string(kind), "s"), "_", " ")
	}
}
