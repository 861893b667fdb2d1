package command

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// microDecimals is how many decimals of a unit a micro is.
const microDecimals = 6

// required marks flags that must be given.
func required(command *cobra.Command, names ...string) {
	for _, name := range names {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // the flag was not defined: a fault of the code, seen by every test
		}
	}
}

// noArguments accepts flags only. Cobra's own refusal calls the argument an unknown command.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes flags only, no argument %q (see %s --help)", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// exactly accepts exactly one argument, which errors call what.
func exactly(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes exactly one argument, %s; %d were given", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// envFlag adds --env, the environment of a wallet or key.
func envFlag(command *cobra.Command) *envValue {
	env := envValue(store.Live)
	command.Flags().Var(&env, "env", "the environment, `live|test`")
	return &env
}

// envValue is a flag that takes one of the two environments.
type envValue store.Env

func (e *envValue) String() string { return string(*e) }

// Type implements pflag.Value; usage texts show it.
func (*envValue) Type() string { return "live|test" }

func (e *envValue) Set(text string) error {
	if !store.Env(text).Valid() {
		return fmt.Errorf("want %s or %s", store.Live, store.Test)
	}
	*e = envValue(text)
	return nil
}

// microsValue is a flag that takes a whole number of micros, in plain decimal digits only: the flag package's own
// integers also read 0x10 and take 010 for eight.
type microsValue int64

func (m *microsValue) String() string { return billing.FormatMicros(int64(*m)) }

// Type implements pflag.Value; usage texts show it.
func (*microsValue) Type() string { return "micros" }

func (m *microsValue) Set(text string) error {
	micros, err := billing.ParseMicros(strings.TrimPrefix(text, "+"))
	if err != nil {
		return err
	}
	*m = microsValue(micros)
	return nil
}

// amountFlags adds --micros and --amount, of which exactly one must be given. sign says which amounts are allowed.
func amountFlags(command *cobra.Command, sign string) *microsValue {
	micros := new(microsValue)
	command.Flags().Var(micros, "micros", "the amount in `micros`, "+sign)
	command.Flags().Var((*amountValue)(micros), "amount", "the amount in `units` of the currency, such as 12.50, "+sign)
	command.MarkFlagsOneRequired("micros", "amount")
	command.MarkFlagsMutuallyExclusive("micros", "amount")
	return micros
}

// amountValue is the flag of an amount in units of the currency, with up to six decimals.
type amountValue microsValue

func (a *amountValue) String() string { return "" }

// Type implements pflag.Value; usage texts show it.
func (*amountValue) Type() string { return "units" }

func (a *amountValue) Set(text string) error {
	units, decimals, _ := strings.Cut(text, ".")
	if len(decimals) > microDecimals {
		return fmt.Errorf("an amount has at most %d decimals", microDecimals)
	}
	digits := strings.TrimPrefix(units, "-") + decimals + strings.Repeat("0", microDecimals-len(decimals))
	digits = strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
	if strings.HasPrefix(units, "-") {
		digits = "-" + digits
	}
	if strings.HasSuffix(text, ".") || strings.TrimPrefix(units, "-") == "" {
		return billing.ErrMicrosSyntax
	}
	return (*microsValue)(a).Set(digits)
}

// nullableMoment is [moment] for a time that may be NULL, for which it returns nil.
func nullableMoment(ms sql.NullInt64) *string {
	if !ms.Valid {
		return nil
	}
	text := moment(ms.Int64)
	return &text
}
