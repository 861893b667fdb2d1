package payments

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/option"
)

// Check returns every fault of the description, or nil. The product doesn't start with a faulty description.
func (d *Description) Check() error {
	var faults []error
	unlessf := func(kept bool, format string, args ...any) {
		if !kept {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	unlessf(option.IsName(d.Name), "the name %q is not made of a-z, 0-9 and _, at most %d of them", d.Name, option.MaxName)
	unlessf(d.Label != "" && d.ProofHelp != "", "Label or ProofHelp is missing")
	unlessf(slices.ContainsFunc(d.Setup, func(step string) bool { return strings.Contains(step, "%u") }), "no step has the address, %%u")
	unlessf(len(d.Secrets) > 0, "no option proves deliveries")
	for _, name := range d.Secrets {
		unlessf(slices.ContainsFunc(d.Options, func(o option.Option) bool {
			return o.Name == name && o.Kind == option.Secret && o.Check != nil && o.Check(strings.Repeat("s", MinSecret-1)) != ""
		}), "%q is no option that is a secret and whose Check refuses a short one", name)
	}
	return errors.Join(append(faults, option.Check(d.Options)...)...)
}

// CheckSecret returns the problem of the value of a secret that proves deliveries, or an empty text. It is an [option.Option.Check].
func CheckSecret(value string) (problem string) {
	if len(value) < MinSecret {
		return fmt.Sprintf("has %d bytes; it needs %d or more, because anyone could sign payments with a short secret", len(value), MinSecret)
	}
	return ""
}

// Found returns a payment as the result of [Provider.Read]: with a [Payment.Problem] if it isn't sound. It returns an error if its id isn't sound.
func Found(p Payment) ([]Payment, error) {
	if err := p.Check(); err != nil && p.Problem == "" {
		p.Problem = err.Error()
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return []Payment{p}, nil
}

// Text joins texts of a transfer to a [Payment.Text], without control characters.
func Text(parts ...string) string {
	text := strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " ")
	text = strings.ToValidUTF8(text[:min(len(text), MaxText)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Check returns the reason why the product can't accept a payment of an adapter, or nil. It is about the adapter, not about the payer.
func (p *Payment) Check() error {
	visible := func(text string, most int) bool {
		return len(text) <= most && strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
	}
	switch {
	case p.ID == "" || !visible(p.ID, MaxID):
		return fmt.Errorf("the id is not 1 to %d visible ASCII characters", MaxID)
	case p.Problem != "":
		return nil
	case !slices.Contains([]Kind{Paid, Refunded, Disputed, DisputeWon}, p.Kind):
		return errors.New("the kind is unknown")
	case p.Amount <= 0:
		return errors.New("the amount is not above 0")
	case len(p.Currency) != 3 || strings.Trim(p.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "":
		return errors.New("the currency is no code of ISO 4217 in capitals")
	case !visible(p.Code, MaxID) || !visible(p.Reference, MaxID) || !visible(p.Account, MaxID) || !visible(p.Dispute, MaxID):
		return fmt.Errorf("the code, the reference, the account or the dispute is not up to %d visible ASCII characters", MaxID)
	case (p.Kind == Disputed || p.Kind == DisputeWon) == (p.Dispute == ""):
		return errors.New("a dispute without an id, or another payment with the id of a dispute")
	case len(p.Text) > MaxText || !utf8.ValidString(p.Text):
		return fmt.Errorf("the text is no UTF-8 of up to %d bytes", MaxText)
	case p.At.IsZero():
		return errors.New("the time is missing")
	}
	return nil
}
