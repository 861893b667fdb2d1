// Package stripe makes pages of Stripe Checkout for payments, and reads the deliveries of Stripe's webhooks (docs.stripe.com, "Fulfill orders",
// "Webhooks").
package stripe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/payments"
)

// Driver makes Stripe available.
type Driver struct{}

// Describe implements [payments.Driver].
func (Driver) Describe() *payments.Description {
	return &payments.Description{
		Name: "stripe", Label: "Stripe",
		ProofHelp: "Stripe-Signature has a time t and one or more v1, the hex of HMAC-SHA256 with the endpoint's secret, over t, a dot and the raw " +
			"body. It is accepted for 5 minutes.",
		Options: []option.Option{
			{
				Name: "signing_secret", Kind: option.Secret, Required: true, Check: payments.CheckSecret,
				Help: "the signing secret of the webhook endpoint",
			},
			{Name: "api_key", Kind: option.Secret, Required: true, Help: "a restricted key that may write Checkout Sessions"},
			{Name: "api_base", Kind: option.Address, Help: "the address of Stripe's interface; default: " + apiBase},
		},
		Secrets: []string{"signing_secret"},
		Setup: []string{
			"In Stripe, add a webhook endpoint with the address %u and the API version " + apiVersion + ".",
			"Choose checkout.session.completed, checkout.session.async_payment_succeeded, charge.refunded, charge.dispute.funds_withdrawn and " +
				"charge.dispute.funds_reinstated.",
			"Give its signing secret as `signing_secret`, and a restricted key that may write Checkout Sessions as `api_key`.",
		},
	}
}

// New implements [payments.Driver].
func (Driver) New(config *payments.Config) (payments.Provider, error) {
	return &provider{config, cmp.Or(strings.TrimSuffix(config.Options["api_base"], "/"), apiBase)}, nil
}

const (
	apiBase = "https://api.stripe.com"
	// apiVersion is the version in which deliveries and answers are read. Their members change with it.
	apiVersion = "2025-03-31.basil"
	maxAnswer  = 4 << 20
	mostPages  = 100
	// lateness is how long after its session a payment may arrive: banks confirm debits after up to 14 days.
	lateness = 14 * 24 * time.Hour
)

type provider struct {
	*payments.Config

	api string
}

// session is a Checkout Session.
type session struct {
	ID            string      `json:"id"`
	PaymentIntent string      `json:"payment_intent"`
	Status        string      `json:"payment_status"`
	Mode          string      `json:"mode"`
	Amount        json.Number `json:"amount_total"`
	Currency      string      `json:"currency"`
	Code          string      `json:"client_reference_id"`
	Created       int64       `json:"created"`
	Live          bool        `json:"livemode"`
}

// payment returns the payment of a session; ok is false unless it is paid. no_payment_required is no money, and a subscription is of another
// business of the account: we make none.
func (s *session) payment() (made payments.Payment, ok bool) {
	if s.Status != "paid" || s.Mode == "subscription" {
		return payments.Payment{}, false
	}
	made = payments.Payment{ID: cmp.Or(s.PaymentIntent, s.ID), Kind: payments.Paid, Code: s.Code, At: time.Unix(s.Created, 0), Test: !s.Live}
	setAmount(&made, s.Amount, s.Currency)
	return made, true
}

// Read implements [payments.Provider].
func (p *provider) Read(d *payments.Delivery) ([]payments.Payment, error) {
	if !p.proves(d) {
		return nil, payments.ErrProof
	}
	var event struct {
		Type    string `json:"type"`
		Created int64  `json:"created"`
		Data    struct {
			Object json.RawMessage `json:"object"`
		} `json:"data"`
	}
	if err := json.Unmarshal(d.Body, &event); err != nil || event.Type == "" {
		return nil, errors.New("stripe: the body is no event")
	}
	var made payments.Payment
	var isPayment bool
	var err error
	switch event.Type {
	case "checkout.session.completed", "checkout.session.async_payment_succeeded":
		var s session
		err = json.Unmarshal(event.Data.Object, &s)
		if made, isPayment = s.payment(); err != nil && isPayment {
			made.Problem, err = "a member of the session can't be read", nil
		}
	case refunded, withdrawn, reinstated:
		var c charge
		if err = json.Unmarshal(event.Data.Object, &c); err == nil {
			made, isPayment = c.payment(event.Type)
		}
	}
	if err != nil {
		return nil, errors.New("stripe: the object of the event can't be read")
	}
	if !isPayment {
		return nil, nil
	}
	made.At = time.Unix(event.Created, 0)
	return payments.Found(made)
}

// proves reports whether one of the signatures is right; there are several while the secret is rotated.
func (p *provider) proves(d *payments.Delivery) bool {
	stamp, signatures := "", []string(nil)
	for part := range strings.SplitSeq(payments.Only(d.Header, "Stripe-Signature"), ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "t":
			stamp = value
		case "v1":
			signatures = append(signatures, value)
		}
	}
	if !payments.IsRecent(stamp, p.Now()) {
		return false
	}
	for _, signature := range signatures[:min(len(signatures), 4)] {
		if payments.IsSigned(signature, p.Options["signing_secret"], []byte(stamp), []byte("."), d.Body) {
			return true
		}
	}
	return false
}

