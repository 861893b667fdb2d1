// Package vietqr makes the codes by which people in Vietnam transfer money with their bank's app: EMVCo's merchant-presented QR code with the fields
// of NAPAS for a transfer to an account ("VietQR", version 1.0 of 2021).
package vietqr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// MaxAmount is the largest amount of a transfer in dong: EMVCo's field 54 has 13 digits.
const MaxAmount = 9_999_999_999_999

// Transfer is a transfer to be made.
type Transfer struct {
	// Bank is the bank's number of six digits (BIN), such as 970436, and Account the number of the account, of 1 to 19 letters and digits.
	Bank, Account string
	// Amount is in dong, up to [MaxAmount]. 0 leaves it to the payer.
	Amount int64
	// Purpose is the text of the transfer, of up to 25 capitals, digits and blanks. Banks change other characters.
	Purpose string
}

const digits = "0123456789"

// Check returns the first fault of the transfer, or nil.
func (t *Transfer) Check() error {
	const capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + digits
	switch {
	case len(t.Bank) != 6 || strings.Trim(t.Bank, digits) != "":
		return errors.New("the number of the bank has six digits, such as 970436")
	case t.Account == "" || len(t.Account) > 19 || strings.Trim(t.Account, capitals) != "":
		return errors.New("the account has 1 to 19 capitals and digits")
	case t.Amount < 0 || t.Amount > MaxAmount:
		return errors.New("the amount is negative or has more than 13 digits")
	case len(t.Purpose) > 25 || strings.Trim(t.Purpose, capitals+" ") != "":
		return errors.New("the purpose has up to 25 capitals, digits and blanks")
	}
	return nil
}

// Text returns the content of the code. The transfer must pass [Transfer.Check].
func (t *Transfer) Text() string {
	once := "11" // the code may be used again
	amount, purpose := "", ""
	if t.Amount > 0 {
		once, amount = "12", field("54", strconv.FormatInt(t.Amount, 10))
	}
	if t.Purpose != "" {
		purpose = field("62", field("08", t.Purpose))
	}
	account := field("00", "A000000727") + field("01", field("00", t.Bank)+field("01", t.Account)) + field("02", "QRIBFTTA")
	text := field("00", "01") + field("01", once) + field("38", account) + field("53", "704") + amount + field("58", "VN") + purpose + "6304"
	return text + fmt.Sprintf("%04X", checksum(text))
}

// field returns a field of EMVCo's format: its number, the length of its value in two digits, and the value.
func field(number, value string) string { return fmt.Sprintf("%s%02d%s", number, len(value), value) }

// checksum is CRC-16/CCITT with the polynomial 0x1021, which begins with 0xFFFF.
func checksum(text string) uint16 {
	sum := uint16(0xFFFF)
	for _, b := range []byte(text) {
		sum ^= uint16(b) << 8
		for range 8 {
			carry := sum&0x8000 != 0
			if sum <<= 1; carry {
				sum ^= 0x1021
			}
		}
	}
	return sum
}

// quiet is the width of the border that a reader needs, in modules.
const quiet = 4

// SVG returns a picture of a text as a QR code, which is as large as the page makes it. It has one path, and no style that a page's policy refuses.
func SVG(text string) (string, error) {
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return "", fmt.Errorf("drawing a QR code: %w", err)
	}
	var path strings.Builder
	size := code.Bounds().Dx()
	for y := range size {
		for x := range size {
			if r, _, _, _ := code.At(x, y).RGBA(); r == 0 {
				fmt.Fprintf(&path, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	side := size + 2*quiet
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" shape-rendering="crispEdges" role="img">`+
		`<path fill="#fff" d="M0 0h%dv%dH0z"/><path fill="#000" d="%s"/></svg>`, side, side, side, side, path.String()), nil
}
