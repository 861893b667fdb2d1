package payments_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/payments"
)

func TestReadAmount(t *testing.T) {
	t.Parallel()
	for digits, want := range map[string]int64{
		"500000": 500_000, "0": 0, "007": 7, "18067000.00": 18_067_000, "1.": -1, ".5": -1, "": -1, "1.01": -1, "-1": -1, "+1": -1, "1e3": -1, "1,000": -1,
		"9223372036854775807": -1, "922337203685477580": 922_337_203_685_477_580, "92233720368547758080": -1, "1.0.0": -1, "1_000": -1,
	} {
		got, err := payments.ReadAmount(digits, 0)
		require.Equal(t, want < 0, err != nil, "%q", digits)
		require.Equal(t, max(want, 0), got, "%q", digits)
	}
	cents, err := payments.ReadAmount("12.5", 2)
	require.NoError(t, err)
	require.EqualValues(t, 1250, cents)
	_, err = payments.ReadAmount("12.345", 2)
	require.Error(t, err)
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.StringMatching(`[0-9]{0,22}(\.[0-9]{0,3})?`).Draw(t, "digits")
		amount, err := payments.ReadAmount(digits, rapid.IntRange(0, 3).Draw(t, "decimals"))
		require.True(t, err == nil && amount >= 0 && amount < math.MaxInt64 || amount == 0)
	})
}

// A code survives what banks do to a text, and one wrong character or two that changed places are found.
func TestCodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		code := payments.NewCode()
		require.Len(rt, code, 9)
		around := rapid.StringMatching(`[A-Za-z0-9 .,/-]{0,20}`)
		written := strings.Join(strings.Split(code, ""), rapid.SampledFrom([]string{"", " ", "-", ". "}).Draw(rt, "between"))
		if rapid.Bool().Draw(rt, "lower") {
			written = strings.ToLower(written)
		}
		require.Contains(rt, payments.FindCodes(around.Draw(rt, "before")+written+around.Draw(rt, "after")), code)

		at := rapid.IntRange(0, 8).Draw(rt, "at")
		other := rapid.SampledFrom([]byte("0123456789ABCDEFGHJKMNPQRSTVWXYZ")).Draw(rt, "other")
		if wrong := code[:at] + string(other) + code[at+1:]; wrong != code {
			require.NotContains(rt, payments.FindCodes(wrong), wrong)
		}
	})
	require.Empty(t, payments.FindCodes(strings.Repeat("U", 1000)))
	require.Empty(t, payments.FindCodes(""))
	require.LessOrEqual(t, len(payments.FindCodes(strings.Repeat("AB12 ", 10_000))), payments.MaxText)
}

func TestPaymentCheck(t *testing.T) {
	t.Parallel()
	sound := payments.Payment{ID: "1", Kind: payments.Paid, Amount: 1, Currency: "VND", At: time.Unix(1, 0)}
	require.NoError(t, sound.Check())
	for name, spoil := range map[string]func(*payments.Payment){
		"no id":            func(p *payments.Payment) { p.ID = "" },
		"an id with space": func(p *payments.Payment) { p.ID = "a b" },
		"a long id":        func(p *payments.Payment) { p.ID = strings.Repeat("a", payments.MaxID+1) },
		"no kind":          func(p *payments.Payment) { p.Kind = "" },
		"nothing":          func(p *payments.Payment) { p.Amount = 0 },
		"a debt":           func(p *payments.Payment) { p.Amount = -1 },
		"no currency":      func(p *payments.Payment) { p.Currency = "" },
		"small letters":    func(p *payments.Payment) { p.Currency = "vnd" },
		"a long text":      func(p *payments.Payment) { p.Text = strings.Repeat("a", payments.MaxText+1) },
		"a broken text":    func(p *payments.Payment) { p.Text = "\xff" },
		"a line break":     func(p *payments.Payment) { p.Reference = "a\nb" },
		"no time":          func(p *payments.Payment) { p.At = time.Time{} },
		"a dispute":        func(p *payments.Payment) { p.Dispute = "dp_1" },
		"no dispute":       func(p *payments.Payment) { p.Kind = payments.Disputed },
	} {
		p := sound
		spoil(&p)
		require.Error(t, p.Check(), name)
		found, err := payments.Found(p)
		if strings.Contains(name, "id") {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		require.NotEmpty(t, found[0].Problem, name)
	}
}

func TestDescriptionCheck(t *testing.T) {
	t.Parallel()
	sound := func() *payments.Description {
		return &payments.Description{
			Name: "bank", Label: "Bank", ProofHelp: "It signs.", Secrets: []string{"secret"}, Setup: []string{"Give it %u."},
			Options: []option.Option{{Name: "secret", Kind: option.Secret, Check: payments.CheckSecret, Help: "the secret"}},
		}
	}
	require.NoError(t, sound().Check())
	for name, spoil := range map[string]func(*payments.Description){
		"no name":          func(d *payments.Description) { d.Name = "" },
		"no label":         func(d *payments.Description) { d.Label = "" },
		"no help":          func(d *payments.Description) { d.ProofHelp = "" },
		"no secret":        func(d *payments.Description) { d.Secrets = nil },
		"an open secret":   func(d *payments.Description) { d.Options[0].Kind = option.Text },
		"a short secret":   func(d *payments.Description) { d.Options[0].Check = nil },
		"another's secret": func(d *payments.Description) { d.Secrets = []string{"key"} },
		"no address":       func(d *payments.Description) { d.Setup = []string{"Do it."} },
		"a faulty option":  func(d *payments.Description) { d.Options[0].Help = "" },
	} {
		d := sound()
		spoil(d)
		require.Error(t, d.Check(), name)
	}
}
