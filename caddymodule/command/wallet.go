package command

import (
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers/api"
)

func walletCommand(f *commandFlags) *cobra.Command {
	env := map[string]string{"environment": "env", "amountMicros": "micros", "reference": "ref"}
	return noun(&cobra.Command{
		Use:   "wallet",
		Short: "Credits, adjusts, refunds and shows the wallets of an organization",
		Long: `Credits, adjusts, refunds and shows wallets. An organization has two, live and test.

Results have micros: millionths of the currency unit, so 1000000 micros are one unit. Every change is an entry of the
ledger and a row of the audit log.`,
	}, f.operations("wallet",
		operation{
			Operation: api.CreditWallet, verb: "credit", flags: env,
			long: `Credits a wallet with an amount above 0.

The command can be repeated safely: the same reference with the same amount is booked once, and with another amount it is refused.`,
			example: "  $ caddy svc wallet credit --org org_… --amount 10 --ref invoice-17",
		},
		operation{
			Operation: api.AdjustWallet, verb: "adjust", flags: env,
			example: "  $ caddy svc wallet adjust --org org_… --amount -0.25 --reason \"booked twice\" --ref ticket-4711",
		},
		operation{
			Operation: api.RefundCall, verb: "refund", noun: "call", flags: env, example: "  $ caddy svc wallet refund call_… --ref ticket-4711",
		},
		operation{
			Operation: api.GetWallet, verb: "show", flags: env,
			long: `Shows a wallet's balance and what of it is held: for running calls and, while a wallet is busy and for two seconds after its
last call, for the next calls (docs/billing.md, "Tranches").`,
		},
	)...)
}
