package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

type entryAnswer struct {
	ID            string `json:"id"`
	OrgID         string `json:"orgId"`
	Environment   string `json:"environment"`
	Kind          string `json:"kind"`
	AmountMicros  string `json:"amountMicros"`
	BalanceMicros string `json:"balanceMicros"`
	Ref           string `json:"ref"`
	Note          string `json:"note,omitempty"`
	CreatedAt     string `json:"createdAt"`
	Replayed      bool   `json:"replayed"`
}

func newEntryAnswer(e billing.Entry) entryAnswer {
	return entryAnswer{
		ID: e.ID, OrgID: e.Wallet.OrgID, Environment: string(e.Wallet.Env), Kind: e.Kind.Public(),
		AmountMicros: billing.FormatMicros(e.AmountMicros), BalanceMicros: billing.FormatMicros(e.BalanceMicros),
		Ref: e.Ref, Note: e.Note, CreatedAt: moment(e.At), Replayed: e.Replayed,
	}
}

func (e entryAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "entry\t%s\norganization\t%s\nenvironment\t%s\nkind\t%s\namount\t%s micros\nbalance after\t%s micros\nref\t%s\n",
		e.ID, e.OrgID, e.Environment, e.Kind, e.AmountMicros, e.BalanceMicros, e.Ref)
	if e.Replayed {
		fmt.Fprintln(w, "This reference was booked before; nothing was changed now.")
	}
}

// walletAnswer is a wallet in a result, with the names of `GET /wallet`.
type walletAnswer struct {
	OrgID         string `json:"orgId"`
	Environment   string `json:"environment"`
	BalanceMicros string `json:"balanceMicros"`
	HeldMicros    string `json:"heldMicros"`
}

func (a walletAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "organization\t%s\nenvironment\t%s\nbalance\t%s micros\nheld of it\t%s micros\n",
		a.OrgID, a.Environment, a.BalanceMicros, a.HeldMicros)
}

func walletCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "wallet",
		Short: "Credits, adjusts, refunds and shows the wallets of an organization",
		Long: `Credits, adjusts, refunds and shows wallets. An organization has two, live and test.

Results have micros: millionths of the currency unit, so 1000000 micros are one unit. Every change is an entry of the
ledger and a row of the audit log.`,
	}, f.walletCredit(), f.walletAdjust(), f.walletRefund(), f.walletShow())
}

// walletVerb is a verb for the wallet that --org and --env name.
func (f *commandFlags) walletVerb(
	command *cobra.Command, work func(ctx context.Context, e *commandEnv, wallet billing.WalletID) (answer, error),
) *cobra.Command {
	env := envFlag(command)
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		return work(ctx, e, billing.WalletID{OrgID: orgID, Env: store.Env(*env)})
	})
}

// posted returns the result of a change of a wallet.
func posted(entry billing.Entry, err error) (answer, error) {
	if err != nil {
		return nil, err
	}
	return newEntryAnswer(entry), nil
}

func (f *commandFlags) walletCredit() *cobra.Command {
	var ref string
	command := &cobra.Command{
		Use:   "credit --org ORG_ID (--micros N | --amount N) --ref REF [--env live|test]",
		Short: "Credits a wallet",
		Long: `Credits a wallet with an amount above 0.

The command can be repeated safely: the same reference with the same amount is booked once, and with another amount it is refused.`,
		Example: "  $ caddy svc wallet credit --org org_… --amount 10 --ref invoice-17",
	}
	micros := amountFlags(command, "above 0")
	command.Flags().StringVar(&ref, "ref", "", "the payment's `reference`, booked once")
	required(command, "ref")
	return f.walletVerb(command, func(ctx context.Context, e *commandEnv, wallet billing.WalletID) (answer, error) {
		if ref == "" {
			return nil, errNoRef
		}
		return posted(e.book().Credit(ctx, e.actor, wallet, int64(*micros), ref))
	})
}

// errNoRef refuses an empty reference, by which nothing would be booked once.
var errNoRef = errors.New("--ref is empty; name the payment, such as its invoice")

func (f *commandFlags) walletAdjust() *cobra.Command {
	var reason, ref string
	command := &cobra.Command{
		Use:     "adjust --org ORG_ID (--micros ±N | --amount ±N) --reason TEXT --ref REF [--env live|test]",
		Short:   "Corrects a wallet up or down, never below what is held; booked once by its reference",
		Example: "  $ caddy svc wallet adjust --org org_… --amount -0.25 --reason \"booked twice\" --ref ticket-4711",
	}
	micros := amountFlags(command, "below 0 to take")
	command.Flags().StringVar(&reason, "reason", "", "why, for the ledger and the audit log")
	command.Flags().StringVar(&ref, "ref", "", "a `reference`, booked once")
	required(command, "reason", "ref")
	return f.walletVerb(command, func(ctx context.Context, e *commandEnv, wallet billing.WalletID) (answer, error) {
		if ref == "" {
			return nil, errNoRef
		}
		entry, err := e.book().Adjust(ctx, e.actor, wallet, int64(*micros), reason, ref)
		if !errors.Is(err, billing.ErrInsufficientCredits) {
			return posted(entry, err)
		}
		found, readErr := e.book().Wallet(ctx, wallet)
		if readErr != nil {
			return nil, errors.Join(err, readErr)
		}
		return nil, fmt.Errorf("%w: of the balance of %s micros, %s are held and %s are free", err, billing.FormatMicros(found.BalanceMicros),
			billing.FormatMicros(found.HeldMicros), billing.FormatMicros(found.BalanceMicros-found.HeldMicros))
	})
}

func (f *commandFlags) walletRefund() *cobra.Command {
	var ref string
	command := &cobra.Command{
		Use:     "refund CALL_ID [--ref REF]",
		Short:   "Gives back what a model call was charged, once",
		Example: "  $ caddy svc wallet refund call_… --ref ticket-4711",
		Args:    exactly("the call's id"),
	}
	command.Flags().StringVar(&ref, "ref", "", "your own `note` of it, e.g. a ticket")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		entry, err := e.book().Refund(ctx, e.actor, e.args[0], ref)
		if errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("there is no call %q", e.args[0])
		}
		return posted(entry, err)
	})
}

func (f *commandFlags) walletShow() *cobra.Command {
	command := &cobra.Command{
		Use:   "show --org ORG_ID [--env live|test]",
		Short: "Shows a wallet's balance and what of it is held",
		Long: `Shows a wallet's balance and what of it is held: for running calls and, while a wallet is busy and for two seconds after its
last call, for the next calls (docs/billing.md, "Tranches").`,
	}
	return f.walletVerb(command, func(ctx context.Context, e *commandEnv, id billing.WalletID) (answer, error) {
		found, err := e.book().Wallet(ctx, id)
		if err != nil {
			return nil, err
		}
		return walletAnswer{
			OrgID: id.OrgID, Environment: string(id.Env),
			BalanceMicros: billing.FormatMicros(found.BalanceMicros), HeldMicros: billing.FormatMicros(found.HeldMicros),
		}, nil
	})
}
