package platformfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// graph is one of the three services of the social platform.
type graph struct {
	server   *Server
	platform platforms.Type
}

// sendSocial serves the three services under one address. The photo service differs from the messenger by what it leaves out.
func (s *Server) sendSocial(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	g := graph{s, social.PhotoDM}
	switch {
	case r.PathValue("id") != "me":
		g.platform = social.ChatApp
	case bytes.Contains(body, []byte(`"messaging_type":`)), bytes.Contains(body, []byte(`"sender_action":`)) && s.isMessenger(bearer(r)):
		g.platform = social.Messenger
	}
	g.send(w, r)
}

func (s *Server) identifySocial(w http.ResponseWriter, r *http.Request) {
	g := graph{s, social.Messenger}
	switch {
	case r.PathValue("id") != "me":
		g.platform = social.ChatApp
	case r.URL.Query().Get("fields") == "user_id":
		g.platform = social.PhotoDM
	}
	g.read(w, r)
}

func (g graph) send(w http.ResponseWriter, r *http.Request) {
	var body struct {
		socialSignal
		chatAppFiles

		To        string          `json:"to"`
		Recipient json.RawMessage `json:"recipient"`
		Message   struct {
			attached

			Text string `json:"text"`
		} `json:"message"`
		Text struct {
			Body string `json:"body"`
		} `json:"text"`
		Template json.RawMessage `json:"template"`
	}
	if !read(w, r, &body) {
		return
	}
	var person struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(body.Recipient, &person)
	if g.signal(w, r, &body.socialSignal, person.ID) {
		return
	}
	message := Sent{Type: g.platform, Address: body.To, Text: body.Message.Text + body.Text.Body, Token: bearer(r)}
	if g.platform == social.ChatApp {
		message.ExternalID = r.PathValue("id")
		_ = json.Unmarshal(body.Recipient, &message.Address) // there the id itself, if any
		g.server.judgeChatApp(&message, body.Template)
		id, as := body.of()
		g.server.addFile(&message, id, as)
	} else {
		message.Address = person.ID
		g.server.addFile(&message, body.Message.Attachment.Payload.ID, body.Message.Attachment.Type)
	}
	g.server.deliver(w, r, g.fail, message, func(id string) string {
		if g.platform == social.ChatApp {
			return `{"messaging_product":"whatsapp","messages":[{"id":` + quoted(id) + `}]}`
		}
		return `{"recipient_id":` + quoted(message.Address) + `,"message_id":` + quoted(id) + `}`
	})
}

// read serves the fields of a node.
func (g graph) read(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("fields") == "health_status" {
		g.health(w, r)
		return
	}
	if g.server.has(r.PathValue("id")) {
		g.locate(w, r)
		return
	}
	g.identify(w, r)
}

func (g graph) identify(w http.ResponseWriter, r *http.Request) {
	g.server.identify(w, r, g.fail, g.platform, bearer(r), func(id string) string {
		switch {
		case g.platform == social.PhotoDM:
			return `{"id":"app-scoped","user_id":` + quoted(id) + `}`
		case g.platform == social.ChatApp && id == r.PathValue("id"):
			return `{"id":` + quoted(id) + `,"display_phone_number":"+1 555 078 3881"}`
		case g.platform == social.ChatApp: // some other thing
			return `{"id":` + quoted(r.PathValue("id")) + `}`
		}
		return `{"id":` + quoted(id) + `}`
	})
}

func (g graph) fail(w http.ResponseWriter, fault Fault, text string) {
	status, subcode := http.StatusBadRequest, 0
	var code int
	switch fault.kind {
	case unauthorized:
		status, code = http.StatusUnauthorized, 190
	case tooMany:
		status, code = http.StatusTooManyRequests, 4
	case tooManyForOne:
		code, fault.pause = 131056, 0
	case temporary:
		status, code = http.StatusInternalServerError, 2
	case unexplained:
		code = 100
		if g.platform == social.ChatApp {
			status, code = http.StatusInternalServerError, 131000
		}
	case windowExpired:
		code, subcode = 10, 2018278
		if g.platform == social.PhotoDM {
			subcode = 2534022
		}
		if g.platform == social.ChatApp {
			code, subcode = 131047, 0
		}
	case customerBlocked:
		code = 551
		if g.platform == social.ChatApp {
			code = 131026
		}
	case templateRefused:
		code = fault.code
		if code == templateMissing {
			status = http.StatusNotFound
		}
	default:
		code = 100
	}
	setRetryAfter(w, fault)
	answer(w, status, fmt.Sprintf(`{"error":{"message":%s,"type":"OAuthException","code":%d,"error_subcode":%d,"fbtrace_id":"x"}}`,
		quoted(text), code, subcode))
}
