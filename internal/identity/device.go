package identity

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Client describes the program through which a person signs in.
type Client struct {
	// Address is the client's IP address, or the customer's network for IPv6; failures are counted by it. "" is none.
	Address string
	// Device is a token of [Sessions.Device] from an earlier sign-in; "" is none.
	Device string
	// Agent is the program's User-Agent, for the list of sessions.
	Agent string
}

// A device token is a random name and, after a dot, an HMAC of the name keyed with the stored hash of the user's password: it
// is valid for one user, until the password changes, and needs no row.
const (
	deviceNameBytes      = 16
	deviceNameCharacters = 22
	deviceCharacters     = deviceNameCharacters + 1 + 43
)

// newDevice returns a device token for the user with the stored hash.
func newDevice(passwordHash string) string {
	var random [deviceNameBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	name := base64.RawURLEncoding.EncodeToString(random[:])
	return name + "." + deviceProof(passwordHash, name)
}

func deviceProof(passwordHash, name string) string {
	mac := hmac.New(sha256.New, []byte(passwordHash))
	mac.Write([]byte("device\n" + name)) //nolint:errcheck // a hash never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// knownDevice returns the name in a valid device token of the user with the stored hash, "" for any other text.
func knownDevice(passwordHash, token string) string {
	name, proof, _ := strings.Cut(token, ".")
	if passwordHash == "" || len(token) != deviceCharacters || len(name) != deviceNameCharacters {
		return ""
	}
	if !hmac.Equal([]byte(proof), []byte(deviceProof(passwordHash, name))) {
		return ""
	}
	return name
}

// How many sign-ins may fail within a minute: from one address, from one address for one user, and for one user. 60 guesses a
// minute find no password of twelve characters. A device from which the user has signed in before has only its own bound, so
// that failures elsewhere never lock it out.
const (
	maxFailuresOfAddress = 30
	maxFailuresOfPair    = 5
	maxFailuresOfUser    = 60
	maxFailuresOfDevice  = 10
)

// loginBounds returns the bounds that a sign-in counts against, ordered so that one address can't use up a user's failures.
// device is the name of a known device, "" for none.
func loginBounds(email, address, device string) []store.LoginBound {
	bound := func(most int64, subject ...string) store.LoginBound {
		return store.LoginBound{Subject: sha256.Sum256([]byte(strings.Join(subject, "\n"))), Most: most}
	}
	if device != "" {
		return []store.LoginBound{bound(maxFailuresOfDevice, "device", device, email)}
	}
	user := bound(maxFailuresOfUser, "user", email)
	if address == "" {
		return []store.LoginBound{user}
	}
	return []store.LoginBound{
		bound(maxFailuresOfAddress, "address", address), bound(maxFailuresOfPair, "pair", address, email), user,
	}
}

// maxAgent is how many bytes of a User-Agent are stored.
const maxAgent = 200

// clipAgent returns the visible ASCII of a User-Agent, up to maxAgent bytes.
func clipAgent(agent string) string {
	agent = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, agent)
	return agent[:min(len(agent), maxAgent)]
}
