package identity

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"image/png"
	"slices"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
	"github.com/pquerna/otp/totp"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// The reasons to refuse a code of a second factor.
var (
	// ErrCodeNeeded: the password is right, and a code is needed beside it.
	ErrCodeNeeded = errors.New("a code of the second factor is needed")
	// ErrWrongCode: neither a code up to now nor a recovery code.
	ErrWrongCode = errors.New("the code is wrong")
	// ErrCodeUsed: a code is valid once.
	ErrCodeUsed = errors.New("the code was used already")
	// ErrNoRecoveryCodes: all recovery codes are used.
	ErrNoRecoveryCodes = errors.New("no recovery codes are left")
	// ErrNoSecondFactor: the person has no second factor.
	ErrNoSecondFactor = errors.New("there is no second factor")
)

// ClockError reports a code that is right at another time, because the clock of the device or of the database is off. Where a second factor is
// checked, it reports only codes of the past, which are worth nothing.
type ClockError struct {
	// Ahead is by how much the device's clock is ahead. It is negative for a clock that is behind.
	Ahead time.Duration
}

func (e *ClockError) Error() string { return fmt.Sprintf("the device's clock is %s ahead", e.Ahead) }

// The second factor is TOTP (RFC 6238) as all authenticator apps have it: six digits of HMAC-SHA-1, every 30 seconds. A code is valid one step
// before and after its own. A code of clockSteps around is refused with the reason. maxWrongCodes may fail within an hour, so that an intruder
// with the password finds a code of a day with a probability of 1 to 1,400.
const (
	stepSeconds     = 30
	codeSteps       = 1
	clockSteps      = 20
	maxWrongCodes   = 10
	codeDigits      = 6
	recoveryCodes   = 10
	recoveryBytes   = 10 // 16 characters
	recoveryGroup   = 4
	secretTextBytes = 32 // of 20 bytes
)

// Enrolment is a new secret for an authenticator app. It is stored once a code of it is given.
type Enrolment struct {
	// Secret is for typing it in, URI for a link, and for [QR].
	Secret, URI string
}

// NewEnrolment makes a secret. The app shows issuer, such as the host of the service, and account, the e-mail address.
func NewEnrolment(issuer, account string) (Enrolment, error) {
	key, err := totp.Generate(totp.GenerateOpts{Issuer: issuer, AccountName: account})
	if err != nil {
		return Enrolment{}, fmt.Errorf("making a secret: %w", err)
	}
	return Enrolment{Secret: key.Secret(), URI: key.URL()}, nil
}

// QR returns a picture (PNG) of an [Enrolment]'s URI for the camera of the app.
func QR(uri string) ([]byte, error) {
	const pixels = 240
	key, err := otp.NewKeyFromURL(uri)
	if err != nil {
		return nil, fmt.Errorf("reading a secret's URI: %w", err)
	}
	picture, err := key.Image(pixels, pixels)
	if err != nil {
		return nil, fmt.Errorf("drawing a secret: %w", err)
	}
	var file bytes.Buffer
	err = png.Encode(&file, picture)
	return file.Bytes(), err
}

// matchCode returns the time step of a code. used is the step of the last code that was used.
func matchCode(secret, code string, now, used int64) (step int64, err error) {
	current := now / 1000 / stepSeconds
	for away := int64(0); away <= clockSteps; away++ {
		for _, step := range []int64{current - away, current + away} {
			right, err := hotp.GenerateCode(secret, uint64(max(step, 0))) // six digits of SHA-1
			switch {
			case err != nil:
				return 0, fmt.Errorf("computing a code: %w", err)
			case subtle.ConstantTimeCompare([]byte(right), []byte(code)) != 1:
			case step <= used:
				return 0, ErrCodeUsed
			case away <= codeSteps:
				return step, nil
			default:
				return 0, &ClockError{time.Duration(step-current) * stepSeconds * time.Second}
			}
		}
	}
	return 0, ErrWrongCode
}

// newRecoveryCodes returns codes for the loss of the device, with their hashes.
func newRecoveryCodes() (codes, hashes []string) {
	for range recoveryCodes {
		var random [recoveryBytes]byte
		_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
		text := strings.ToLower(base32.StdEncoding.EncodeToString(random[:]))
		groups := slices.Collect(slices.Chunk([]byte(text), recoveryGroup))
		codes, hashes = append(codes, string(bytes.Join(groups, []byte("-")))), append(hashes, recoveryHash(text))
	}
	return codes, hashes
}

func recoveryHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// person is a person with a second factor: a user, or an operator, who has no organization.
type person struct{ orgID, id, actor string }

// secondFactors checks and changes second factors.
type secondFactors struct {
	db   *store.DB
	ring *vault.Ring
}

// enable stores the secret of an [Enrolment] after a code of it, and returns the recovery codes, which are shown this once. The person's
// sessions but that of the token end. It returns [store.ErrConflict] if there is a second factor already.
func (f secondFactors) enable(ctx context.Context, who person, token, secret, code string) ([]string, error) {
	if _, err := base32.StdEncoding.DecodeString(secret); err != nil || len(secret) != secretTextBytes {
		return nil, &FieldError{"secret", "is not one that was made here; begin again"}
	}
	now, err := f.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	step, err := matchCode(secret, cleanCode(code), now, 0)
	if err != nil {
		return nil, err
	}
	codes, hashes := newRecoveryCodes()
	kept, _ := tokenHash(token)
	err = f.db.SecondFactors.Add(ctx, who.actor, store.SecondFactor{
		OrgID: who.orgID, PersonID: who.id, Secret: f.ring.Seal([]byte(secret), vault.SecondFactor(who.orgID, who.id)), Step: step, Recovery: hashes,
	}, kept)
	if err != nil {
		return nil, fmt.Errorf("enabling a second factor: %w", err)
	}
	return codes, nil
}

// cleanCode returns a code as it is compared: without the spaces and dashes that people copy.
func cleanCode(code string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(code))
}

// check uses up a code of the app or a recovery code. It returns [ErrWrongCode], [ErrCodeUsed], [ErrNoRecoveryCodes], a [ClockError],
// [ErrNoSecondFactor], a [ThrottledError] after too many wrong codes within an hour, or the store's error.
func (f secondFactors) check(ctx context.Context, who person, code string) error {
	factor, err := f.db.SecondFactors.Of(ctx, who.orgID, who.id)
	if errors.Is(err, store.ErrNotFound) {
		return ErrNoSecondFactor
	}
	if err != nil {
		return fmt.Errorf("reading a second factor: %w", err)
	}
	subject := sha256.Sum256([]byte("code\n" + who.orgID + "\n" + who.id))
	login, err := take(ctx, f.db, "a code", []store.LoginBound{{Subject: subject, Most: maxWrongCodes, Hourly: true}})
	if err != nil {
		return err
	}
	use := f.useRecovery
	if code = cleanCode(code); len(code) == codeDigits {
		use = f.useCode
	}
	first, err := use(ctx, who, factor, code)
	if err == nil && !first { // used at the same moment
		err = ErrCodeUsed
	}
	if err != nil {
		_ = f.db.SecondFactors.CountFailed(ctx, who.orgID, who.id) // the answer is the same if that fails
		return err
	}
	return f.db.Logins.GiveBack(ctx, login)
}

func (f secondFactors) useCode(ctx context.Context, who person, factor store.SecondFactor, code string) (first bool, err error) {
	secret, err := f.ring.Open(factor.Secret, vault.SecondFactor(who.orgID, who.id))
	if err != nil {
		return false, fmt.Errorf("opening a second factor: %w", err)
	}
	now, err := f.db.Now(ctx)
	if err != nil {
		return false, err
	}
	step, err := matchCode(string(secret), code, now, factor.Step)
	if clock, early := errors.AsType[*ClockError](err); early && clock.Ahead > 0 {
		return false, ErrWrongCode // an intruder who guessed a later code would learn when it is valid
	}
	if err != nil {
		return false, err
	}
	return f.db.SecondFactors.UseStep(ctx, who.orgID, who.id, step)
}

func (f secondFactors) useRecovery(ctx context.Context, who person, factor store.SecondFactor, code string) (first bool, err error) {
	hash := recoveryHash(code)
	switch {
	case len(factor.Recovery) == 0:
		return false, ErrNoRecoveryCodes
	case !slices.Contains(factor.Recovery, hash):
		return false, ErrWrongCode // a used one, too
	}
	return f.db.SecondFactors.UseRecovery(ctx, who.actor, who.orgID, who.id, hash)
}
