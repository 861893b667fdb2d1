package platformfake

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// Signal is what a platform showed to a customer.
type Signal struct {
	Type platforms.Type
	// To is the customer's address, or of types that name a message its id.
	To string
	// Shown is "read", "typing", or both with a space between.
	Shown string
}

// Signals returns what was shown so far, the oldest first.
func (s *Server) Signals() []Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Signal(nil), s.signals...)
}

// WaitSignals waits until at least n signals were shown and returns all.
func (s *Server) WaitSignals(t testing.TB, n int) []Signal {
	t.Helper()
	s.wait(t, func() bool { return len(s.Signals()) >= n })
	return s.Signals()
}

// signal serves a request to show something. Scripts match it by "signal" and its type.
func (s *Server) signal(w http.ResponseWriter, r *http.Request, fail failer, token, good string, shown Signal) {
	fault, gate := s.takeOther("signal " + string(shown.Type))
	switch _, known := s.whose(shown.Type, token); {
	case !known:
		fault = Unauthorized
	case fault.delivers():
		s.mu.Lock()
		s.signals = append(s.signals, shown)
		s.announce()
		s.mu.Unlock()
	}
	s.end(exchange{w, r, fault, gate, fail, token}, good)
}

func (s *Server) signalBot(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ChatID json.RawMessage `json:"chat_id"`
		Action string          `json:"action"`
	}
	if read(w, r, &body) {
		s.signal(w, r, failBot, botToken(r), `{"ok":true,"result":true}`,
			Signal{bot.Type, strings.Trim(string(body.ChatID), `"`), body.Action})
	}
}

// isMessenger reports whether the token is that of a page: signals don't differ between messenger and photo service.
func (s *Server) isMessenger(token string) bool {
	_, is := s.whose(social.Messenger, token)
	return is
}

// socialSignal is the part of a request by which the social platform tells a signal from a message.
type socialSignal struct {
	Action    string `json:"sender_action"`
	Status    string `json:"status"`
	MessageID string `json:"message_id"`
	Typing    *struct {
		Type string `json:"type"`
	} `json:"typing_indicator"`
}

// signal serves the request if it is one to show something, and reports whether it was.
func (g graph) signal(w http.ResponseWriter, r *http.Request, body *socialSignal, recipient string) bool {
	shown := Signal{Type: g.platform, To: recipient}
	switch {
	case body.Action == "mark_seen":
		shown.Shown = "read"
	case body.Action == "typing_on":
		shown.Shown = "typing"
	case body.Status == "read":
		shown.To, shown.Shown = body.MessageID, "read"
		if body.Typing != nil && body.Typing.Type == "text" {
			shown.Shown += " typing"
		}
	default:
		return false
	}
	g.server.signal(w, r, g.fail, bearer(r), `{"success":true}`, shown)
	return true
}

func (s *Server) signalMarketA(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Conversation json.Number `json:"conversation_id"`
		MessageID    string      `json:"last_read_message_id"`
	}
	if read(w, r, &body) {
		s.signal(w, r, failMarketA, r.URL.Query().Get("access_token"), `{"error":"","message":"","request_id":"x"}`,
			Signal{marketa.Type, body.MessageID, "read"})
	}
}

func (s *Server) signalMarketB(w http.ResponseWriter, r *http.Request) {
	s.signal(w, r, failMarketB, r.Form.Get("access_token"), `{"code":"0","success":"true","request_id":"x"}`,
		Signal{marketb.Type, r.Form.Get("last_read_message_id"), "read"})
}
