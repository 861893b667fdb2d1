package platformfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

func (s *Server) sendBot(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ChatID json.RawMessage `json:"chat_id"`
		Topic  json.Number     `json:"message_thread_id"`
		Text   string          `json:"text"`
	}
	if !read(w, r, &body) {
		return
	}
	message := Sent{Type: bot.Type, Address: strings.Trim(string(body.ChatID), `"`), Text: body.Text, Token: botToken(r)}
	if body.Topic != "" {
		message.Address += ":" + body.Topic.String()
	}
	s.deliver(w, r, failBot, message, func(id string) string {
		number := id[strings.LastIndexByte(id, ':')+1:]
		return fmt.Sprintf(`{"ok":true,"result":{"message_id":%s,"chat":{"id":%s,"type":"private"},"text":%s}}`,
			number, body.ChatID, quoted(body.Text))
	})
}

func (s *Server) identifyBot(w http.ResponseWriter, r *http.Request) {
	s.identify(w, r, failBot, bot.Type, botToken(r), func(id string) string {
		return `{"ok":true,"result":{"id":` + id + `,"is_bot":true,"first_name":"Test"}}`
	})
}

func botToken(r *http.Request) string { return strings.TrimPrefix(r.PathValue("bot"), "bot") }

func failBot(w http.ResponseWriter, fault Fault, text string) {
	var status int
	parameters := ""
	switch fault.kind {
	case unauthorized:
		status = http.StatusUnauthorized
	case tooMany, tooManyForOne:
		status = http.StatusTooManyRequests
		if fault.pause > 0 {
			parameters = fmt.Sprintf(`,"parameters":{"retry_after":%d}`, int(fault.pause.Seconds()))
		}
	case temporary:
		status = http.StatusInternalServerError
	case customerBlocked:
		status = http.StatusForbidden
	default:
		status = http.StatusBadRequest
	}
	answer(w, status, fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%s%s}`, status, quoted(text), parameters))
}
