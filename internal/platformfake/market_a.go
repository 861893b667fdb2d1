package platformfake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/platforms/marketa"
)

// signedA keeps out what the operator's application didn't sign.
func signedA(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		mac := hmac.New(sha256.New, []byte(MarketAPartnerKey))
		mac.Write([]byte(MarketAPartnerID + strings.TrimPrefix(r.URL.Path, "/market_a") + query.Get("timestamp") +
			query.Get("access_token") + query.Get("shop_id")))
		if query.Get("partner_id") != MarketAPartnerID || query.Get("sign") != hex.EncodeToString(mac.Sum(nil)) {
			failMarketA(w, Fault{kind: badSignature}, Secret)
			return
		}
		serve(w, r)
	}
}

func (s *Server) sendMarketA(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ToID    json.Number `json:"to_id"`
		Type    string      `json:"message_type"`
		Content struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if !read(w, r, &body) {
		return
	}
	message := Sent{
		Type: marketa.Type, ExternalID: r.URL.Query().Get("shop_id"), Address: body.ToID.String(), Text: body.Content.Text,
		Token: r.URL.Query().Get("access_token"),
	}
	s.deliver(w, r, failMarketA, message, func(id string) string {
		return `{"error":"","message":"","request_id":"x","response":{"message_id":` + quoted(id) + `,"to_id":` + body.ToID.String() + `}}`
	})
}

// WriteAtMarketA lets somebody of the shop write in the marketplace's own app, which the marketplace doesn't report: only the list of the
// conversation's messages has it. source is where it was written, such as "ios", or "openapi" for a program.
func (s *Server) WriteAtMarketA(shop, conversation, text, source string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers++
	if s.written == nil {
		s.written = map[string][]string{}
	}
	s.written[conversation] = append(s.written[conversation], `{"message_id":"`+strconv.Itoa(s.numbers)+`","from_id":1,"from_shop_id":`+shop+
		`,"to_id":7,"to_shop_id":0,"message_type":"text","content":{"text":`+quoted(text)+`},"conversation_id":`+conversation+
		`,"created_timestamp":`+strconv.FormatInt(at.Unix(), 10)+`,"source":`+quoted(source)+`,"status":"normal"}`)
}

func (s *Server) listMarketA(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	fault, gate := s.takeOther("list " + query.Get("conversation_id"))
	s.mu.Lock()
	owner := s.accounts[query.Get("access_token")]
	list := strings.Join(s.written[query.Get("conversation_id")], ",")
	s.mu.Unlock()
	if owner == nil || owner.bad() || owner.externalID != query.Get("shop_id") {
		fault = Unauthorized
	}
	s.end(exchange{w, r, fault, gate, failMarketA, query.Get("access_token")},
		`{"error":"","message":"","request_id":"x","response":{"messages":[`+list+`],"page_result":{"page_size":25,"next_offset":""}}}`)
}

func (s *Server) identifyMarketA(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("access_token")
	if id, ok := s.whose(marketa.Type, token); ok && id != r.URL.Query().Get("shop_id") {
		failMarketA(w, Unauthorized, Secret)
		return
	}
	s.identify(w, r, failMarketA, marketa.Type, token, func(string) string {
		return `{"error":"","message":"","shop_name":"Test","region":"VN"}`
	})
}

func (s *Server) refreshMarketA(w http.ResponseWriter, r *http.Request) {
	var body struct {
		PartnerID    json.Number `json:"partner_id"`
		ShopID       json.Number `json:"shop_id"`
		RefreshToken string      `json:"refresh_token"`
	}
	if read(w, r, &body) {
		s.renew(w, r, failMarketA, marketa.Type, body.RefreshToken, "expire_in")
	}
}

func failMarketA(w http.ResponseWriter, fault Fault, text string) {
	status := http.StatusOK
	var code string
	switch fault.kind {
	case unauthorized:
		status, code = http.StatusForbidden, "error_auth"
	case tooMany, tooManyForOne:
		status, code = http.StatusTooManyRequests, "error_limit"
	case temporary:
		status, code = http.StatusInternalServerError, "error_server"
	case badSignature:
		status, code = http.StatusForbidden, "error_sign"
	default:
		code = "error_param"
	}
	setRetryAfter(w, fault)
	answer(w, status, `{"error":"`+code+`","message":`+quoted(text)+`,"request_id":"x"}`)
}
