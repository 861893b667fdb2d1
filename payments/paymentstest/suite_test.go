package paymentstest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/payments"
)

// bank is a sound adapter, whose parts the tests replace by wrong ones.
type bank struct {
	describe func(*payments.Description)
	read     func(b *bankProvider, d *payments.Delivery) ([]payments.Payment, error)
	proves   func(b *bankProvider, d *payments.Delivery) bool
	payment  func(p *payments.Payment, d *payments.Delivery, amount string)
}

func (b bank) Describe() *payments.Description {
	d := &payments.Description{
		Name: "bank", Label: "Bank", ProofHelp: "It signs.", Secrets: []string{"secret"}, Setup: []string{"Give it %u."},
		Options: []option.Option{{Name: "secret", Kind: option.Secret, Required: true, Check: payments.CheckSecret, Help: "the secret"}},
	}
	if b.describe != nil {
		b.describe(d)
	}
	return d
}

func (b bank) New(config *payments.Config) (payments.Provider, error) {
	return &bankProvider{config, b}, nil
}

type bankProvider struct {
	*payments.Config

	bank bank
}

func (b *bankProvider) Read(d *payments.Delivery) ([]payments.Payment, error) {
	proves := signed
	if b.bank.proves != nil {
		proves = b.bank.proves
	}
	if !proves(b, d) {
		return nil, payments.ErrProof
	}
	if b.bank.read != nil {
		return b.bank.read(b, d)
	}
	return read(b, d)
}

func signed(b *bankProvider, d *payments.Delivery) bool {
	stamp := payments.Only(d.Header, "X-Time")
	return payments.IsRecent(stamp, b.Now()) && payments.IsSigned(payments.Only(d.Header, "X-Sign"), b.Options["secret"], []byte(stamp), d.Body)
}

func read(b *bankProvider, d *payments.Delivery) ([]payments.Payment, error) {
	var body struct {
		ID     json.Number
		Amount json.RawMessage
		Out    bool
	}
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return nil, err
	}
	if body.Out {
		return nil, nil
	}
	p := payments.Payment{ID: body.ID.String(), Kind: payments.Paid, Currency: "VND", At: now}
	var err error
	if p.Amount, err = payments.ReadAmount(string(body.Amount), 0); err != nil || p.Amount == 0 {
		p.Problem = "the amount is no whole number"
	}
	if b.bank.payment != nil {
		b.bank.payment(&p, d, string(body.Amount))
		return []payments.Payment{p}, nil
	}
	return payments.Found(p)
}

func suiteOf(b bank) Suite {
	return Suite{
		Driver: b, Options: map[string]string{"secret": "a-secret-of-the-bank"}, Paid: `{%x"id":%i,"amount":%a}`, Currency: "VND",
		None: []string{`{"id":1,"amount":5,"out":true}`},
		Sign: func(body []byte, at time.Time, options map[string]string) (http.Header, []byte) {
			stamp := strconv.FormatInt(at.Unix(), 10)
			mac := hmac.New(sha256.New, []byte(options["secret"]))
			mac.Write([]byte(stamp))
			mac.Write(body)
			return http.Header{"X-Time": {stamp}, "X-Sign": {hex.EncodeToString(mac.Sum(nil))}}, body
		},
	}
}

func TestSoundAdapter(t *testing.T) {
	t.Parallel()
	Run(t, suiteOf(bank{}))
}

