package platformfake

import (
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/platforms/localchat"
)

func (s *Server) sendLocalChat(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Recipient struct {
			UserID string `json:"user_id"`
		} `json:"recipient"`
		Message struct {
			Text string `json:"text"`
		} `json:"message"`
	}
	if !read(w, r, &body) {
		return
	}
	message := Sent{Type: localchat.Type, Address: body.Recipient.UserID, Text: body.Message.Text, Token: localChatToken(r)}
	s.deliver(w, r, failLocalChat, message, func(id string) string {
		return `{"error":0,"message":"Success","data":{"message_id":` + quoted(id) + `}}`
	})
}

func (s *Server) identifyLocalChat(w http.ResponseWriter, r *http.Request) {
	s.identify(w, r, failLocalChat, localchat.Type, localChatToken(r), func(id string) string {
		return `{"error":0,"message":"Success","data":{"oa_id":` + quoted(id) + `,"name":"Test"}}`
	})
}

func (s *Server) refreshLocalChat(w http.ResponseWriter, r *http.Request) {
	ours := r.Header.Get("secret_key") == LocalChatAppSecret && r.PostFormValue("app_id") == LocalChatAppID &&
		r.PostFormValue("grant_type") == "refresh_token"
	if !ours {
		failLocalChat(w, Fault{kind: badSignature}, Secret)
		return
	}
	s.renew(w, r, failLocalChat, localchat.Type, r.PostFormValue("refresh_token"), "expires_in")
}

// localChatToken reads a header whose name has an underscore.
func localChatToken(r *http.Request) string { return r.Header.Get("access_token") }

// failLocalChat answers 200, as the platform does but when it is out of order or has had enough.
func failLocalChat(w http.ResponseWriter, fault Fault, text string) {
	status := http.StatusOK
	var code int
	switch fault.kind {
	case unauthorized:
		code = -216
	case tooMany, tooManyForOne:
		code = -32
		if fault.pause > 0 {
			status = http.StatusTooManyRequests
		}
	case temporary:
		status, code = http.StatusInternalServerError, -1
	case windowExpired:
		code = -230
	case customerBlocked:
		code = -244
	case badRefreshToken:
		code = -14014
	case badSignature:
		code = -14002
	default:
		code = -201
	}
	setRetryAfter(w, fault)
	answer(w, status, fmt.Sprintf(`{"error":%d,"message":%s}`, code, quoted(text)))
}
