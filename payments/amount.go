package payments

import (
	"errors"
	"math"
	"strings"
)

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
