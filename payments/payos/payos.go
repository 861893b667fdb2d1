// Package payos reads the deliveries of payOS, which makes payment links for transfers between banks in Vietnam (payos.vn/docs, "Webhook").
package payos

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/payments"
)

// Driver makes payOS available.
type Driver struct{}

// Describe implements [payments.Driver].
func (Driver) Describe() *payments.Description {
	return &payments.Description{
		Name: "payos", Label: "payOS",
		ProofHelp: "The member signature is the hex of HMAC-SHA256 with the checksum key, over the members of data, sorted by name and joined as " +
			"name=value with &.",
		Answer: `{"success":true}`,
		Options: []option.Option{
			{
				Name: "checksum_key", Kind: option.Secret, Required: true, Check: payments.CheckSecret,
				Help: "the checksum key of the payment channel",
			},
		},
		Secrets: []string{"checksum_key"},
		Setup:   []string{"In payOS, set the webhook URL of the payment channel to %u, and give its checksum key as `checksum_key`."},
	}
}

// New implements [payments.Driver].
func (Driver) New(config *payments.Config) (payments.Provider, error) { return &provider{config}, nil }

type provider struct{ *payments.Config }

// succeeded is the code of a transfer that has arrived.
const succeeded = "00"

// vietnam is the zone of payOS's times, which has no summer time.
var vietnam = time.FixedZone("Asia/Ho_Chi_Minh", 7*60*60)

// Read implements [payments.Provider].
func (p *provider) Read(d *payments.Delivery) ([]payments.Payment, error) {
	var envelope struct {
		Data      map[string]json.RawMessage `json:"data"`
		Signature string                     `json:"signature"`
	}
	// The signature is in the body, so it must be read before anything is proved; the product bounds the body.
	if err := json.Unmarshal(d.Body, &envelope); err != nil || len(envelope.Data) == 0 {
		return nil, payments.ErrProof
	}
	signed, err := signedText(envelope.Data)
	if err != nil || !payments.IsSigned(envelope.Signature, p.Options["checksum_key"], signed) {
		return nil, payments.ErrProof
	}
	var data struct {
		Link      string      `json:"paymentLinkId"`
		Code      string      `json:"code"`
		Amount    json.Number `json:"amount"`
		Currency  string      `json:"currency"`
		Text      string      `json:"description"`
		Reference string      `json:"reference"`
		Account   string      `json:"accountNumber"`
		At        string      `json:"transactionDateTime"`
	}
	whole, err := json.Marshal(envelope.Data)
	if err == nil {
		err = json.Unmarshal(whole, &data)
	}
	switch {
	case data.Reference == "" || data.Link == "":
		return nil, errors.New("payos: the body is no transfer")
	case data.Code != succeeded && (data.Code != "" || err == nil):
		return nil, nil
	}
	made := payments.Payment{
		ID: data.Reference + ":" + data.Link, Kind: payments.Paid, Currency: data.Currency, Text: payments.Text(data.Text),
		Reference: data.Reference, Account: data.Account,
	}
	if err != nil {
		made.Problem = "a member of the transfer can't be read"
	}
	if made.Amount, err = payments.ReadAmount(data.Amount.String(), 0); err != nil || made.Amount == 0 {
		made.Problem = "the amount is no whole number of dong"
	}
	if made.At, err = time.ParseInLocation(time.DateTime, data.At, vietnam); err != nil {
		made.Problem = "the time can't be read"
	}
	return payments.Found(made)
}

// signedText returns the text that payOS signs: of all members that were received, because payOS adds some without notice. Numbers are as they were
// written; null is empty.
func signedText(data map[string]json.RawMessage) ([]byte, error) {
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(data)) {
		value := strings.TrimSpace(string(data[name]))
		switch {
		case value == "null":
			value = ""
		case strings.HasPrefix(value, `"`):
			if err := json.Unmarshal(data[name], &value); err != nil {
				return nil, err
			}
			if value == "null" || value == "undefined" { // as payOS's own libraries do
				value = ""
			}
		}
		if text.Len() > 0 {
			text.WriteByte('&')
		}
		text.WriteString(name + "=" + value)
	}
	return text.Bytes(), nil
}
