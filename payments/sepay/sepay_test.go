package sepay_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/payments"
	"github.com/caddy-svc/caddy-svc/payments/paymentstest"
	"github.com/caddy-svc/caddy-svc/payments/sepay"
)

const paid = `{%x"id":%i,"gateway":"Vietcombank","transactionDate":"2026-11-24 21:15:40","accountNumber":"0071000888888","subAccount":null,
	"transferType":"in","transferAmount":%a,"accumulated":19077000,"code":null,"content":"MBVCB.3278907687.NAP bs7k2q04a.CT tu 0123","referenceCode":"FT26329.1",
	"description":"BankAPINotify"}`

const out = `{"id":92705,"gateway":"Vietcombank","transactionDate":"2026-11-24 21:15:40","accountNumber":"0071000888888","transferType":"out",
	"transferAmount":500000,"content":"rent","referenceCode":"FT26329.2"}`

func suite(options map[string]string) paymentstest.Suite {
	return paymentstest.Suite{
		Driver: sepay.Driver{}, Options: options, Paid: paid, Currency: "VND", None: []string{out}, Timeless: options["secret"] == "", Bodiless: options["secret"] == "",
		Sign: func(body []byte, at time.Time, options map[string]string) (http.Header, []byte) {
			header := http.Header{}
			if secret, ok := options["secret"]; ok {
				stamp := strconv.FormatInt(at.Unix(), 10)
				mac := hmac.New(sha256.New, []byte(secret))
				mac.Write([]byte(stamp + "."))
				mac.Write(body)
				header.Set("X-SePay-Timestamp", stamp)
				header.Set("X-SePay-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
			}
			if key, ok := options["api_key"]; ok {
				header.Set("Authorization", "Apikey "+key)
			}
			return header, body
		},
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]map[string]string{
		"signed": {"secret": "a-secret-of-the-webhook"}, "by a key": {"api_key": "a-key-of-the-webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paymentstest.Run(t, suite(options))
		})
	}
}

// No transfer is left out of a list of several pages, whether they begin with the newest transfer or with the oldest one.
func TestPagesOfTheList(t *testing.T) {
	t.Parallel()
	const all = 2_500
	for _, newestFirst := range []bool{true, false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			since, _ := strconv.Atoi(query.Get("since_id"))
			var page []string
			for i := range all {
				id := i + 1
				if newestFirst {
					id = all - i
				}
				at := time.Unix(int64(id), 0).UTC().Format(time.DateTime)
				if until := query.Get("transaction_date_max"); id >= since && (until == "" || at <= until) && len(page) < 1_000 {
					page = append(page, fmt.Sprintf(`{"id":"%d","transaction_date":%q,"amount_in":"5.00"}`, id, at))
				}
			}
			_, _ = fmt.Fprintf(w, `{"transactions":[%s]}`, strings.Join(page, ","))
		}))
		provider, err := sepay.Driver{}.New(&payments.Config{Options: map[string]string{"api_token": "token", "api_base": server.URL}, Client: server.Client()})
		require.NoError(t, err)
		found := map[string]bool{}
		require.NoError(t, provider.(payments.Lister).List(t.Context(), time.Unix(0, 0), func(p payments.Payment) bool {
			found[p.ID] = true
			return true
		}))
		require.Len(t, found, all, "newest first: %t", newestFirst)
		server.Close()
	}
}

// SePay's list has the ids of its deliveries, in pages, and amounts as texts with two digits behind the point.
func TestList(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Authorization")+" "+r.URL.Path+" "+r.URL.Query().Get("transaction_date_min"))
		_, _ = w.Write([]byte(`{"status":200,"error":null,"transactions":[
			{"id":"49682","account_number":"0071","transaction_date":"2026-11-05 19:59:48","amount_out":"0.00","amount_in":"18067000.00",
			 "transaction_content":"DUONG THUY ANH chuyen tien","reference_number":"677760.051126.1","code":null},
			{"id":"49683","account_number":"0071","transaction_date":"2026-11-05 20:00:00","amount_out":"5.00","amount_in":"0.00"},
			{"id":"49684","account_number":"0071","transaction_date":"2026-11-05 20:00:01","amount_in":"1000.50","transaction_content":"x"}]}`))
	}))
	t.Cleanup(server.Close)
	provider, err := sepay.Driver{}.New(&payments.Config{
		Options: map[string]string{"secret": "a-secret-of-the-webhook", "api_token": "token", "api_base": server.URL}, Client: server.Client(), Now: time.Now,
	})
	require.NoError(t, err)
	var found []payments.Payment
	require.NoError(t, provider.(payments.Lister).List(t.Context(), time.Date(2026, 11, 4, 17, 0, 0, 0, time.UTC), func(p payments.Payment) bool {
		require.NoError(t, p.Check())
		found = append(found, p)
		return true
	}))
	require.Equal(t, []string{"Bearer token /transactions/list 2026-11-05 00:00:00"}, asked)
	require.Len(t, found, 2)
	require.Equal(t, "49682", found[0].ID)
	require.EqualValues(t, 18_067_000, found[0].Amount)
	require.Equal(t, time.Date(2026, 11, 5, 12, 59, 48, 0, time.UTC), found[0].At.UTC())
	require.NotEmpty(t, found[1].Problem)
}

// A transfer with a member of another type is a payment for a person, unless it is a transfer out.
func TestUnreadableTransfer(t *testing.T) {
	t.Parallel()
	key := map[string]string{"api_key": "a-key-of-the-webhook"}
	provider, err := sepay.Driver{}.New(&payments.Config{Options: key})
	require.NoError(t, err)
	for change, found := range map[string]int{
		`"accountNumber":71`: 1, `"transferAmount":"five"`: 1, `"transactionDate":1795529740`: 1, `"transferType":1`: 1, `"transferType":"out","content":1`: 0,
	} {
		name, _, _ := strings.Cut(change, ":")
		body := strings.NewReplacer("%x", "", "%a", "500000", "%i", "1", name+":", change+`,"was":`).Replace(paid)
		made, err := provider.Read(&payments.Delivery{Header: http.Header{"Authorization": {"Apikey a-key-of-the-webhook"}}, Body: []byte(body)})
		require.NoError(t, err, change)
		require.Len(t, made, found, change)
		for _, p := range made {
			require.Equal(t, "1", p.ID, change)
			require.NotEmpty(t, p.Problem, change)
		}
	}
}
