package vietqr_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/payments/vietqr"
)

// The first text is an example of NAPAS' specification.
func TestText(t *testing.T) {
	t.Parallel()
	static := vietqr.Transfer{Bank: "970403", Account: "0011012345678"}
	require.NoError(t, static.Check())
	require.Equal(t, "00020101021138570010A00000072701270006970403011300110123456780208QRIBFTTA53037045802VN63049E6F", static.Text())
	paid := vietqr.Transfer{Bank: "970403", Account: "0011012345678", Amount: 180_000, Purpose: "NAP BS7K2Q04A"}
	require.NoError(t, paid.Check())
	require.Equal(t, "00020101021238570010A00000072701270006970403011300110123456780208QRIBFTTA53037045406180000"+
		"5802VN62170813NAP BS7K2Q04A6304", paid.Text()[:len(paid.Text())-4])
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*vietqr.Transfer){
		"a short bank":     func(t *vietqr.Transfer) { t.Bank = "97043" },
		"a bank's name":    func(t *vietqr.Transfer) { t.Bank = "VIETCB" },
		"no account":       func(t *vietqr.Transfer) { t.Account = "" },
		"a long account":   func(t *vietqr.Transfer) { t.Account = strings.Repeat("1", 20) },
		"a debt":           func(t *vietqr.Transfer) { t.Amount = -1 },
		"too much":         func(t *vietqr.Transfer) { t.Amount = 1e13 },
		"a long purpose":   func(t *vietqr.Transfer) { t.Purpose = strings.Repeat("A", 26) },
		"small letters":    func(t *vietqr.Transfer) { t.Purpose = "nap" },
		"Vietnamese marks": func(t *vietqr.Transfer) { t.Purpose = "NẠP" },
	} {
		sound := vietqr.Transfer{Bank: "970403", Account: "0011012345678", Amount: 1, Purpose: "NAP"}
		spoil(&sound)
		require.Error(t, sound.Check(), name)
	}
}

// The picture is XML without scripts and styles, so that a page may show it under its policy.
func TestSVG(t *testing.T) {
	t.Parallel()
	picture, err := vietqr.SVG((&vietqr.Transfer{Bank: "970403", Account: "0011012345678"}).Text())
	require.NoError(t, err)
	decoder, elements := xml.NewDecoder(strings.NewReader(picture)), 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok {
			elements++
			require.Contains(t, []string{"svg", "path"}, start.Name.Local)
			for _, attribute := range start.Attr {
				require.NotContains(t, []string{"style", "onload"}, attribute.Name.Local)
			}
		}
	}
	require.Equal(t, 3, elements)
	_, err = vietqr.SVG(strings.Repeat("A", 10_000))
	require.Error(t, err)
}
