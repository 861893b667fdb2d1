// Package paymentstest checks adapters to providers of payments against the contract of package payments. A test of an adapter calls [Run]:
//
//	func TestContract(t *testing.T) {
//		paymentstest.Run(t, paymentstest.Suite{Driver: Driver{}, Options: …, Paid: …, Sign: …})
//	}
//
// The suite makes deliveries of the samples, spoils them, and repeats them. An adapter's own tests are about the peculiarities of its provider.
package paymentstest

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/payments"
)

// Suite describes an adapter to the checks.
type Suite struct {
	Driver payments.Driver
	// Options are values for the driver's options, as in [payments.Config]. The secrets that prove deliveries are among them.
	Options map[string]string
	// Paid is the body of a delivery about money that has arrived, a JSON object in the provider's form. %i in it is the id of the payment, a whole
	// number; %a the amount in the smallest unit, as the provider writes it; and %x a place among the payment's members for members with unknown
	// names, each with a comma after it.
	Paid string
	// Currency is the currency of Paid.
	Currency string
	// None are bodies of good deliveries without a payment, such as a transfer out. There may be none.
	None []string
	// Sign proves a body with the secrets of options, of which some or all may be missing or wrong: it returns the headers, and the body if the
	// proof is in it.
	Sign func(body []byte, at time.Time, options map[string]string) (http.Header, []byte)
	// Timeless is set if the proof has no time, and Bodiless if it isn't about the body: a key that is sent along, which proves less than a
	// signature.
	Timeless, Bodiless bool
}

// now is the time of the suite.
var now = time.Date(2026, 11, 24, 14, 15, 52, 0, time.UTC)

// checks are the checks of the suite by their names.
var checks = []struct {
	name string
	run  func(Suite, testing.TB)
}{
	{"description", Suite.description},
	{"read", Suite.read},
	{"again", Suite.again},
	{"unknown members", Suite.unknownMembers},
	{"no payment", Suite.noPayment},
	{"no proof", Suite.noProof},
	{"wrong secrets", Suite.wrongSecrets},
	{"empty secrets", Suite.emptySecrets},
	{"old", Suite.old},
	{"amounts", Suite.amounts},
	{"bodies", Suite.bodies},
}

// Run runs all checks.
func Run(t *testing.T, s Suite) {
	t.Helper()
	for _, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			t.Parallel()
			check.run(s, t)
		})
	}
}

func (s Suite) provider(t testing.TB, options map[string]string) payments.Provider {
	t.Helper()
	p, err := s.Driver.New(&payments.Config{Options: options, Client: &http.Client{Transport: unreachable{}}, Now: func() time.Time { return now }})
	require.NoError(t, err)
	return p
}

// unreachable is a network without the provider.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrServerClosed }

// body fills a delivery about money that has arrived.
func (s Suite) body(id, amount, members string) []byte {
	return []byte(strings.NewReplacer("%i", id, "%a", amount, "%x", members).Replace(s.Paid))
}

// deliver reads a body that is proved with the options.
func (s Suite) deliver(t testing.TB, body []byte) []payments.Payment {
	t.Helper()
	made, err := s.tryWith(t, body, now, s.Options, s.Options)
	require.NoError(t, err)
	for i := range made {
		require.NoError(t, made[i].Check())
	}
	return made
}

func (s Suite) tryWith(t testing.TB, body []byte, at time.Time, signed, configured map[string]string) ([]payments.Payment, error) {
	t.Helper()
	header, body := s.Sign(body, at, signed)
	kept := bytes.Clone(body)
	made, err := s.provider(t, configured).Read(&payments.Delivery{Header: header, Body: body})
	require.Equal(t, kept, body, "the body is as it was")
	clear(body) // nothing that was returned refers to it
	return made, err
}

// paid reads a delivery of one payment.
func (s Suite) paid(t testing.TB, id, amount, members string) payments.Payment {
	t.Helper()
	made := s.deliver(t, s.body(id, amount, members))
	require.Len(t, made, 1, "the sample is one payment")
	return made[0]
}

// The description is sound, and no configuration without a secret, or with a short one, is accepted.
func (s Suite) description(t testing.TB) {
	t.Helper()
	d := s.Driver.Describe()
	require.NoError(t, d.Check())
	for _, name := range d.Secrets {
		place := slices.IndexFunc(d.Options, func(o option.Option) bool { return o.Name == name })
		check := d.Options[place].Check
		require.NotNil(t, check, "%s: the length of the secret is checked", name)
		require.NotEmpty(t, check(""), "%s: an empty secret", name)
		require.NotEmpty(t, check(strings.Repeat("s", payments.MinSecret-1)), "%s: a short secret", name)
		require.Empty(t, check(strings.Repeat("s", 2*payments.MinSecret)), "%s: a good secret", name)
	}
}

func (s Suite) read(t testing.TB) {
	t.Helper()
	first, second := s.paid(t, "7001", "500000", ""), s.paid(t, "7002", "1", "")
	require.Equal(t, payments.Paid, first.Kind)
	require.EqualValues(t, 500_000, first.Amount)
	require.EqualValues(t, 1, second.Amount)
	require.Equal(t, s.Currency, first.Currency)
	require.Empty(t, first.Problem)
	require.False(t, first.Test)
	require.NotEqual(t, first.ID, second.ID, "another payment has another id")
}

