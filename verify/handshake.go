package verify

import (
	"crypto/subtle"
	"errors"
	"net/url"
)

// ErrHandshake says that a subscription handshake is not the operator's. Handlers answer 403 forbidden (spec §4.3).
var ErrHandshake = errors.New("the verify token of the handshake does not match")

// Handshake checks the subscription handshake of the social platform (spec §4.3): hub.mode is subscribe (design §6) and
// hub.verify_token is the configured one; an empty configured token matches nothing. It returns hub.challenge, which
// is to be echoed verbatim as plain text. Parameters given twice are refused.
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
