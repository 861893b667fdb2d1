package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
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

// wallet serves /wallet.
type wallet struct{ *Deps }

func (g *wallet) register(s *endpoint.Server) {
	route := func(path, summary string) handlers.Route {
		return handlers.Route{Method: http.MethodGet, Path: path, Scope: identity.WalletRead, Role: handlers.RoleMember, Summary: summary}
	}
	endpoint.Register(s, endpoint.Operation{ID: "getWallet", Route: route("/wallet", "Get the balance of a wallet")}, g.get)
	registerTable[transactionObject](s, endpoint.Operation{ID: "listTransactions", Route: route("/wallet/transactions",
		"List what went into the wallet and out of it, newest first")}, g.listTransactions)
	registerTable[callObject](s, endpoint.Operation{ID: "listCalls", Route: route("/wallet/calls",
		"List the model calls that have ended and what each cost, newest first")}, g.listCalls)
	endpoint.Register(s, endpoint.Operation{ID: "getSpend", Route: route("/wallet/spend",
		"Get what calls cost, by model and day")}, g.spend)
}

// WalletQuery says which of the organization's wallets is meant. It is exported for the framework, see [endpoint.PathID].
type WalletQuery struct {
	Environment store.Env `query:"environment" enum:"live,test" doc:"For login sessions: live when it is absent. A key has one environment"` //nolint:lll // a struct tag can't be broken
}

// wallet is the wallet that a query is about. A key sees the one it spends.
func (q WalletQuery) wallet(principal *identity.Principal) (billing.WalletID, error) {
	id := billing.WalletID{OrgID: principal.OrgID, Env: principal.Env}
	switch {
	case q.Environment == "" || q.Environment == principal.Env:
	case principal.UserID == "":
		return id, handlers.InvalidRequest("environment", "environment must be %s, like the API key's.", principal.Env)
	default:
		id.Env = q.Environment
	}
	return id, nil
}

func (g *wallet) get(ctx context.Context, principal *identity.Principal, in *struct{ WalletQuery }) (*endpoint.JSON[walletObject], error) {
	id, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	wallet, err := g.Wallets.Wallet(ctx, id)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the wallet: %w", err))
	}
	return endpoint.Answer(walletObject{
		Environment:   id.Env,
		BalanceMicros: billing.FormatMicros(wallet.BalanceMicros),
		HeldMicros:    billing.FormatMicros(wallet.HeldMicros),
	}), nil
}