// A payment has the same id in each delivery about it.
func (s Suite) again(t testing.TB) {
	t.Helper()
	first := s.paid(t, "7001", "500000", "")
	require.Equal(t, first, s.paid(t, "7001", "500000", ""))
	later, err := s.tryWith(t, s.body("7001", "500000", ""), now.Add(time.Minute), s.Options, s.Options)
	require.NoError(t, err)
	require.Len(t, later, 1)
	require.Equal(t, first.ID, later[0].ID)
	require.Equal(t, first.ID, s.paid(t, "7001", "500000", `"attempt":2,`).ID)
}

func (s Suite) unknownMembers(t testing.TB) {
	t.Helper()
	require.Equal(t, s.paid(t, "7001", "500000", ""),
		s.paid(t, "7001", "500000", `"anUnknownMember":{"a":[1,null]},"anotherOne":null,"zzz":"Hà Nội & =",`))
}

func (s Suite) noPayment(t testing.TB) {
	t.Helper()
	for _, body := range s.None {
		require.Empty(t, s.deliver(t, []byte(body)), "%s", body)
	}
}

// refuse requires that a delivery isn't proved.
func (s Suite) refuse(t testing.TB, header http.Header, body []byte, what string) {
	t.Helper()
	made, err := s.provider(t, s.Options).Read(&payments.Delivery{Header: header, Body: body})
	require.ErrorIs(t, err, payments.ErrProof, what)
	require.Empty(t, made, what)
}

func (s Suite) noProof(t testing.TB) {
	t.Helper()
	body := s.body("7001", "500000", "")
	header, signed := s.Sign(bytes.Clone(body), now, s.Options)
	for name := range header {
		if name == "Content-Type" {
			continue
		}
		without := header.Clone()
		without.Del(name)
		s.refuse(t, without, signed, "without "+name)
		twice := header.Clone()
		twice.Add(name, header.Get(name))
		s.refuse(t, twice, signed, "twice "+name)
	}
	s.refuse(t, http.Header{}, body, "nothing proves it")
	if s.Bodiless {
		return
	}
	s.refuse(t, header, bytes.Replace(signed, []byte("500000"), []byte("900000"), 1), "another amount")
}

// wrong returns the options with each secret that proves deliveries changed by a function.
func (s Suite) wrong(change func(string) string) map[string]string {
	options := maps.Clone(s.Options)
	for _, name := range s.Driver.Describe().Secrets {
		if options[name] != "" {
			options[name] = change(options[name])
		}
	}
	return options
}

func (s Suite) wrongSecrets(t testing.TB) {
	t.Helper()
	for what, change := range map[string]func(string) string{
		"another secret": func(secret string) string { return strings.Repeat("x", len(secret)) },
		"a longer one":   func(secret string) string { return secret + "x" },
		"a shorter one":  func(secret string) string { return secret[:len(secret)-1] },
		"an empty one":   func(string) string { return "" },
	} {
		made, err := s.tryWith(t, s.body("7001", "500000", ""), now, s.wrong(change), s.Options)
		require.ErrorIs(t, err, payments.ErrProof, what)
		require.Empty(t, made, what)
	}
}

// Without a secret nothing is proved, not even by who signs with an empty one.
func (s Suite) emptySecrets(t testing.TB) {
	t.Helper()
	empty := s.wrong(func(string) string { return "" })
	for what, signed := range map[string]map[string]string{"signed with nothing": empty, "signed with a secret": s.Options} {
		made, err := s.tryWith(t, s.body("7001", "500000", ""), now, signed, empty)
		require.ErrorIs(t, err, payments.ErrProof, what)
		require.Empty(t, made, what)
	}
}

func (s Suite) old(t testing.TB) {
	t.Helper()
	for _, away := range []time.Duration{-payments.MaxDrift - time.Second, payments.MaxDrift + time.Second} {
		made, err := s.tryWith(t, s.body("7001", "500000", ""), now.Add(away), s.Options, s.Options)
		if s.Timeless {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, payments.ErrProof, "signed %s away", away)
		require.Empty(t, made)
	}
}

// An amount that is no whole number is a problem for a person, never a rounded amount.
func (s Suite) amounts(t testing.TB) {
	t.Helper()
	for _, amount := range []string{"500000.5", "0.1", "5e5", "-500000", "0", "92233720368547758080", `"five"`, "null"} {
		made, err := s.tryWith(t, s.body("7001", amount, ""), now, s.Options, s.Options)
		if err != nil {
			require.NotErrorIs(t, err, payments.ErrProof, "%s: it was proved", amount)
			continue
		}
		require.Len(t, made, 1, amount)
		require.NoError(t, made[0].Check(), amount)
		require.NotEmpty(t, made[0].Problem, "%s became %d", amount, made[0].Amount)
	}
	require.EqualValues(t, 9_007_199_254_740_993, s.paid(t, "7001", "9007199254740993", "").Amount, "no float has this number")
}

// Reading any delivery ends with an error, or with sound payments.
func (s Suite) bodies(t testing.TB) {
	t.Helper()
	whole := s.body("7001", "500000", "")
	all := [][]byte{nil, []byte("{}"), []byte("[]"), []byte("null"), []byte(`""`), []byte("{"), []byte(`{"data":{"object":null}}`)}
	for end := range whole {
		all = append(all, whole[:end], slices.Concat(whole[:end], []byte{0xff}, whole[end:]))
	}
	for _, body := range all {
		made, err := s.tryWith(t, body, now, s.Options, s.Options)
		for i := range made {
			require.NoError(t, made[i].Check(), "%q", body)
		}
		require.True(t, err == nil || len(made) == 0, "%q: an error and payments", body)
	}
}
