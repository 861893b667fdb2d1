package handlers

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Wallets reads wallets, as [billing.Book] does. A wallet that never had a transaction is empty.
type Wallets interface {
	Wallet(ctx context.Context, id billing.WalletID) (billing.Wallet, error)
}

// walletObject is the answer of GET /wallet. Amounts are decimal strings of micros (design §6 "groups' conventions").
type walletObject struct {
	Environment   store.Env `json:"environment"   enum:"live,test" doc:"The environment of the key that asks"`
	BalanceMicros string    `json:"balanceMicros" doc:"What the wallet has, in millionths of the currency unit"`
	HeldMicros    string    `json:"heldMicros"    doc:"What of it is reserved for running calls"`
}

func (a *API) registerWallet() {
	register(a, operation{id: "getWallet", Route: Route{
		Method: http.MethodGet, Path: "/wallet", Scope: identity.WalletRead, Role: RoleMember,
		Summary: "Get the balance of the wallet that the key spends",
	}}, a.getWallet)
}

// getWallet shows the wallet that the key spends, so a test key sees the test wallet.
func (a *API) getWallet(ctx context.Context, caller *identity.Principal, _ *struct{}) (*jsonBody[walletObject], error) {
	wallet, err := a.Wallets.Wallet(ctx, billing.WalletID{OrgID: caller.OrgID, Env: caller.Env})
	if err != nil {
		return nil, Internal(fmt.Errorf("reading the wallet: %w", err))
	}
	return &jsonBody[walletObject]{walletObject{
		Environment:   caller.Env,
		BalanceMicros: strconv.FormatInt(wallet.BalanceMicros, 10),
		HeldMicros:    strconv.FormatInt(wallet.HeldMicros, 10),
	}}, nil
}
