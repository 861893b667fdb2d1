package handlers

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Wallets reads wallets and their history, as [billing.Book] does. A wallet that never had a transaction is empty.
type Wallets interface {
	Wallet(ctx context.Context, id billing.WalletID) (billing.Wallet, error)
	Entries(ctx context.Context, id billing.WalletID, stretch billing.Stretch) ([]billing.Entry, error)
	Calls(ctx context.Context, id billing.WalletID, stretch billing.Stretch) ([]billing.EndedCall, error)
	Spend(ctx context.Context, id billing.WalletID, from, until int64) ([]billing.Spend, error)
}

// walletObject is the answer of GET /wallet. Amounts are decimal strings of micros (design §6 "groups' conventions").
type walletObject struct {
	Environment   store.Env `json:"environment"   enum:"live,test" doc:"Whose wallet it is: a test key never spends live credits"`
	BalanceMicros string    `json:"balanceMicros" doc:"What the wallet has, in millionths of the currency unit"`
	HeldMicros    string    `json:"heldMicros"    doc:"What of it is reserved for running calls"`
}

func (a *API) registerWallet() {
	route := func(path, summary string) Route {
		return Route{Method: http.MethodGet, Path: path, Scope: identity.WalletRead, Role: RoleMember, Summary: summary}
	}
	register(a, operation{id: "getWallet", Route: route("/wallet", "Get the balance of a wallet")}, a.getWallet)
	registerTable[transactionObject](a, operation{id: "listTransactions", Route: route("/wallet/transactions",
		"List what went into the wallet and out of it, newest first")}, a.listTransactions)
	registerTable[callObject](a, operation{id: "listCalls", Route: route("/wallet/calls",
		"List the model calls that have ended and what each cost, newest first")}, a.listCalls)
	register(a, operation{id: "getSpend", Route: route("/wallet/spend",
		"Get what calls cost, by model and day")}, a.getSpend)
}

// WalletQuery says which of the organization's wallets is meant. It is exported for the framework, see [PathID].
type WalletQuery struct {
	Environment store.Env `query:"environment" enum:"live,test" doc:"For login sessions: live when it is absent. A key has one environment"` //nolint:lll // a struct tag can't be broken
}

// wallet is the wallet that a query is about. A key sees the one it spends.
func (q WalletQuery) wallet(caller *identity.Principal) (billing.WalletID, error) {
	id := billing.WalletID{OrgID: caller.OrgID, Env: caller.Env}
	switch {
	case q.Environment == "" || q.Environment == caller.Env:
	case caller.UserID == "":
		return id, InvalidRequest("environment", "environment must be %s, like the API key's.", caller.Env)
	default:
		id.Env = q.Environment
	}
	return id, nil
}

func (a *API) getWallet(ctx context.Context, caller *identity.Principal, in *struct{ WalletQuery }) (*jsonBody[walletObject], error) {
	id, err := in.wallet(caller)
	if err != nil {
		return nil, err
	}
	wallet, err := a.Wallets.Wallet(ctx, id)
	if err != nil {
		return nil, Internal(fmt.Errorf("reading the wallet: %w", err))
	}
	return &jsonBody[walletObject]{walletObject{
		Environment:   id.Env,
		BalanceMicros: billing.FormatMicros(wallet.BalanceMicros),
		HeldMicros:    billing.FormatMicros(wallet.HeldMicros),
	}}, nil
}
