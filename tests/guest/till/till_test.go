package till

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/caddy-svc/caddy-svc/payments/paymentstest"
)

func TestContract(t *testing.T) {
	paymentstest.Run(t, paymentstest.Suite{
		Driver: Driver{}, Options: map[string]string{"signing_key": "signing-key-0123456789"}, Currency: "USD",
		Paid: `{%x"receipt":%i,"cents":%a,"note":"for BS7K2Q04A","at":"2026-11-24T14:15:40Z"}`,
		Sign: func(body []byte, at time.Time, options map[string]string) (http.Header, []byte) {
			stamp := strconv.FormatInt(at.Unix(), 10)
			mac := hmac.New(sha256.New, []byte(options["signing_key"]))
			mac.Write([]byte(stamp))
			mac.Write(body)
			return http.Header{signatureHeader: {stamp + ":" + hex.EncodeToString(mac.Sum(nil))}}, body
		},
	})
}
