package text_test

import (
	"html/template"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct{ chosen, header, want string }{
		{"", "", "en"},
		{"", "vi-VN,vi;q=0.9,en;q=0.8", "vi"},
		{"", "fr-FR,vi;q=0.5", "vi"},
		{"", "fr", "en"},
		{"", "en-GB,vi;q=0.3", "en"},
		{"en", "vi", "en"},
		{"vi", "en", "vi"},
		{"xx", "vi", "vi"},
		{"", "*;;q=zz", "en"},
	} {
		require.Equal(t, c.want, string(text.Choose(c.chosen, c.header)), c)
	}
}

func TestAmounts(t *testing.T) {
	for _, c := range []struct{ micros, english, vietnamese, dollars, credits string }{
		{"1284350000000", "₫1,284,350", "1.284.350 ₫", "$1,284,350.00", "1.284.350,00 tín dụng"},
		{"6250000", "₫6.25", "6,25 ₫", "$6.25", "6,25 tín dụng"},
		{"6500000", "₫6.50", "6,50 ₫", "$6.50", "6,50 tín dụng"},
		{"0", "₫0", "0 ₫", "$0.00", "0,00 tín dụng"},
		{"-12500000", "-₫12.50", "-12,50 ₫", "-$12.50", "-12,50 tín dụng"},
		{"5999999", "≈ ₫6", "≈ 6 ₫", "≈ $6.00", "≈ 6,00 tín dụng"},
		{"1234567", "≈ ₫1.23", "≈ 1,23 ₫", "≈ $1.23", "≈ 1,23 tín dụng"},
		{"-123", "-₫0.000123", "-0,000123 ₫", "-$0.000123", "-0,000123 tín dụng"},
		{"-9223372036854775808", "≈ -₫9,223,372,036,854.78", "≈ -9.223.372.036.854,78 ₫", "≈ -$9,223,372,036,854.78", "≈ -9.223.372.036.854,78 tín dụng"},
		{"none", "none", "none", "none", "none"},
	} {
		got := []string{
			text.New(text.English, "VND").Amount(c.micros), text.New(text.Vietnamese, "VND").Amount(c.micros),
			text.New(text.English, "USD").Amount(c.micros), text.New(text.Vietnamese, "").Amount(c.micros),
		}
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], "\u00a0", " ")
		}
		require.Equal(t, []string{c.english, c.vietnamese, c.dollars, c.credits}, got)
	}
	vietnamese := text.New(text.Vietnamese, "VND")
	require.Equal(t, "0,0312\u00a0₫", vietnamese.Breakdown("31200"))
	require.Equal(t, "≈\u00a01,2346\u00a0₫", vietnamese.Breakdown("1234567"))
	require.Equal(t, "12.50 credits", text.New(text.English, "").Amount("12500000"))
	require.True(t, text.ValidCurrency("VND"))
	require.False(t, text.ValidCurrency("dong"))
}

func TestTimesAndNumbers(t *testing.T) {
	english, vietnamese := text.New(text.English, ""), text.New(text.Vietnamese, "")
	require.Equal(t, "21 Nov 2026, 10:05 UTC", english.Moment("2026-11-21T17:05:59+07:00"))
	require.Equal(t, "10:05 21/11/2026 UTC", vietnamese.Moment("2026-11-21T10:05:59Z"))
	require.Equal(t, "never", vietnamese.Moment("never"))
	require.Equal(t, "3 Feb 2026", english.Day("2026-02-03"))
	require.Equal(t, "03/02/2026", vietnamese.Day("2026-02-03"))
	require.Equal(t, "1,284", english.Number(1284))
	require.Equal(t, "1.284", vietnamese.Number(1284))
}

func TestTemplates(t *testing.T) {
	write := func(printer *text.Printer, source string) string {
		var out strings.Builder
		made := template.Must(template.New("").Funcs(printer.Functions()).Parse(source))
		require.NoError(t, made.Execute(&out, map[string]any{"name": "<Lan>", "at": "2026-11-21T10:05:00Z", "none": (*string)(nil)}))
		return out.String()
	}
	english := text.New(text.English, "VND")
	require.Equal(t, "100% &amp; more", write(english, `{{t "100% & more"}}`))
	require.Equal(t, "a &amp; &lt;Lan&gt; 1,284", write(english, `{{tf "a & %s %d" .name 1284}}`))
	require.Equal(t, `a &amp; <b>&lt;Lan&gt;</b> &lt;Lan&gt;`, write(english, `{{tf "a & %s %s" (mark "b" .name) .name}}`))
	require.Equal(t, `<a href="/x?a=1&amp;b=2">&lt;Lan&gt;</a>.`, write(english, `{{tf "%s." (link "/x?a=1&b=2" .name)}}`))
	require.Equal(t, `since <time datetime="2026-11-21T10:05:00Z">21 Nov 2026, 10:05 UTC</time>`, write(english, `{{tf "since %s" (moment .at)}}`))
	require.Empty(t, write(english, `{{moment .none}}`))
	require.Equal(t, "vi 1.000 02/01/2026", write(text.New(text.Vietnamese, "VND"), `{{language}} {{number 1000}} {{day "2026-01-02"}}`))
}
