package platforms

import (
	"fmt"
	"strings"
)

// MaxCredential is how many bytes a token may have.
const MaxCredential = 4096

// MaxSecretToken is how many characters the secret token of a bot may have (the bot platform's setWebhook).
const MaxSecretToken = 256

// Credentials are what a channel needs to speak to its platform. They are stored sealed, as JSON, and never shown
// (design §6 "groups' conventions"). Which fields a type needs is known to [Type.CheckCredentials].
type Credentials struct {
	// SecretToken is what the bot platform sends with each delivery.
	SecretToken string `json:"secretToken,omitempty"`
	// BotToken is the bot platform's access token, "<bot id>:<secret>".
	BotToken string `json:"botToken,omitempty"`
	// AccessToken is the token of all other platforms.
	AccessToken string `json:"accessToken,omitempty"`
	// RefreshToken gets the next pair of tokens. It is good for one use.
	RefreshToken string `json:"refreshToken,omitempty"`
	// ExpiresAt is when AccessToken ends, in epoch milliseconds; 0 if unknown.
	ExpiresAt int64 `json:"expiresAt,omitempty"`
}

// FieldError is a field of [Credentials] that was refused. It never quotes the value.
type FieldError struct {
	Field   string // the JSON name: secretToken, botToken, accessToken, refreshToken
	Problem string // what is wrong and what is allowed
}

// Error is "field: problem".
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// CheckCredentials tells whether c has what a channel of this type needs, in a form that can be sent; else a
// [*FieldError] for the first field that hasn't. Bot needs secretToken (1 to 256 of A-Z a-z 0-9 _ -) and botToken, the
// social types accessToken, the local chat and the marketplaces accessToken and refreshToken, the widget nothing.
// Fields that the type has no use for must be empty.
func (t Type) CheckCredentials(c Credentials) error {
	needs := map[string]bool{}
	switch t {
	case Bot:
		needs["secretToken"], needs["botToken"] = true, true
	case SocialMessenger, PhotoDM, ChatApp:
		needs["accessToken"] = true
	case LocalChat, MarketA, MarketB:
		needs["accessToken"], needs["refreshToken"] = true, true
	case Widget:
	}
	for _, field := range []struct {
		name, value string
		check       func(string) string
	}{
		{"secretToken", c.SecretToken, checkSecretToken},
		{"botToken", c.BotToken, checkBotToken},
		{"accessToken", c.AccessToken, checkToken},
		{"refreshToken", c.RefreshToken, checkToken},
	} {
		problem := ""
		switch {
		case field.value == "" && needs[field.name]:
			problem = "is missing"
		case field.value != "" && !needs[field.name]:
			problem = fmt.Sprintf("is of no use to a channel of type %s", t)
		case field.value != "":
			problem = field.check(field.value)
		}
		if problem != "" {
			return &FieldError{Field: field.name, Problem: problem}
		}
	}
	return nil
}

func checkSecretToken(s string) string {
	if len(s) > MaxSecretToken {
		return fmt.Sprintf("has %d characters, at most %d are allowed", len(s), MaxSecretToken)
	}
	if !consistsOf(s, isWordByte) {
		return "may only contain A-Z, a-z, 0-9, _ and -"
	}
	return ""
}

func checkBotToken(s string) string {
	id, secret, _ := strings.Cut(s, ":")
	if len(s) > MaxCredential || !isDigits(id) || !consistsOf(secret, isWordByte) {
		return "is not of the form <bot id>:<secret>, with digits before the colon and A-Z, a-z, 0-9, _ and - behind it"
	}
	return ""
}

// checkToken keeps out what can't stand in a header.
func checkToken(s string) string {
	if len(s) > MaxCredential {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), MaxCredential)
	}
	if !consistsOf(s, func(b byte) bool { return b > ' ' && b < 0x7f }) {
		return "may only contain visible ASCII characters"
	}
	return ""
}
