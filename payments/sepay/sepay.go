// Package sepay reads the deliveries of SePay, which watches bank accounts in Vietnam and reports each transfer (developer.sepay.vn, "Webhooks").
package sepay

import (
	"cmp"
	"context"
	"crypto/subtle"
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

// Driver makes SePay available.
type Driver struct{}

// Describe implements [payments.Driver].
func (Driver) Describe() *payments.Description {
	return &payments.Description{
		Name: "sepay", Label: "SePay",
		ProofHelp: "X-SePay-Signature is sha256= and the hex of HMAC-SHA256 with the secret, over X-SePay-Timestamp, a dot and the raw body; " +
			"it is accepted for 5 minutes. Or Authorization is Apikey and the key.",
		Answer: `{"success":true}`,
		Options: []option.Option{
			{Name: "secret", Kind: option.Secret, Check: payments.CheckSecret, Help: "the secret key by which the webhook signs deliveries"},
			{Name: "api_key", Kind: option.Secret, Check: payments.CheckSecret, Help: "the key that the webhook sends, if it doesn't sign"},
			{Name: "api_token", Kind: option.Secret, Help: "the token of SePay's interface, for the daily comparison of transfers"},
			{Name: "api_base", Kind: option.Address, Help: "the address of SePay's interface; default: " + apiBase},
		},
		Secrets: []string{"secret", "api_key"},
		Setup: []string{
			"In SePay, add a webhook for incoming transfers with the address %u.",
			"Choose the authentication by signature and give its secret as `secret`; or an API key, as `api_key`.",
		},
	}
}

// New implements [payments.Driver].
func (Driver) New(config *payments.Config) (payments.Provider, error) {
	return &provider{config, cmp.Or(strings.TrimSuffix(config.Options["api_base"], "/"), apiBase)}, nil
}

const apiBase = "https://my.sepay.vn/userapi"

// vietnam is the zone of SePay's times, which has no summer time.
var vietnam = time.FixedZone("Asia/Ho_Chi_Minh", 7*60*60)

type provider struct {
	*payments.Config

	api string
}

// transfer is a transfer as webhooks have it.
type transfer struct {
	ID          json.Number `json:"id"`
	At          string      `json:"transactionDate"`
	Account     string      `json:"accountNumber"`
	Type        string      `json:"transferType"`
	Amount      json.Number `json:"transferAmount"`
	Content     string      `json:"content"`
	Code        string      `json:"code"`
	Reference   string      `json:"referenceCode"`
	Description string      `json:"description"`
}

// Read implements [payments.Provider].
func (p *provider) Read(d *payments.Delivery) ([]payments.Payment, error) {
	if !p.proves(d) {
		return nil, payments.ErrProof
	}
	var t transfer
	err := json.Unmarshal(d.Body, &t)
	switch {
	case t.ID == "":
		return nil, errors.New("sepay: the body is no transfer")
	case t.Type != "in" && (t.Type != "" || err == nil):
		return nil, nil
	}
	made := payment(t)
	if err != nil {
		made.Problem = "a member of the transfer can't be read"
	}
	return payments.Found(made)
}

func (p *provider) proves(d *payments.Delivery) bool {
	if secret := p.Options["secret"]; secret != "" {
		stamp := payments.Only(d.Header, "X-SePay-Timestamp")
		signature, prefixed := strings.CutPrefix(payments.Only(d.Header, "X-SePay-Signature"), "sha256=")
		return prefixed && payments.IsRecent(stamp, p.Now()) && payments.IsSigned(signature, secret, []byte(stamp), []byte("."), d.Body)
	}
	key := p.Options["api_key"]
	return key != "" && subtle.ConstantTimeCompare([]byte(payments.Only(d.Header, "Authorization")), []byte("Apikey "+key)) == 1
}

// payment returns the payment of a transfer in. SePay may have found a code by a rule of the operator's; the text has more.
func payment(t transfer) payments.Payment {
	made := payments.Payment{
		ID: t.ID.String(), Kind: payments.Paid, Currency: "VND", Text: payments.Text(t.Code, t.Content, t.Description),
		Reference: t.Reference, Account: t.Account,
	}
	var err error
	if made.Amount, err = payments.ReadAmount(t.Amount.String(), 0); err != nil || made.Amount == 0 {
		made.Problem = "the amount is no whole number of dong"
	}
	if made.At, err = time.ParseInLocation(time.DateTime, t.At, vietnam); err != nil {
		made.Problem = "the time can't be read"
	}
	return made
}

const (
	listPage  = 1000 // transfers of one answer
	mostPages = 100
	maxAnswer = 4 << 20
)

// List implements [payments.Lister], if the option api_token is given (developer.sepay.vn, "Transaction API").
func (p *provider) List(ctx context.Context, since time.Time, found func(payments.Payment) bool) error {
	if p.Options["api_token"] == "" {
		return nil
	}
	query := url.Values{"transaction_date_min": {since.In(vietnam).Format(time.DateTime)}, "limit": {strconv.Itoa(listPage)}}
	for range mostPages {
		page, err := p.page(ctx, query)
		if err != nil {
			return err
		}
		for _, listed := range page {
			if amount, err := payments.ReadAmount(listed.AmountIn, 0); err == nil && amount == 0 {
				continue // a transfer out
			}
			if !found(payment(listed.transfer())) {
				return nil
			}
		}
		if len(page) < listPage {
			return nil
		}
		// The pages may begin with the newest transfer or with the oldest one.
		last := &page[len(page)-1]
		first, _ := page[0].ID.Int64()
		if id, err := last.ID.Int64(); err == nil && id > first {
			query.Set("since_id", strconv.FormatInt(id+1, 10))
		} else {
			query.Set("transaction_date_max", last.At)
		}
	}
	return fmt.Errorf("sepay: there are more than %d transfers since %s", listPage*mostPages, since.Format(time.DateOnly))
}

// listedTransfer is a transfer as the interface lists it.
type listedTransfer struct {
	ID        json.Number `json:"id"`
	At        string      `json:"transaction_date"`
	Account   string      `json:"account_number"`
	AmountIn  string      `json:"amount_in"`
	Content   string      `json:"transaction_content"`
	Code      string      `json:"code"`
	Reference string      `json:"reference_number"`
}

func (l listedTransfer) transfer() transfer {
	return transfer{
		ID: l.ID, At: l.At, Account: l.Account, Amount: json.Number(l.AmountIn), Content: l.Content, Code: l.Code, Reference: l.Reference,
	}
}

func (p *provider) page(ctx context.Context, query url.Values) ([]listedTransfer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.api+"/transactions/list?"+query.Encode(), nil)
	if err != nil {
		return nil, errors.New("sepay: the address of the interface is no address")
	}
	request.Header.Set("Authorization", "Bearer "+p.Options["api_token"])
	response, err := p.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("sepay: listing transfers: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("sepay: listing transfers was answered with %d", response.StatusCode)
	}
	var answer struct {
		Transactions []listedTransfer `json:"transactions"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, errors.New("sepay: the list of transfers can't be read")
	}
	return answer.Transactions, nil
}
