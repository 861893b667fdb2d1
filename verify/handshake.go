package verify

import (
	"crypto/subtle"
	"errors"
	"net/url"
)

// ErrHandshake reports a handshake with another verify token. Handlers answer 403 forbidden.
var ErrHandshake = errors.New("the verify token of the handshake does not match")

// Handshake checks the subscription handshake of the social platform: hub.mode must be subscribe and hub.verify_token the
// configured token; an empty configured token matches nothing. It returns hub.challenge, which the handler echoes as plain
// text. Repeated parameters are refused.
func Handshake(query url.Values, verifyToken string) (challenge string, err error) {
	mode, token := query["hub.mode"], query["hub.verify_token"]
	if len(mode) != 1 || len(token) != 1 || len(query["hub.challenge"]) > 1 || mode[0] != "subscribe" {
		return "", ErrHandshake
	}
	if verifyToken == "" || subtle.ConstantTimeCompare([]byte(token[0]), []byte(verifyToken)) != 1 {
		return "", ErrHandshake
	}
	return query.Get("hub.challenge"), nil
}
