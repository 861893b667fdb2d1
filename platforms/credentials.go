package platforms

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// MaxCredential is the greatest length of a credential in bytes.
const MaxCredential = 4096

// Names of credential fields that the product itself uses.
const (
	// AccessToken is the usual name of a platform's token.
	AccessToken = "accessToken"
	// RefreshToken is exchanged for new tokens by a [Refresher]. It can be used once. The authorization of a channel ends with its
	// refresh token, after weeks or months if nothing is sent, so tokens are also renewed in the background.
	RefreshToken = "refreshToken"
	// ExpiresAt is the time when AccessToken ends, in milliseconds since 1970. It is absent if the time is unknown, as for a token
	// that a person pasted. No form has a field for it.
	ExpiresAt = "expiresAt"
)

// Credentials are the secrets and ids with which a channel's calls are made, by the names of its type's [CredentialField]s. They
// are stored as encrypted JSON and never shown.
type Credentials map[string]string

// Expiry returns the time in [ExpiresAt] in milliseconds since 1970, or 0 if it is unknown.
func (c Credentials) Expiry() int64 {
	at, err := strconv.ParseInt(c[ExpiresAt], 10, 64)
	if err != nil {
		return 0
	}
	return at
}

// MarshalJSON writes one object of strings, in which expiresAt is a number.
func (c Credentials) MarshalJSON() ([]byte, error) {
	members := make(map[string]any, len(c))
	for name, value := range c {
		members[name] = value
	}
	delete(members, ExpiresAt)
	if at := c.Expiry(); at != 0 {
		members[ExpiresAt] = at
	}
	return json.Marshal(members)
}

var errCredentials = errors.New("credentials must be one JSON object of strings; only expiresAt is a number")

// UnmarshalJSON reads the output of MarshalJSON. Empty strings and null count as absent. The error never quotes the text.
func (c *Credentials) UnmarshalJSON(text []byte) error {
	object, err := ParseObject(text)
	if err != nil {
		return errCredentials
	}
	read := make(Credentials, 2)
	for w := object.Members(); w.Next(); {
		name, value := w.Key(), ""
		switch {
		case !w.Value.Given():
		case name == ExpiresAt:
			if value = w.Value.ID(); value == "" {
				return errCredentials
			}
		case w.Value[0] != '"':
			return errCredentials
		default:
			value = w.Value.Text(len(w.Value))
		}
		if value != "" && value != "0" {
			read[name] = value
		}
	}
	*c = read
	return nil
}

// CredentialField is one field of the credentials of a channel type.
type CredentialField struct {
	// Name is the name in the API, in camelCase.
	Name string
	// Label and Hint are shown in forms.
	Label, Hint string
	// MaxLength limits the input of forms, in characters. 0 means [MaxCredential].
	MaxLength int
	// Proposed is set for a secret that the customer chooses: the form proposes one and shows it.
	Proposed bool
	// Optional is set for a field that a channel may be without. With names another optional field that must be given together
	// with it.
	Optional bool
	With     string
	// Signs is set for an optional secret of the channel's own application that signs the channel's deliveries; see
	// [ChannelSigned].
	Signs bool
	// Check returns the problem of a value and the allowed form, or "" if the value is valid. It never quotes the value. nil means
	// [CheckToken].
	Check func(value string) (problem string)
}

// AccessTokenField returns the field of an access token.
func AccessTokenField(hint string) CredentialField {
	return CredentialField{Name: AccessToken, Label: "Access token", Hint: hint}
}

// TokenPair returns the fields of an access token and its refresh token.
func TokenPair() []CredentialField {
	return []CredentialField{
		AccessTokenField("It is renewed by itself before it ends."),
		{Name: RefreshToken, Label: "Refresh token", Hint: "It works once: don't use it anywhere else."},
	}
}

// FieldError is a field of [Credentials] that was refused. It never quotes the value.
type FieldError struct {
	Field   string
	Problem string // the problem and the allowed form
}

// Error returns "field: problem".
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// SigningFields returns the names of the fields with [CredentialField.Signs].
func (t *ChannelType) SigningFields() (names []string) {
	for i := range t.Credentials {
		if t.Credentials[i].Signs {
			names = append(names, t.Credentials[i].Name)
		}
	}
	return names
}

