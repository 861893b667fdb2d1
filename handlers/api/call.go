package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// GetCall reads a call with the lines of its cost.
var GetCall = operation(operated("wallet:read", testKeys(members("getCall", "GET /wallet/calls/{id}", identity.WalletRead,
	"Get a model call that has ended, and why it cost what it did"))), (*Deps).getCall)

// CostLineObject is a line of the cost of a call. It is exported for the framework, see [endpoint.PathID].
type CostLineObject struct {
	Kind        string `json:"kind"        enum:"input,cachedInput,cacheWrite,longCacheWrite,output"`
	Tokens      int64  `json:"tokens"`
	PriceMicros string `json:"priceMicros" doc:"The price of a million tokens when the call began"`
	Micros      string `json:"micros"      doc:"Their cost, rounded such that the lines together are costMicros"`
}

// CallDetail is a call with the lines of its cost. It is exported for the framework, see [endpoint.PathID].
type CallDetail struct {
	CallObject

	Lines           []CostLineObject `json:"lines"           nullable:"false" doc:"What the tokens cost by kind; kinds without tokens are left out"`
	CostMicros      string           `json:"costMicros"      doc:"The lines together, rounded up to a whole micro"`
	UnchargedMicros string           `json:"unchargedMicros" doc:"The part of costMicros that the service bears: of a call that failed, or above reservedMicros"` //nolint:lll // a struct tag can't be broken
}

type callQuery struct {
	WalletQuery
	endpoint.PathID
}

func (d *Deps) getCall(ctx context.Context, principal *identity.Principal, in *callQuery) (*CallDetail, error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	call, err := d.Wallets.Call(ctx, wallet, in.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, d.missing(ctx, principal, store.OwnedCalls, in.ID)
	}
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading a call: %w", err))
	}
	lines, err := call.Price.Lines(call.Usage)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("explaining the cost of call %s: %w", call.ID, err))
	}
	placed, err := d.placedCalls(ctx, wallet, []billing.EndedCall{call})
	if err != nil {
		return nil, err
	}
	return &CallDetail{
		CallObject: showCall(&placed[0]), CostMicros: billing.FormatMicros(call.ChargedMicros + call.ShortfallMicros),
		UnchargedMicros: billing.FormatMicros(call.ShortfallMicros), Lines: showAll(lines, func(l *billing.CostLine) CostLineObject {
			return CostLineObject{l.Kind, l.Tokens, billing.FormatMicros(l.PriceMicros), billing.FormatMicros(l.Micros)}
		}),
	}, nil
}
