package command

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
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

// addFlags adds the flags of an operation's fields, by field.
func (o *operation) addFlags(command *cobra.Command) map[string]*fieldFlag {
	flags := map[string]*fieldFlag{}
	for _, field := range o.fields {
		_, fixed := o.fixed[field.Name]
		if fixed || field.Type == "" || field.Name == o.argument || field.Name == "id" && o.byEmail ||
			o.has("cursor") && slices.Contains(pagingFields, field.Name) {
			continue
		}
		flag, name, usage := &fieldFlag{field: field}, o.flags[field.Name], o.flagNames.Replace(field.Doc)
		flags[field.Name] = flag
		switch {
		case field.Secret:
			command.Flags().StringVar(&flag.file, name, "-", "the `file` that holds the "+field.Name+"; - is standard input")
			continue
		case field.Type == endpoint.ObjectField:
			command.Flags().StringVar(&flag.file, name, "", "the `file` that holds the "+field.Name+" as one JSON object; - is standard input")
			continue
		case strings.HasSuffix(field.Name, "Micros"):
			flag.addAmount(command, name, usage)
			continue
		}
		command.Flags().Var(flag, name, usage)
		if field.Type == endpoint.BooleanField {
			command.Flags().Lookup(name).NoOptDefVal = "true"
			flag.value, flag.given = false, field.Required
		} else if field.Required {
			required(command, name)
		}
		if field.MaxLength > longText {
			command.Flags().StringVar(&flag.file, name+"-file", "", "the `file` that holds the "+name+"; - is standard input")
			command.MarkFlagsMutuallyExclusive(name, name+"-file")
		}
	}
	return flags
}

const (
	// longText is the length from which a text may be read from a file.
	longText = 2000
	// mostSecret and mostObject bound the files of secrets and of objects, in bytes.
	mostSecret = 64 << 10
	mostObject = 64 << 10
)

// nameFlags sets fields, flags and flagNames. In texts, a field of one word stays as it is if its flag has the same name: it is also a word
// of the language.
func (o *operation) nameFlags() {
	o.fields = o.Fields()
	var pairs []string
	named := make(map[string]string, len(o.fields))
	for _, field := range o.fields {
		named[field.Name] = cmp.Or(o.flags[field.Name], words(field.Name, "-"))
		if field.Secret || field.Type == endpoint.ObjectField {
			named[field.Name] += "-file"
		}
		if flag := named[field.Name]; flag != field.Name && field.Name != "id" && field.Type != endpoint.ObjectField {
			pairs = append(pairs, field.Name, "--"+flag)
		}
	}
	o.flags, o.flagNames = named, strings.NewReplacer(pairs...)
}

// words writes the words of a name like createdAt in small letters, with a text between.
func words(name, between string) string {
	var text strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			text.WriteString(between)
			r += 'a' - 'A'
		}
		text.WriteRune(r)
	}
	return text.String()
}

// fieldFlag is the flag of a field. It keeps its value as JSON has it, and the operation checks it.
type fieldFlag struct {
	field endpoint.Field
	value any
	given bool
	file  string
}

// readFile reads the value from its file, if it has one. No error quotes the file.
func (f *fieldFlag) readFile(e *commandEnv) error {
	if f.file == "" {
		return nil
	}
	f.given = true
	if f.field.Type != endpoint.ObjectField {
		text, err := e.readInput(f.file, f.field.Name, utf8.UTFMax*int64(cmp.Or(f.field.MaxLength, mostSecret/utf8.UTFMax)))
		f.value = string(text)
		return err
	}
	text, err := e.readInput(f.file, f.field.Name, mostObject)
	if err != nil {
		return err
	}
	object := map[string]any{}
	valid := len(text) <= mostObject && json.Unmarshal(text, &object) == nil && object != nil
	for name, value := range object {
		number, isNumber := value.(float64)
		if _, isText := value.(string); isNumber {
			object[name] = strconv.FormatFloat(number, 'f', -1, 64)
		} else if !isText {
			valid = false
		}
	}
	if !valid {
		return fmt.Errorf("the %s are not one JSON object of texts and numbers", f.field.Name)
	}
	f.value = object
	return nil
}

// String implements pflag.Value.
func (*fieldFlag) String() string { return "" }

// Type implements pflag.Value; usage texts show it.
func (f *fieldFlag) Type() string {
	switch {
	case len(f.field.Enum) > 0:
		return strings.Join(f.field.Enum, "|")
	case f.field.Type == endpoint.BooleanField:
		return ""
	case f.field.Type == endpoint.TextsField:
		return "text,text…"
	case f.field.Type == endpoint.NumbersField:
		return "number,number…"
	default:
		return string(f.field.Type)
	}
}

// Set implements pflag.Value. The word null removes a value, and an empty text makes a list empty.
func (f *fieldFlag) Set(text string) (err error) {
	f.given = true
	switch {
	case f.field.Nullable && text == "null":
		f.value = nil
	case f.field.In != "body":
		f.value = text
	case f.field.Type == endpoint.NumberField:
		number, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
			return errors.New("want a number")
		}
		f.value = number
	case f.field.Type == endpoint.BooleanField:
		if f.value, err = strconv.ParseBool(text); err != nil {
			return errors.New("want true or false")
		}
	case (f.field.Type == endpoint.TextsField || f.field.Type == endpoint.NumbersField) && text == "":
		f.value = []any{}
	case f.field.Type == endpoint.NumbersField:
		if f.value = nil; json.Unmarshal([]byte("["+text+"]"), &f.value) != nil {
			return errors.New("want numbers with commas between")
		}
	case f.field.Type == endpoint.TextsField:
		texts, _ := f.value.([]any)
		for one := range strings.SplitSeq(text, ",") {
			texts = append(texts, one)
		}
		f.value = texts
	default:
		f.value = text
	}
	return nil
}

// addAmount adds the two flags of a field of micros: name in micros, and one in units of the currency, which is --amount for --micros and without the
// ending for another name. A required field needs one of them.
func (f *fieldFlag) addAmount(command *cobra.Command, name, usage string) {
	units := "amount"
	if name != "micros" {
		units = strings.TrimSuffix(name, "-micros")
	}
	command.Flags().Var(microsFlag{f}, name, usage)
	command.Flags().Var(amountFlag{f}, units, "the same in `units` of the currency, such as 12.50")
	if f.field.Required {
		command.MarkFlagsOneRequired(name, units)
	}
	command.MarkFlagsMutuallyExclusive(name, units)
}

// microsFlag is a flag for a whole number of micros, in plain decimal digits only: the flag package's own
// integers also read 0x10 and take 010 for eight.
type microsFlag struct{ *fieldFlag }

// Type implements pflag.Value; usage texts show it.
func (microsFlag) Type() string { return "micros" }

// Set implements pflag.Value.
func (f microsFlag) Set(text string) error {
	if f.field.Nullable && text == "null" {
		return f.fieldFlag.Set(text)
	}
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
