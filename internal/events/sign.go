package events

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// The headers of a delivery, by the Standard Webhooks specification 1.0.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32
	// RotationTime is how long an endpoint's old secret signs beside the new one.
	RotationTime = 24 * time.Hour
)

// errSecret doesn't quote the secret.
var errSecret = errors.New("events: a secret is not readable")

// NewSecret returns a new secret of 32 random bytes in its text form, `whsec_` and base64.
func NewSecret() string {
	var key [secretBytes]byte
	rand.Read(key[:])
	return secretPrefix + base64.StdEncoding.EncodeToString(key[:])
}

// SealSecret seals a secret for its endpoint's row.
func SealSecret(ring *vault.Ring, orgID, endpointID, secret string) []byte {
	return ring.Seal([]byte(secret), vault.EventSecret(orgID, endpointID))
}

// Signature signs a delivery with a secret: `v1,` and the base64 of the HMAC-SHA256 of id, time and body with dots between.
func Signature(secret, id string, at int64, body []byte) (string, error) {
	encoded, found := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !found || len(key) == 0 {
		return "", errSecret
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at, 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// signatures returns the header's value: the signature by the endpoint's secret, and during a rotation by the old one, too, unless its
// master key is gone. at is in Unix seconds.
func signatures(ring *vault.Ring, endpoint *store.EventEndpoint, id string, at int64, body []byte) (string, error) {
	sign := func(sealed []byte) (string, error) {
		secret, err := ring.Open(sealed, vault.EventSecret(endpoint.OrgID, endpoint.ID))
		if err != nil {
			return "", errSecret
		}
		return Signature(string(secret), id, at, body)
	}
	signed, err := sign(endpoint.Secret)
	if err != nil || endpoint.OldSecret == nil || at*1000 >= endpoint.OldSecretUntil {
		return signed, err
	}
	if old, err := sign(endpoint.OldSecret); err == nil {
		signed += " " + old
	}
	return signed, nil
}