// CheckCredentials checks that c contains the fields of the type, each in a form that can be sent, and no other field. The error
// is a [*FieldError] for the first fault.
func (t *ChannelType) CheckCredentials(c Credentials) error {
	for i := range t.Credentials {
		f := &t.Credentials[i]
		if problem := f.problem(c); problem != "" {
			return &FieldError{Field: f.Name, Problem: problem}
		}
		if c[f.Name] != "" && f.With != "" && c[f.With] == "" {
			return &FieldError{Field: f.With, Problem: "is missing: " + f.Name + " is of use only with it"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if c[name] != "" && name != ExpiresAt && !slices.ContainsFunc(t.Credentials, func(f CredentialField) bool { return f.Name == name }) {
			return &FieldError{Field: name, Problem: fmt.Sprintf("is of no use to a channel of type %s", t.Type)}
		}
	}
	return nil
}

// problem returns the problem of the field's value, or "". A check that panics refuses the value. The panic's own value is
// dropped, because it may be the credential.
func (f *CredentialField) problem(c Credentials) (problem string) {
	defer func() {
		if recover() != nil {
			problem = "can't be checked: the platform's adapter panicked"
		}
	}()
	value := c[f.Name]
	switch {
	case value == "" && f.Optional:
		return ""
	case value == "":
		return "is missing"
	case f.Check != nil:
		problem = f.Check(value)
	default:
		problem = CheckToken(value)
	}
	if problem == "" && (f.Proposed || f.Signs) && len(value) < minSecret {
		return fmt.Sprintf("has %d characters, at least %d are required", len(value), minSecret)
	}
	return problem
}

// minSecret is the length in bytes of the shortest secret that may prove deliveries. Shorter secrets can be guessed.
const minSecret = 16

// SameSecret reports whether two secrets are equal, in a time that doesn't depend on their contents.
func SameSecret(one, other string) bool {
	return subtle.ConstantTimeCompare([]byte(one), []byte(other)) == 1
}

// CheckToken returns the problem of a token that is sent in a header, or "" if the token is valid.
func CheckToken(token string) string {
	if len(token) > MaxCredential {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(token), MaxCredential)
	}
	if !ConsistsOf(token, isVisible) {
		return "may only contain visible ASCII characters"
	}
	return ""
}

// isVisible reports whether b is a visible ASCII character.
func isVisible(b byte) bool { return b > ' ' && b < 0x7f }

// ConsistsOf reports whether s isn't empty and all its bytes are allowed.
func ConsistsOf(s string, allowed func(byte) bool) bool {
	for i := range len(s) {
		if !allowed(s[i]) {
			return false
		}
	}
	return s != ""
}

// IsDigits reports whether s consists of decimal digits.
func IsDigits(s string) bool { return ConsistsOf(s, func(b byte) bool { return b >= '0' && b <= '9' }) }

// IsWord reports whether s consists of ASCII letters, digits, _ and -.
func IsWord(s string) bool {
	return ConsistsOf(s, func(b byte) bool {
		return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-'
	})
}

// RefreshErrors lists the error codes of a refresh after which the refresh token isn't lost. A code in neither list counts as a
// refusal of the token.
type RefreshErrors struct {
	// Member is the member of the answer that contains the code: "error" or "code". An answer without an error has no code, "" or
	// "0".
	Member string
	// Operator lists the errors that the operator's application causes, not the channel.
	Operator []string
	// Temporary lists the errors after which the refresh token is still valid.
	Temporary []string
}

// RefreshTokens makes the request of a refresh and returns the credentials that replace old, which must have a refresh token. The answer has
// the form of OAuth: access_token, refresh_token (if it changes) and expires_in or expire_in, in seconds. The error is an [*Error].
func (c *Client) RefreshTokens(ctx context.Context, request *Request, old Credentials, now time.Time, known RefreshErrors) (Credentials, error) {
	if problem := CheckToken(old[RefreshToken]); problem != "" {
		return nil, Unauthorized(false, &FieldError{RefreshToken, problem})
	}
	r, failure := c.Do(ctx, request)
	if failure != nil {
		return nil, failure
	}
	var body struct {
		AccessToken  string `json:"access_token"`
		RefreshToken string `json:"refresh_token"`
		ExpiresIn    Word   `json:"expires_in"`
		ExpireIn     Word   `json:"expire_in"`
		Error        Word   `json:"error"`
		Code         Word   `json:"code"`
	}
	readable := r.Decode(&body)
	code := string(body.Error)
	if known.Member == "code" {
		code = string(body.Code)
	}
	refused, cause := code != "" && code != "0", r.Error(code, "")
	switch {
	case !readable:
		return nil, r.Unreadable(false)
	case refused && (r.Status == http.StatusTooManyRequests || r.Status >= 500 || slices.Contains(known.Temporary, code)):
		return nil, RetryLater(r.RetryAfter(), cause)
	case refused && slices.Contains(known.Operator, code):
		return nil, Fail(Refused, cause)
	case refused:
		return nil, Unauthorized(false, cause)
	case !r.OK():
		return nil, r.Unreadable(false)
	case CheckToken(body.AccessToken) != "", body.RefreshToken != "" && CheckToken(body.RefreshToken) != "":
		return nil, Fail(Unknown, cause)
	}
	next := maps.Clone(old)
	next[AccessToken] = body.AccessToken
	if body.RefreshToken != "" {
		next[RefreshToken] = body.RefreshToken
	}
	delete(next, ExpiresAt)
	if life := Seconds(string(body.ExpiresIn)) + Seconds(string(body.ExpireIn)); life > 0 {
		next[ExpiresAt] = strconv.FormatInt(now.Add(life).UnixMilli(), 10)
	}
	return next, nil
}
