// Package till is an adapter to a made-up provider of payments, the till. It is the example of docs/extending.md.
package till

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/payments"
)

const signatureHeader = "X-Till-Signature"

// Driver is the [payments.Driver] of the till.
type Driver struct{}

// Describe implements [payments.Driver].
func (Driver) Describe() *payments.Description {
	return &payments.Description{
		Name: "till", Label: "Till", ProofHelp: "X-Till-Signature is a time, a colon and the HMAC-SHA256 of the time and the raw body in hex.",
		Options: []option.Option{
			{Name: "signing_key", Kind: option.Secret, Required: true, Check: payments.CheckSecret, Help: "The key that signs deliveries."},
		},
		Secrets: []string{"signing_key"},
		Setup:   []string{"On the till's back enter the address %u and the key."},
	}
}

// New implements [payments.Driver].
func (Driver) New(config *payments.Config) (payments.Provider, error) { return &till{config}, nil }

type till struct{ *payments.Config }

// Read implements [payments.Provider]. It reads {"receipt":…,"cents":…,"note":…,"at":…}.
func (t *till) Read(d *payments.Delivery) ([]payments.Payment, error) {
	stamp, signature, _ := strings.Cut(payments.Only(d.Header, signatureHeader), ":")
	if !payments.IsRecent(stamp, t.Now()) || !payments.IsSigned(signature, t.Options["signing_key"], []byte(stamp), d.Body) {
		return nil, payments.ErrProof
	}
	var r struct {
		Receipt, Cents json.Number
		Note           string
		At             time.Time
	}
	if json.Unmarshal(d.Body, &r) != nil || r.Receipt == "" {
		return nil, errors.New("till: the body is no receipt")
	}
	made := payments.Payment{ID: r.Receipt.String(), Kind: payments.Paid, Currency: "USD", Text: payments.Text(r.Note), At: r.At}
	var err error
	if made.Amount, err = payments.ReadAmount(r.Cents.String(), 0); err != nil {
		made.Problem = err.Error()
	}
	return payments.Found(made)
}
