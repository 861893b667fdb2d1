package platformfake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// tokenLife is the reported life of refreshed tokens, in seconds.
const tokenLife = 14400

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /bot/{bot}/sendMessage", s.sendBot)
	mux.HandleFunc("POST /bot/{bot}/sendPhoto", s.sendBotFile("photo"))
	mux.HandleFunc("POST /bot/{bot}/sendDocument", s.sendBotFile("document"))
	mux.HandleFunc("POST /bot/{bot}/getMe", s.identifyBot)
	mux.HandleFunc("POST /bot/{bot}/getFile", s.locateBot)
	mux.HandleFunc("GET /bot/file/{bot}/files/{id}", s.downloadBot)
	mux.HandleFunc("GET /files/{ticket}", s.downloadLink)
	mux.HandleFunc("POST /bot/{bot}/sendChatAction", s.signalBot)
	for _, t := range []platforms.Type{social.Messenger, social.PhotoDM, social.ChatApp} {
		g := graph{s, t}
		mux.HandleFunc("POST /"+string(t)+"/{id}/messages", g.send)
		mux.HandleFunc("GET /"+string(t)+"/{id}", g.read)
	}
	for _, base := range []string{"social", string(social.ChatApp)} {
		mux.HandleFunc("GET /"+base+"/{id}/message_templates", graph{s, social.ChatApp}.listTemplates)
		mux.HandleFunc("POST /"+base+"/{id}/media", graph{s, social.ChatApp}.upload)
	}
	for base, t := range map[string]platforms.Type{
		"social": social.Messenger, string(social.Messenger): social.Messenger, string(social.PhotoDM): social.PhotoDM,
	} {
		mux.HandleFunc("POST /"+base+"/me/message_attachments", graph{s, t}.upload)
	}
	mux.HandleFunc("POST /social/{id}/messages", s.sendSocial)
	mux.HandleFunc("GET /social/{id}", s.identifySocial)
	for _, base := range []string{"social", string(social.PhotoDM)} {
		mux.HandleFunc("GET /"+base+"/refresh_access_token", s.exchangePhotoDM)
	}
	mux.HandleFunc("POST /localchat/v3.0/oa/message/cs", s.sendLocalChat)
	mux.HandleFunc("GET /localchat/v2.0/oa/getoa", s.identifyLocalChat)
	mux.HandleFunc("POST /localchat/v4/oa/access_token", s.refreshLocalChat)
	mux.HandleFunc("POST /market_a/api/v2/sellerchat/send_message", signedA(s.sendMarketA))
	mux.HandleFunc("POST /market_a/api/v2/sellerchat/read_conversation", signedA(s.signalMarketA))
	mux.HandleFunc("GET /market_a/api/v2/sellerchat/get_message", signedA(s.listMarketA))
	mux.HandleFunc("GET /market_a/api/v2/shop/get_shop_info", signedA(s.identifyMarketA))
	mux.HandleFunc("POST /market_a/api/v2/auth/access_token/get", signedA(s.refreshMarketA))
	mux.HandleFunc("POST /market_b/im/message/send", signedB(s.sendMarketB))
	mux.HandleFunc("POST /market_b/im/session/read", signedB(s.signalMarketB))
	mux.HandleFunc("GET /market_b/seller/get", signedB(s.identifyMarketB))
	mux.HandleFunc("POST /market_b/auth/token/refresh", signedB(s.refreshMarketB))
	return mux
}

// deliver serves a request to send; good makes the answer out of the message's id.
func (s *Server) deliver(w http.ResponseWriter, r *http.Request, fail failer, message Sent, good func(id string) string) {
	fault, gate := s.take(&message)
	s.end(exchange{w, r, fault, gate, fail, message.Token + " " + message.Text}, good(message.MessageID))
}

// identify serves the request for the account of a token.
func (s *Server) identify(w http.ResponseWriter, r *http.Request, fail failer, t platforms.Type, token string, good func(id string) string) {
	fault, gate := s.takeOther(token)
	id, ok := s.whose(t, token)
	if !ok {
		fault = Unauthorized
	}
	s.end(exchange{w, r, fault, gate, fail, token}, good(id))
}

// renew serves a refresh. life is how the platform calls the life of a token.
func (s *Server) renew(w http.ResponseWriter, r *http.Request, fail failer, t platforms.Type, token, life string) {
	fault, gate := s.takeOther(token)
	good := ""
	if fault.delivers() { // the platform does its part, whatever becomes of the answer
		access, fresh, ok := s.rotate(t, token)
		if !ok {
			fault = Fault{kind: badRefreshToken}
		}
		good = fmt.Sprintf(`{"access_token":%q,"refresh_token":%q,%q:"%d","error":"","code":"0"}`, access, fresh, life, tokenLife)
	}
	s.end(exchange{w, r, fault, gate, fail, token}, good)
}

// exchangePhotoDM exchanges a token of the photo service, which needs no other.
func (s *Server) exchangePhotoDM(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("access_token")
	fault, gate := s.takeOther(token)
	good := ""
	if fault.delivers() && r.URL.Query().Get("grant_type") == "ig_refresh_token" {
		access, ok := s.exchangeToken(social.PhotoDM, token)
		if !ok {
			fault = Unauthorized
		}
		good = fmt.Sprintf(`{"access_token":%q,"token_type":"bearer","expires_in":5183944,"permissions":"instagram_business_basic"}`, access)
	}
	s.end(exchange{w, r, fault, gate, graph{s, social.PhotoDM}.fail, token}, good)
}

// messageID is the n-th id, in the form of the platform's adapter.
func messageID(message Sent, n int) string {
	number := strconv.Itoa(n)
	switch message.Type {
	case bot.Type, marketb.Type: // unique only within the chat
		chat, _, _ := strings.Cut(message.Address, ":")
		return chat + ":" + number
	case social.ChatApp:
		return "wamid." + number
	case marketa.Type:
		return "23027489484931" + number
	default:
		return "m_" + number
	}
}

// read takes the JSON body in; it answers 400 to anything else.
func read(w http.ResponseWriter, r *http.Request, body any) bool {
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(raw, body)
	}
	if err != nil {
		page(w, http.StatusBadRequest)
	}
	return err == nil
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// page answers with something that is not in any platform's words.
func page(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<html><body>"+Secret+"</body></html>")
}

// setRetryAfter sets the header Retry-After if the fault has a pause.
func setRetryAfter(w http.ResponseWriter, fault Fault) {
	if seconds := int(fault.pause.Seconds()); seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
}

func bearer(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func quoted(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(raw)
}