// TestWrongAdapters guarantees that the suite refuses each of these adapters, by the check that is about its fault.
func TestWrongAdapters(t *testing.T) {
	t.Parallel()
	seen := 0
	for name, wrong := range map[string]struct {
		check string
		bank  bank
	}{
		"no secret":           {"description", bank{describe: func(d *payments.Description) { d.Secrets = nil }}},
		"any secret":          {"description", bank{describe: func(d *payments.Description) { d.Options[0].Check = nil }}},
		"a short secret":      {"description", bank{describe: func(d *payments.Description) { d.Options[0].Check = func(string) string { return "" } }}},
		"no proof":            {"no proof", bank{proves: func(*bankProvider, *payments.Delivery) bool { return true }}},
		"the first signature": {"no proof", bank{proves: func(b *bankProvider, d *payments.Delivery) bool { return signed(b, firstOnly(d)) }}},
		"the body isn't proved": {"no proof", bank{proves: func(_ *bankProvider, d *payments.Delivery) bool {
			return payments.Only(d.Header, "X-Sign") != "" && payments.Only(d.Header, "X-Time") != ""
		}}},
		"any signature": {"wrong secrets", bank{proves: func(_ *bankProvider, d *payments.Delivery) bool { return payments.Only(d.Header, "X-Sign") != "" }}},
		"an empty secret": {"empty secrets", bank{proves: func(b *bankProvider, d *payments.Delivery) bool {
			mac := hmac.New(sha256.New, []byte(b.Options["secret"]))
			mac.Write([]byte(payments.Only(d.Header, "X-Time")))
			mac.Write(d.Body)
			return hex.EncodeToString(mac.Sum(nil)) == payments.Only(d.Header, "X-Sign")
		}}},
		"an old signature": {"old", bank{proves: func(b *bankProvider, d *payments.Delivery) bool {
			return payments.IsSigned(payments.Only(d.Header, "X-Sign"), b.Options["secret"], []byte(payments.Only(d.Header, "X-Time")), d.Body)
		}}},
		"a float": {"amounts", bank{payment: func(p *payments.Payment, _ *payments.Delivery, amount string) {
			float, _ := strconv.ParseFloat(amount, 64)
			p.Amount, p.Problem = int64(float), ""
		}}},
		"an id of its own": {"again", bank{payment: func(p *payments.Payment, _ *payments.Delivery, _ string) {
			seen++
			p.ID = strconv.Itoa(seen)
		}}},
		"one id for all": {"read", bank{payment: func(p *payments.Payment, _ *payments.Delivery, _ string) { p.ID = "1" }}},
		"unknown members": {"unknown members", bank{read: func(b *bankProvider, d *payments.Delivery) ([]payments.Payment, error) {
			if strings.Contains(string(d.Body), "anUnknownMember") {
				return nil, http.ErrNotSupported
			}
			return read(b, d)
		}}},
		"a transfer out": {"no payment", bank{read: func(b *bankProvider, d *payments.Delivery) ([]payments.Payment, error) {
			return read(b, &payments.Delivery{Body: []byte(strings.Replace(string(d.Body), "true", "false", 1))})
		}}},
		"a panic": {"bodies", bank{read: func(b *bankProvider, d *payments.Delivery) ([]payments.Payment, error) {
			_ = d.Body[0]
			return read(b, d)
		}}},
		"a changed body": {"read", bank{read: func(b *bankProvider, d *payments.Delivery) ([]payments.Payment, error) {
			made, err := read(b, d)
			d.Body[0] = ' '
			return made, err
		}}},
	} {
		place := slices.IndexFunc(checks, func(c struct {
			name string
			run  func(Suite, testing.TB)
		},
		) bool {
			return c.name == wrong.check
		})
		require.False(t, fails(t, checks[place].run, suiteOf(bank{})), "%s: the check accepts a sound adapter", name)
		require.True(t, fails(t, checks[place].run, suiteOf(wrong.bank)), "%s: the check %q refuses it", name, wrong.check)
	}
}

// firstOnly returns the delivery as software sees it that reads only the first value of a header.
func firstOnly(d *payments.Delivery) *payments.Delivery {
	header := http.Header{}
	for name, values := range d.Header {
		header.Set(name, values[0])
	}
	return &payments.Delivery{Header: header, Body: d.Body}
}

// verdict is a test whose failure is noted instead of reported.
type verdict struct {
	testing.TB

	mu     sync.Mutex
	failed bool
}

func (v *verdict) Errorf(string, ...any) { v.fail() }

func (v *verdict) FailNow() {
	v.fail()
	runtime.Goexit()
}

func (v *verdict) fail() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = true
}

// fails reports whether a check fails or panics.
func fails(t *testing.T, check func(Suite, testing.TB), s Suite) bool {
	t.Helper()
	v := &verdict{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if recover() != nil {
				v.fail()
			}
		}()
		check(s, v)
	}()
	<-ended
	return v.failed
}
