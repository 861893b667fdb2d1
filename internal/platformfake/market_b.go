package platformfake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/platforms/marketb"
)

// signedB keeps out what the operator's application didn't sign.
func signedB(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ParseForm() != nil {
			page(w, http.StatusBadRequest)
			return
		}
		mac := hmac.New(sha256.New, []byte(MarketBAppSecret))
		mac.Write([]byte(strings.TrimPrefix(r.URL.Path, "/market_b")))
		for _, name := range slices.Sorted(maps.Keys(r.Form)) {
			if name != "sign" {
				mac.Write([]byte(name + r.Form.Get(name)))
			}
		}
		if r.Form.Get("app_key") != MarketBAppKey || r.Form.Get("sign") != strings.ToUpper(hex.EncodeToString(mac.Sum(nil))) {
			failMarketB(w, Fault{kind: badSignature}, Secret)
			return
		}
		serve(w, r)
	}
}

func (s *Server) sendMarketB(w http.ResponseWriter, r *http.Request) {
	message := Sent{
		Type: marketb.Type, Address: r.Form.Get("session_id"), Text: r.Form.Get("txt"), Token: r.Form.Get("access_token"),
	}
	s.deliver(w, r, failMarketB, message, func(id string) string {
		return `{"code":"0","success":"true","request_id":"x","data":{"message_id":` + quoted(strings.TrimPrefix(id, message.Address+":")) + `}}`
	})
}

func (s *Server) identifyMarketB(w http.ResponseWriter, r *http.Request) {
	s.identify(w, r, failMarketB, marketb.Type, r.Form.Get("access_token"), func(id string) string {
		return `{"code":"0","data":{"seller_id":` + quoted(id) + `,"name":"Test"}}`
	})
}

func (s *Server) refreshMarketB(w http.ResponseWriter, r *http.Request) {
	s.renew(w, r, failMarketB, marketb.Type, r.Form.Get("refresh_token"), "expires_in")
}

func failMarketB(w http.ResponseWriter, fault Fault, text string) {
	code, inner := "0", ""
	switch fault.kind {
	case unauthorized:
		code = "IllegalAccessToken"
	case tooMany, tooManyForOne:
		code = "ApiCallLimit"
	case temporary:
		code = "ServiceUnavailable"
	case windowExpired:
		inner = `,"success":"false","err_code":"-22"`
	case badRefreshToken:
		code = "IllegalRefreshToken"
	case badSignature:
		code = "IncompleteSignature"
	default:
		inner = `,"success":"false","err_code":"-1"`
	}
	setRetryAfter(w, fault)
	answer(w, http.StatusOK, `{"code":"`+code+`","type":"ISV","message":`+quoted(text)+inner+`,"request_id":"x"}`)
}
