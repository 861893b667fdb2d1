package payos_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/payments"
	"github.com/caddy-svc/caddy-svc/payments/paymentstest"
	"github.com/caddy-svc/caddy-svc/payments/payos"
)

const paid = `{%x"orderCode":123,"amount":%a,"description":"NAP BS7K2Q04A","accountNumber":"12345678","reference":"TF%i","transactionDateTime":"2026-11-24 21:15:40",
	"currency":"VND","paymentLinkId":"124c33293c43417ab7879e14c8d9eb18","code":"00","desc":"success","counterAccountBankId":"","counterAccountName":null}`

// sign makes an envelope of data, as payOS does.
func sign(data []byte, _ time.Time, options map[string]string) (http.Header, []byte) {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return http.Header{}, data
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := string(members[name])
		if value == "null" {
			value = ""
		}
		var text string
		if strings.HasPrefix(value, `"`) && json.Unmarshal(members[name], &text) == nil {
			value = text
		}
		parts = append(parts, name+"="+value)
	}
	mac := hmac.New(sha256.New, []byte(options["checksum_key"]))
	mac.Write([]byte(strings.Join(parts, "&")))
	return http.Header{}, slices.Concat([]byte(`{"code":"00","desc":"success","success":true,"data":`), data,
		[]byte(`,"signature":"`+hex.EncodeToString(mac.Sum(nil))+`"}`))
}

func TestContract(t *testing.T) {
	t.Parallel()
	paymentstest.Run(t, paymentstest.Suite{
		Driver: payos.Driver{}, Options: map[string]string{"checksum_key": "a-key-of-the-channel"}, Paid: paid, Currency: "VND", Timeless: true, Sign: sign,
		None: []string{strings.NewReplacer("%x", "", "%a", "5", "%i", "1", `"code":"00"`, `"code":"01"`).Replace(paid)},
	})
}

// Two links may be paid by one transfer, and a link by two; both have ids of their own.
func TestIDs(t *testing.T) {
	t.Parallel()
	provider, err := payos.Driver{}.New(&payments.Config{Options: map[string]string{"checksum_key": "a-key-of-the-channel"}})
	require.NoError(t, err)
	_, body := sign([]byte(strings.NewReplacer("%x", "", "%a", "500000", "%i", "1").Replace(paid)), time.Time{}, map[string]string{"checksum_key": "a-key-of-the-channel"})
	made, err := provider.Read(&payments.Delivery{Body: body})
	require.NoError(t, err)
	require.Equal(t, "TF1:124c33293c43417ab7879e14c8d9eb18", made[0].ID)
	require.Equal(t, "TF1", made[0].Reference)
}

// A transfer with a member of another type is a payment for a person.
func TestUnreadableTransfer(t *testing.T) {
	t.Parallel()
	options := map[string]string{"checksum_key": "a-key-of-the-channel"}
	provider, err := payos.Driver{}.New(&payments.Config{Options: options})
	require.NoError(t, err)
	for _, change := range []string{`"accountNumber":12345678`, `"description":7`, `"code":0`} {
		name, _, _ := strings.Cut(change, ":")
		whole := strings.NewReplacer("%x", "", "%a", "500000", "%i", "1").Replace(paid)
		_, body := sign([]byte(strings.Replace(whole, name+":", change+`,"was":`, 1)), time.Time{}, options)
		made, err := provider.Read(&payments.Delivery{Body: body})
		require.NoError(t, err, change)
		require.Len(t, made, 1, change)
		require.NotEmpty(t, made[0].Problem, change)
	}
}
