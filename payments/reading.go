package payments

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
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

// errAmount is the problem of an amount that can't be read.
var errAmount = errors.New("the amount is no whole number of the currency's smallest unit")

// ReadAmount reads the digits of an amount as they were written in JSON or in a text, such as 500000 or "18067000.00", with decimals places of the
// smallest unit: 0 for dong, 2 for a currency with cents. Digits beyond these must be zeros. It reads no sign, no exponent and no separators, and
// nothing above an int64.
func ReadAmount(digits string, decimals int) (int64, error) {
	whole, fraction, _ := strings.Cut(digits, ".")
	extra := ""
	if len(fraction) > decimals {
		fraction, extra = fraction[:decimals], fraction[decimals:]
	}
	fraction += strings.Repeat("0", decimals-len(fraction))
	if whole == "" || strings.Trim(extra, "0") != "" || strings.HasSuffix(digits, ".") {
		return 0, errAmount
	}
	var amount int64
	for _, digit := range []byte(whole + fraction) {
		if digit < '0' || digit > '9' || amount > (math.MaxInt64-9)/10 {
			return 0, errAmount
		}
		amount = amount*10 + int64(digit-'0')
	}
	return amount, nil
}

// alphabet are the characters of a code: capitals and digits, which no bank changes, without the letters that people confuse with digits.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// codeLength is the length of a code: eight random characters and their check character.
const codeLength = 9

// NewCode returns a random code for a payment. A payer writes it into the text of a transfer.
func NewCode() string {
	var random [codeLength - 1]byte
	_, _ = rand.Read(random[:]) // it never fails
	code := make([]byte, 0, codeLength)
	for _, b := range random {
		code = append(code, alphabet[int(b)%len(alphabet)])
	}
	return string(append(code, checkCharacter(code)))
}

// checkCharacter returns the character that follows a code, by which one wrong character is found: the weights are odd, so they have no factor in
// common with the size of the alphabet. Neighbours that changed places are found unless they are 16 apart.
func checkCharacter(code []byte) byte {
	sum := 0
	for i, c := range code {
		sum += (2*i + 1) * strings.IndexByte(alphabet, c)
	}
	return alphabet[sum%len(alphabet)]
}

// FindCodes returns what may be codes in the text of a transfer, each once, in any case and with blanks and signs inside: banks cut, capitalize and
// strip the text, and put their own around it. Each place of any text passes as a code with a probability of 1 to 32, so the caller looks them up.
func FindCodes(text string) (codes []string) {
	kept := make([]byte, 0, min(len(text), MaxText))
	for _, c := range []byte(text[:min(len(text), MaxText)]) {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' {
			kept = append(kept, c)
		}
	}
	found := map[string]bool{}
	for i := 0; i+codeLength <= len(kept); i++ {
		code := kept[i : i+codeLength]
		if strings.Trim(string(code), alphabet) != "" || code[codeLength-1] != checkCharacter(code[:codeLength-1]) || found[string(code)] {
			continue
		}
		found[string(code)] = true
		codes = append(codes, string(code))
	}
	return codes
}

// MaxDrift is how far the time of a signature may be from ours. Older deliveries may be repeated ones.
const MaxDrift = 5 * time.Minute

// IsSigned reports whether a signature is the lower-case hex of HMAC-SHA256(secret, parts). An empty secret signs nothing. The time of the comparison
// depends only on the lengths.
func IsSigned(signature, secret string, parts ...[]byte) bool {
	if secret == "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	for _, part := range parts {
		mac.Write(part)
	}
	return hmac.Equal([]byte(hex.EncodeToString(mac.Sum(nil))), []byte(signature))
}

// IsRecent reports whether a time in Unix seconds, as a signature names it, is within [MaxDrift] of now.
func IsRecent(seconds string, now time.Time) bool {
	at, err := strconv.ParseInt(seconds, 10, 64)
	return err == nil && now.Sub(time.Unix(at, 0)).Abs() <= MaxDrift
}

// Only returns the value of a header that is there once, or an empty text: of two values, other software may read either.
func Only(header http.Header, name string) string {
	if values := header.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}
