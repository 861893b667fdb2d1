package command

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
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

// amountFlags adds the two flags of a field of micros: name in micros, and --amount in units of the currency. One of them is given for a required
// field, not both.
func amountFlags(command *cobra.Command, flag *fieldFlag, name, usage string) {
	command.Flags().Var(microsFlag{flag}, name, usage)
	command.Flags().Var(amountFlag{flag}, "amount", "the same in `units` of the currency, such as 12.50")
	if flag.field.Required {
		command.MarkFlagsOneRequired(name, "amount")
	}
	command.MarkFlagsMutuallyExclusive(name, "amount")
}

// microsFlag is a flag for a whole number of micros, in plain decimal digits only: the flag package's own
// integers also read 0x10 and take 010 for eight.
type microsFlag struct{ *fieldFlag }

// Type implements pflag.Value; usage texts show it.
func (microsFlag) Type() string { return "micros" }

// Set implements pflag.Value.
func (f microsFlag) Set(text string) error {
	micros, err := billing.ParseMicros(strings.TrimPrefix(text, "+"))
	f.value, f.given = billing.FormatMicros(micros), true
	return err
}

// amountFlag is the flag of an amount in units of the currency, with up to six decimals.
type amountFlag struct{ *fieldFlag }

// Type implements pflag.Value; usage texts show it.
func (amountFlag) Type() string { return "units" }

// Set implements pflag.Value.
func (f amountFlag) Set(text string) error {
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
	return microsFlag(f).Set(digits)
}

// nullableMoment is [moment] for a time that may be NULL, for which it returns nil.
func nullableMoment(ms sql.NullInt64) *string {
	if !ms.Valid {
		return nil
	}
	text := moment(ms.Int64)
	return &text
}
