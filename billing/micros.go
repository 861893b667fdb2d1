package billing

import (
	"errors"
	"strconv"
)

// ErrMicrosSyntax is returned by [ParseMicros] for a text that [FormatMicros] would never write.
var ErrMicrosSyntax = errors.New("micros must be a plain decimal integer such as 1500000")

// FormatMicros writes an amount as money travels in JSON: a decimal string, so that no client rounds it
// (spec §2.5 charged_micros).
func FormatMicros(micros int64) string {
	return strconv.FormatInt(micros, 10)
}

// ParseMicros reads what [FormatMicros] writes and nothing else: no sign but a leading minus, no leading zeros, no
// spaces, no fraction, no exponent. It returns [ErrMicrosSyntax], or [ErrOverflow] for a number beyond an int64.
func ParseMicros(text string) (int64, error) {
	digits := text
	if digits != "" && digits[0] == '-' {
		digits = digits[1:]
	}
	if digits == "" || (digits[0] == '0' && text != "0") {
		return 0, ErrMicrosSyntax
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, ErrMicrosSyntax
		}
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, ErrOverflow
	}
	return micros, nil
}
