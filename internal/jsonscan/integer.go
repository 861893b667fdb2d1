package jsonscan

import "bytes"

// Integer returns the value of a number of [Scanner.Number] if it is a whole one below 10^18 in size, however it is written:
// 10, 10.0, 1e1 and 100e-1 are the same. It computes with digits, not with floats, so that nothing is rounded.
func Integer(number []byte) (value int64, ok bool) {
	negative := number[0] == '-'
	if negative {
		number = number[1:]
	}
	exponent := 0
	if at := bytes.IndexAny(number, "eE"); at >= 0 {
		exponent = parseExponent(number[at+1:])
		number = number[:at]
	}
	whole, fraction, _ := bytes.Cut(number, []byte("."))
	exponent -= len(fraction)
	// Trailing zeros go into the exponent, leading zeros go away: what is left is as short as it can be.
	digits := fraction
	if fraction = bytes.TrimRight(fraction, "0"); len(fraction) == 0 {
		exponent += len(digits)
		trimmed := bytes.TrimRight(whole, "0")
		exponent += len(whole) - len(trimmed)
		whole = trimmed
	} else {
		exponent += len(digits) - len(fraction)
	}
	if whole = bytes.TrimLeft(whole, "0"); len(whole) == 0 {
		fraction = bytes.TrimLeft(fraction, "0")
	}
	length := len(whole) + len(fraction)
	switch {
	case length == 0:
		return 0, true
	case exponent < 0 || length+exponent > 18:
		return 0, false
	}
	for _, part := range [2][]byte{whole, fraction} {
		for _, c := range part {
			value = 10*value + int64(c-'0')
		}
	}
	for range exponent {
		value *= 10
	}
	if negative {
		value = -value
	}
	return value, true
}

// parseExponent reads an exponent with its sign. It is bounded by a value that no text is long enough to balance.
func parseExponent(text []byte) int {
	const far = 1 << 40
	negative := text[0] == '-'
	value := 0
	for _, c := range bytes.TrimLeft(text, "+-") {
		if value = 10*value + int(c-'0'); value > far {
			value = far
		}
	}
	if negative {
		return -value
	}
	return value
}
