package handlers

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Wallets reads wallets, as [billing.Book] does. A wallet that never had a transaction is empty.
type Wallets interface {
	Wallet(ctx context.Context, id billing.WalletID) (billing.Wallet, error)
}

// walletObject is the answer of GET /wallet. Amounts are decimal strings of micros (design §6 "groups' conventions").
type walletObject struct {
	Environment   store.Env `json:"environment"`
	BalanceMicros string    `json:"balanceMicros"`
	HeldMicros    string    `json:"heldMicros"`
}

// serveWallet answers GET /wallet: the wallet that the key spends, so a test key sees the test wallet.
func (a *API) serveWallet(w http.ResponseWriter, r *http.Request) error {
	p, err := principal(r)
	if err != nil {
		return err
	}
	wallet, err := a.Wallets.Wallet(r.Context(), billing.WalletID{OrgID: p.OrgID, Env: p.Env})
	if err != nil {
		return Internal(fmt.Errorf("reading the wallet: %w", err))
	}
	writeJSON(w, http.StatusOK, marshal(walletObject{
		Environment:   p.Env,
		BalanceMicros: strconv.FormatInt(wallet.BalanceMicros, 10),
		HeldMicros:    strconv.FormatInt(wallet.HeldMicros, 10),
	}))
	return nil
}
