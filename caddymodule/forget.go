package caddymodule

import (
	"context"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// forgetAnswers deletes the answers that are kept of turns' calls, for [inbox.ForgetAnswers].
func forgetAnswers(book *billing.Book) func(ctx context.Context, orgID string, turnIDs []string) error {
	return func(ctx context.Context, orgID string, turnIDs []string) error {
		hashes := make([][32]byte, len(turnIDs))
		for i, id := range turnIDs {
			hashes[i] = gateway.TurnKeyHash(id)
		}
		return book.Forget(ctx, billing.WalletID{OrgID: orgID, Env: store.Live}, hashes) //nolint:wrapcheck // it says what was being done
	}
}
