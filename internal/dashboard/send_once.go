package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
)

// onceName is the hidden field of a form whose message reaches the customer once, although a double click sends the form twice.
const onceName = "once"

func onceField() field { return field{Name: onceName, Kind: hiddenField, Value: rand.Text()} }

// sendMessage sends the form's message to the customer. Its Idempotency-Key is made of the form and the message, because a person may go
// back to a form and send another text with it.
func (req *pageRequest) sendMessage(message object) error {
	ask := apiRequest{method: http.MethodPost, path: "/conversations/" + req.id() + "/messages", body: message}
	if once := req.text(onceName); once != "" {
		sum := sha256.New()
		if err := json.NewEncoder(sum).Encode(message); err != nil {
			return fmt.Errorf("encoding a message: %w", err)
		}
		ask.key = once + "-" + hex.EncodeToString(sum.Sum(nil)[:16])
	}
	return req.call(ask, nil)
}
