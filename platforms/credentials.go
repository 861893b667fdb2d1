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

// MaxCredential is how many bytes a credential may have.
const MaxCredential = 4096

// Names of credential fields with a meaning of their own.
const (
	// AccessToken is the usual name of a platform's token.
	AccessToken = "accessToken"
	// RefreshToken is exchanged for new tokens by a [Refresher]. It is good for one use.
	RefreshToken = "refreshToken"
	// ExpiresAt is when AccessToken ends, in milliseconds since 1970; absent if unknown. No form asks for it.
	ExpiresAt = "expiresAt"
)

// Credentials are the secrets and ids with which a channel's calls are made, by the names of its type's [CredentialField]s. They are stored
// sealed, as JSON, and never shown.
type Credentials map[string]string

// Expiry is the time in [ExpiresAt] in milliseconds since 1970, 0 if unknown.
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

// UnmarshalJSON reads what MarshalJSON writes. Empty strings and null count as absent. The error never quotes the text.
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
	// Name is the name in the API: camelCase.
	Name string
	// Label and Hint are for forms.
	Label, Hint string
	// MaxLength is for forms, in characters; 0 is [MaxCredential].
	MaxLength int
	// Proposed is set for a secret that the customer chooses: the form proposes one and shows it.
	Proposed bool
	// Optional is set for a field that a channel may be without. With names another optional field that must be given with it, ""
	// none.
	Optional bool
	With     string
	// Signs is set for an optional secret of the channel's own application, which signs its deliveries; see [ChannelSigned].
	Signs bool
	// Check returns what is wrong with a value and what is allowed, "" for nothing, and never quotes it. nil is [CheckToken].
	Check func(value string) (problem string)
}

// AccessTokenField is the field of an access token.
func AccessTokenField(hint string) CredentialField {
	return CredentialField{Name: AccessToken, Label: "Access token", Hint: hint}
}

// TokenPair are the fields of an access token that is refreshed.
func TokenPair() []CredentialField {
	return []CredentialField{
		AccessTokenField("It is renewed by itself before it ends."),
		{Name: RefreshToken, Label: "Refresh token", Hint: "It works once: don't use it anywhere else."},
	}
}

// FieldError is a field of [Credentials] that was refused. It never quotes the value.
type FieldError struct {
	Field   string // its name
	Problem string // what is wrong and what is allowed
}

// Error is "field: problem".
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

// CheckCredentials checks that c has the fields of the type, each in a form that can be sent, and no other. The error is a
// [*FieldError] for the first fault.
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
	for _, name := range slices.Sorted(c.names()) {
		if name != ExpiresAt && !slices.ContainsFunc(t.Credentials, func(f CredentialField) bool { return f.Name == name }) {
			return &FieldError{Field: name, Problem: fmt.Sprintf("is of no use to a channel of type %s", t.Type)}
		}
	}
	return nil
}

// names are the fields that aren't empty.
func (c Credentials) names() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name, value := range c {
			if value != "" && !yield(name) {
				return
			}
		}
	}
}

// problem returns what is wrong with the field. A check that panics refuses the value; what it panics with may be the value.
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

// minSecret is the length in bytes of the shortest secret that may prove deliveries: shorter ones can be guessed.
const minSecret = 16

// SameSecret reports whether two secrets are equal, in a time that doesn't depend on where they differ.
func SameSecret(one, other string) bool {
	return subtle.ConstantTimeCompare([]byte(one), []byte(other)) == 1
}

// CheckToken returns what is wrong with a token that is sent in a header, "" for nothing.
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

// ConsistsOf reports whether s is not empty and all its bytes are allowed.
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

// RefreshErrors are the error codes of a refresh that don't mean that the refresh token was refused. A code in neither list
// is taken as a refusal of the token.
type RefreshErrors struct {
	// Member is the member of the answer that has the code: "error" or "code". No error is absent, "" or "0".
	Member string
	// Operator are errors that the operator's application causes, not the channel.
	Operator []string
	// Temporary are errors after which the refresh token is as good as before.
	Temporary []string
}

// CheckRefreshToken returns the failure of credentials without a usable refresh token, nil if they have one.
func CheckRefreshToken(c Credentials) *Error {
	if problem := CheckToken(c[RefreshToken]); problem != "" {
		return Unauthorized(false, &FieldError{RefreshToken, problem})
	}
	return nil
}

// RefreshTokens makes the request of a refresh and returns the credentials that replace old. The answer has the form of OAuth:
// access_token, refresh_token (if it changes) and expires_in or expire_in, in seconds. The error is an [*Error].
func (c *Client) RefreshTokens(
	ctx context.Context, request *Request, old Credentials, now time.Time, known RefreshErrors,
) (Credentials, error) {
	r, failure := c.Do(ctx, request)
	if failure != nil {
		return nil, failure
	}
	next, failure := r.tokens(old, now, known)
	if failure != nil {
		return nil, failure
	}
	return next, nil
}

func (r *Response) tokens(old Credentials, now time.Time, known RefreshErrors) (Credentials, *Error) {
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
	switch {
	case !readable:
		return nil, r.Unreadable(false)
	case code != "" && code != "0":
		return nil, r.refreshFailure(code, known)
	case !r.OK():
		return nil, r.Unreadable(false)
	case CheckToken(body.AccessToken) != "", body.RefreshToken != "" && CheckToken(body.RefreshToken) != "":
		return nil, Fail(Unknown, r.Error(code, ""))
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

func (r *Response) refreshFailure(code string, known RefreshErrors) *Error {
	cause := r.Error(code, "")
	if r.Status == http.StatusTooManyRequests || r.Status >= 500 || slices.Contains(known.Temporary, code) {
		return RetryLater(r.RetryAfter(), cause)
	}
	if slices.Contains(known.Operator, code) {
		return Fail(Refused, cause)
	}
	return Unauthorized(false, cause)
}
