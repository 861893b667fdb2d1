package social

import (
	"context"
	"net/http"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// Signal implements [platforms.Signaler]. Messenger and photo service have an action for each of both signs
// (developers.facebook.com/docs/messenger-platform/send-messages/sender-actions).
func (s *social) Signal(ctx context.Context, signal *platforms.Signal) error {
	if signal.Type == ChatApp {
		return s.signalChatApp(ctx, signal)
	}
	actions := []string{"mark_seen", "typing_on"}
	if signal.Again {
		actions = actions[1:]
	}
	for _, action := range actions {
		var done struct{}
		_, failure := s.call(ctx, signal.Type, signal.Credentials, &platforms.Request{
			Method: http.MethodPost, Path: "/me/messages", JSON: struct {
				Recipient person `json:"recipient"`
				Action    string `json:"sender_action"`
			}{person{signal.Address}, action},
		}, &done)
		if failure != nil {
			return failure
		}
	}
	return nil
}

// signalChatApp marks the message, and all before it, as read; the typing needs that
// (developers.facebook.com/documentation/business-messaging/whatsapp/typing-indicators).
func (s *social) signalChatApp(ctx context.Context, signal *platforms.Signal) error {
	if !isID(signal.ExternalID) {
		return errPhoneNumberID()
	}
	type typing struct {
		Type string `json:"type"`
	}
	var done struct{}
	_, failure := s.call(ctx, ChatApp, signal.Credentials, &platforms.Request{
		Method: http.MethodPost, Path: "/" + signal.ExternalID + "/messages", JSON: struct {
			Product   string `json:"messaging_product"`
			Status    string `json:"status"`
			MessageID string `json:"message_id"`
			Typing    typing `json:"typing_indicator"`
		}{"whatsapp", "read", signal.MessageID, typing{"text"}},
	}, &done)
	if failure != nil {
		return failure
	}
	return nil
}