// charge has the members of a charge and of a dispute that are read.
type charge struct {
	ID            string      `json:"id"`
	PaymentIntent string      `json:"payment_intent"`
	Refunded      json.Number `json:"amount_refunded"` // in all
	Disputed      json.Number `json:"amount"`
	Currency      string      `json:"currency"`
	Live          bool        `json:"livemode"`
}

// The events about money that was given back, withdrawn for a dispute, or returned. A new dispute has moved no money; it may be an inquiry.
const (
	refunded   = "charge.refunded"
	withdrawn  = "charge.dispute.funds_withdrawn"
	reinstated = "charge.dispute.funds_reinstated"
)

func (c *charge) payment(event string) (made payments.Payment, ok bool) {
	made = payments.Payment{ID: c.PaymentIntent, Test: !c.Live}
	amount := c.Disputed
	switch {
	case c.PaymentIntent == "":
		return payments.Payment{}, false
	case event == refunded:
		made.Kind, amount = payments.Refunded, c.Refunded
	case event == withdrawn:
		made.Kind, made.Dispute = payments.Disputed, c.ID
	default:
		made.Kind, made.Dispute = payments.DisputeWon, c.ID
	}
	setAmount(&made, amount, c.Currency)
	return made, true
}

// setAmount reads an amount in the smallest unit, or in its unit of Stripe.
func setAmount(p *payments.Payment, amount json.Number, currency string) {
	var err error
	p.Currency = strings.ToUpper(currency)
	p.Amount, err = payments.ReadAmount(amount.String(), 0)
	if unit := unitOf(p.Currency); err != nil || p.Amount == 0 || p.Amount%unit != 0 {
		p.Problem = "the amount is no whole number"
	} else {
		p.Amount /= unit
	}
}

// unitOf returns how many of Stripe's units are the smallest unit of a currency in capitals. Stripe still counts in hundredths of kronur and of
// shillings, which have none (docs.stripe.com, "Supported currencies").
func unitOf(currency string) int64 {
	if currency == "ISK" || currency == "UGX" {
		return 100
	}
	return 1
}

// Begin implements [payments.Checkout]. The code is the key of the request, so that a repeated order has the same session.
func (p *provider) Begin(ctx context.Context, order *payments.Order) (string, error) {
	form := url.Values{
		"mode": {"payment"}, "client_reference_id": {order.Code}, "success_url": {order.ReturnURL}, "cancel_url": {order.ReturnURL},
		"line_items[0][quantity]": {"1"}, "line_items[0][price_data][currency]": {strings.ToLower(order.Currency)},
		"line_items[0][price_data][unit_amount]":        {strconv.FormatInt(order.Amount*unitOf(order.Currency), 10)},
		"line_items[0][price_data][product_data][name]": {order.Title},
	}
	var made struct {
		URL string `json:"url"`
	}
	err := p.call(ctx, http.MethodPost, "/v1/checkout/sessions", form, "checkout-"+order.Code, &made)
	if err == nil && !strings.HasPrefix(made.URL, "https://") {
		err = errors.New("stripe: the session has no address")
	}
	return made.URL, err
}

// List implements [payments.Lister]: it lists the paid sessions.
func (p *provider) List(ctx context.Context, since time.Time, found func(payments.Payment) bool) error {
	query := url.Values{"created[gte]": {strconv.FormatInt(since.Add(-lateness).Unix(), 10)}, "status": {"complete"}, "limit": {"100"}}
	for range mostPages {
		var page struct {
			Data []session `json:"data"`
			More bool      `json:"has_more"`
		}
		if err := p.call(ctx, http.MethodGet, "/v1/checkout/sessions?"+query.Encode(), nil, "", &page); err != nil {
			return err
		}
		for i := range page.Data {
			if made, ok := page.Data[i].payment(); ok && !found(made) {
				return nil
			}
		}
		if !page.More || len(page.Data) == 0 {
			return nil
		}
		query.Set("starting_after", page.Data[len(page.Data)-1].ID)
	}
	return fmt.Errorf("stripe: there are more than %d sessions since %s", 100*mostPages, since.Format(time.DateOnly))
}

// call makes a request of Stripe's interface and reads its answer. No error has Stripe's text, which may name the key.
func (p *provider) call(ctx context.Context, method, path string, form url.Values, key string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, p.api+path, strings.NewReader(form.Encode()))
	if err != nil {
		return errors.New("stripe: the address of the interface is no address")
	}
	request.Header.Set("Authorization", "Bearer "+p.Options["api_key"])
	request.Header.Set("Stripe-Version", apiVersion)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := p.Client.Do(request)
	if err != nil {
		return fmt.Errorf("stripe: %s: %w", path[:strings.IndexAny(path+"?", "?")], err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("stripe: the request was answered with %d", response.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(answer); err != nil {
		return errors.New("stripe: the answer can't be read")
	}
	return nil
}
