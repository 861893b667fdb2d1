package identity

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// A session ends after SessionIdle without use, and after SessionLifetime in any case.
const (
	SessionIdle     = 12 * time.Hour
	SessionLifetime = 7 * 24 * time.Hour
)

// seenEvery is the precision of a session's last use: the store isn't written on every request.
const seenEvery = time.Minute

// The reasons to refuse a person. Every other error of [Sessions] is a fault of the service.
var (
	// ErrNoSession: the session doesn't exist or has ended; 401 unauthenticated.
	ErrNoSession = errors.New("no login session")
	// ErrWrongPassword: the user doesn't exist or has another password; callers can't tell which; 401 unauthenticated.
	ErrWrongPassword = errors.New("the e-mail address or the password is wrong")
	// ErrLinkUsed: the one-time link was used, has expired, never existed, or invites an e-mail address that has a user in the organization.
	// Callers can't tell which; 400 invalid_request.
	ErrLinkUsed = errors.New("the link was used, has expired, or its e-mail address can't be used here")
)

// ThrottledError reports that too many sign-ins have failed; 429 rate_limited.
type ThrottledError struct{ RetryAfter time.Duration }

// Error says when to come back.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("too many logins have failed, try again in %s", e.RetryAfter)
}

// SeveralOrganizationsError reports that users of several organizations have the e-mail address and the password; 400 invalid_request.
type SeveralOrganizationsError struct{ Users []store.LoginRecord }

// Names returns the names and ids of the organizations.
func (e *SeveralOrganizationsError) Names() string {
	return strings.Join(store.Column(e.Users, func(user store.LoginRecord) string {
		return fmt.Sprintf("%s (%s)", user.OrgName, user.OrgID)
	}), ", ")
}

func (e *SeveralOrganizationsError) Error() string {
	return "users of several organizations have the address and the password: " + e.Names()
}

// Sessions are the login sessions of users, kept in the store and read at each use: an ended session, another role and a
// removed user hold from the next request on, on every node. It is safe for concurrent use. A process needs one, which bounds
// how many passwords are hashed at a time.
type Sessions struct{ logins }

// logins is what users and operators sign in with.
type logins struct {
	db        *store.DB
	factors   secondFactors
	passwords *passwords
}

func newLogins(db *store.DB, ring *vault.Ring, processors *semaphore.Weighted) logins {
	passwords := newPasswords()
	passwords.processors = processors
	return logins{db, secondFactors{db, ring}, passwords}
}

// NewSessions works on db. ring seals the secrets of second factors. Each hash of a password needs one of processors; nil doesn't bound them.
func NewSessions(db *store.DB, ring *vault.Ring, processors *semaphore.Weighted) *Sessions {
	return &Sessions{newLogins(db, ring, processors)}
}

// Begin signs a user in and returns the session's secret token, 43 characters, which is stored nowhere. Several organizations may have a
// user with the e-mail address. The user with the password signs in. If several users have the password, organization, an id or a name,
// selects one; it may be empty. Failures count against the client's address, or against a known device
// alone. It returns [ErrWrongPassword], a [SeveralOrganizationsError], a [ThrottledError], [ErrBusy], or the store's error, after the same
// time whether or not the user exists; and, with the right password, [ErrCodeNeeded] or an error of [Operators.SecondFactor].
func (s *Sessions) Begin(ctx context.Context, email, password, organization string, from Client) (token string, _ Principal, err error) {
	email, err = CleanEmail(email)
	if err != nil || CheckPassword(password) != nil {
		return "", Principal{}, ErrWrongPassword // no user has these
	}
	records, err := s.db.Logins.ByEmail(ctx, email)
	if err != nil {
		return "", Principal{}, fmt.Errorf("reading a login: %w", err)
	}
	login, matching, by, err := s.passwords.try(ctx, s.db, email, password, from, records, func(record *store.LoginRecord) bool {
		return organization == "" || organization == record.OrgID || organization == record.OrgName
	})
	if err != nil {
		return "", Principal{}, err
	}
	if len(matching) > 1 {
		_ = s.db.Logins.GiveBack(ctx, login) // the password is right
		return "", Principal{}, &SeveralOrganizationsError{matching}
	}
	record := matching[0]
	if err := s.checkCode(ctx, record.OrgID, record.UserID, from.Code); err != nil {
		if errors.Is(err, ErrCodeNeeded) {
			_ = s.db.Logins.GiveBack(ctx, login) // the password is right
		}
		return "", Principal{}, err
	}
	renewed, err := s.passwords.renew(ctx, record.Password, password, by)
	if err != nil {
		return "", Principal{}, err
	}
	token, session := newSession(from)
	err = s.db.Sessions.Begin(ctx, record, renewed, session, login)
	if errors.Is(err, store.ErrNotFound) { // changed or removed since it was read
		return "", Principal{}, ErrWrongPassword
	}
	if err != nil {
		return "", Principal{}, fmt.Errorf("beginning a session: %w", err)
	}
	return s.begun(ctx, token)
}

// checkCode checks the code of a user who has a second factor. It returns [ErrCodeNeeded] for an empty code.
func (s *Sessions) checkCode(ctx context.Context, orgID, userID, code string) error {
	switch _, err := s.db.SecondFactors.Of(ctx, orgID, userID); {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading a second factor: %w", err)
	case code == "":
		return ErrCodeNeeded
	}
	return s.factors.check(ctx, person{orgID, userID, userID}, code)
}

// EnableSecondFactor stores the secret of an [Enrolment] for the user of a session after a code of it, ends the user's other sessions, and
// returns the recovery codes, which are shown this once. It returns [store.ErrConflict] if the user has a second factor already, a
// [FieldError], or an error of [Operators.SecondFactor].
func (s *Sessions) EnableSecondFactor(ctx context.Context, user Principal, token, secret, code string) ([]string, error) {
	return s.factors.enable(ctx, person{user.OrgID, user.UserID, user.UserID}, token, secret, code)
}

// DisableSecondFactor removes the user's second factor after one more code. It returns the errors of [Operators.SecondFactor].
func (s *Sessions) DisableSecondFactor(ctx context.Context, user Principal, code string) error {
	if err := s.factors.check(ctx, person{user.OrgID, user.UserID, user.UserID}, code); err != nil {
		return err
	}
	return s.db.SecondFactors.Delete(ctx, user.UserID, user.OrgID, user.UserID, nil)
}

// BeginWithLink uses a one-time link of [Users.Invite] or [Users.NewLink]: it sets the user's password, ends all sessions of
// the user, and signs the user in. It returns [ErrLinkUsed], a [FieldError] for the password (the link stays valid), [ErrBusy],
// or the store's error; and, as [Sessions.Begin], the errors of a code.
func (s *Sessions) BeginWithLink(ctx context.Context, link, password string, from Client) (token string, _ Principal, err error) {
	linkHash, ok := tokenHash(link)
	if !ok {
		return "", Principal{}, ErrLinkUsed
	}
	token, session := newSession(from)
	// While the password is hashed, the address may get its first user, and with it another salt.
	for try := 0; ; try++ {
		err = s.useLink(ctx, linkHash, password, from.Code, session)
		if !errors.Is(err, store.ErrSalt) || try == mostLinkTries {
			break
		}
	}
	if err != nil {
		return "", Principal{}, err
	}
	return s.begun(ctx, token)
}

// mostLinkTries is how often the use of a link is repeated because of other uses for its address at the same moment.
const mostLinkTries = 5

// useLink sets the password of a link's user and begins a session.
func (s *Sessions) useLink(ctx context.Context, linkHash [sha256.Size]byte, password, code string, session store.NewSession) error {
	// The link is checked first, so that only its holder makes us compute a hash.
	record, found, err := s.db.UserLinks.ByHash(ctx, linkHash)
	if err != nil {
		return fmt.Errorf("reading a link: %w", err)
	}
	if !found || record.ExpiresAt <= record.NowMS {
		return ErrLinkUsed
	}
	if err := CheckNewPassword(password); err != nil {
		return err
	}
	if err := s.checkCode(ctx, record.OrgID, record.UserID, code); err != nil {
		return err
	}
	hash, err := s.passwords.hash(ctx, password, record.Salted, knownUser(record.UserID))
	if err != nil {
		return fmt.Errorf("hashing a password: %w", err)
	}
	err = s.db.UserLinks.Use(ctx, linkHash, hash, record.Salted, session)
	if errors.Is(err, store.ErrNotFound) {
		return ErrLinkUsed
	}
	return store.Wrap("using a link", err)
}

// ChangePassword replaces the password of a session's user and ends the user's other sessions and links. It returns
// [ErrNoSession], [ErrWrongPassword] for a wrong current password, a [FieldError] for the new one, a [ThrottledError] after 5
// wrong ones within a minute, [ErrBusy], or the store's error.
func (s *Sessions) ChangePassword(ctx context.Context, token, current, password string) error {
	user, err := s.Authenticate(ctx, token)
	if err != nil {
		return err
	}
	if err := CheckNewPassword(password); err != nil {
		return err
	}
	subject := sha256.Sum256([]byte("change\n" + user.UserID))
	login, err := take(ctx, s.db, "a change of a password", []store.LoginBound{{Subject: subject, Most: maxFailuresOfPair}})
	if err != nil {
		return err
	}
	record, err := s.db.Logins.ByID(ctx, user.OrgID, user.UserID)
	if err != nil {
		return fmt.Errorf("reading a login: %w", err)
	}
	matches, err := s.passwords.check(ctx, []string{record.Password}, current, knownUser(record.UserID))
	if err != nil {
		return fmt.Errorf("checking a password: %w", err)
	}
	if len(matches) == 0 {
		return ErrWrongPassword
	}
	hash, err := s.passwords.hash(ctx, password, record.Password, knownUser(record.UserID))
	if err != nil {
		return fmt.Errorf("hashing a password: %w", err)
	}
	kept, _ := tokenHash(token) // well-formed: Authenticate has accepted it
	return store.Wrap("changing a password", s.db.Logins.ChangePassword(ctx, record, hash, kept, login))
}

// EndAll ends all sessions of a user, immediately and on every node.
func (s *Sessions) EndAll(ctx context.Context, user Principal) error {
	return store.Wrap("ending all sessions", s.db.Sessions.EndAll(ctx, user.OrgID, user.UserID))
}

// List returns the user's newest 100 sessions that haven't ended, and the index of the token's.
func (s *Sessions) List(ctx context.Context, user Principal, token string) (list []store.LiveSession, current int, err error) {
	list, err = s.db.Sessions.Live(ctx, user.OrgID, user.UserID, SessionIdle.Milliseconds())
	if err != nil {
		return nil, 0, fmt.Errorf("listing sessions: %w", err)
	}
	hash, _ := tokenHash(token)
	return list, slices.IndexFunc(list, func(s store.LiveSession) bool { return s.Hash == hash }), nil
}

// begun returns the principal of a new session.
func (s *Sessions) begun(ctx context.Context, token string) (string, Principal, error) {
	principal, err := s.Authenticate(ctx, token)
	return token, principal, err
}

// maxAgent is how many bytes of a User-Agent are stored, of its visible ASCII.
const maxAgent = 200

func newSession(from Client) (token string, session store.NewSession) {
	token, hash := newToken()
	client := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, from.Agent)
	return token, store.NewSession{Hash: hash, Lifetime: SessionLifetime.Milliseconds(), Client: client[:min(len(client), maxAgent)]}
}

// Device returns a token for the device from which a user has just signed in. With it in [Client], failed sign-ins elsewhere
// don't lock the user out there, until the password changes.
func (s *Sessions) Device(ctx context.Context, user Principal) (string, error) {
	record, err := s.db.Logins.ByID(ctx, user.OrgID, user.UserID)
	if err != nil {
		return "", fmt.Errorf("making a device token: %w", err)
	}
	return newDevice(record.Password), nil
}

func newDevice(passwordHash string) string {
	var random [deviceNameBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	name := base64.RawURLEncoding.EncodeToString(random[:])
	return name + "." + deviceProof(passwordHash, name)
}

// Authenticate reads a session and returns its principal; [ErrNoSession] if it doesn't exist or has ended by the database's
// clock. A suspended organization's user authenticates, as with [Authenticator].
func (s *Sessions) Authenticate(ctx context.Context, token string) (Principal, error) {
	hash, ok := tokenHash(token)
	if !ok {
		return Principal{}, ErrNoSession
	}
	record, found, err := s.db.Sessions.ByHash(ctx, hash)
	if err != nil {
		return Principal{}, fmt.Errorf("reading a session: %w", err)
	}
	unused := time.Duration(record.NowMS-record.SeenAt) * time.Millisecond
	if !found || record.ExpiresAt <= record.NowMS || unused >= SessionIdle {
		return Principal{}, ErrNoSession
	}
	if unused >= seenEvery {
		// A use that isn't noted ends the session earlier, never later, so its failure is no reason to refuse a request.
		_ = s.db.Sessions.Touch(ctx, hash)
	}
	role := Role(record.Role)
	return Principal{
		OrgID: record.OrgID, UserID: record.UserID, Role: role, Env: store.Live, Plan: record.Plan, Suspended: record.SuspendedAt.Valid,
		SuspensionReason: record.SuspensionReason, Scopes: role.scopes(), HasOrgModels: record.HasOrgModels, BudgetVersion: record.BudgetVersion,
	}, nil
}

// End ends a session, immediately and on every node. A session that doesn't exist is no error.
func (s *Sessions) End(ctx context.Context, token string) error {
	hash, ok := tokenHash(token)
	if !ok {
		return nil
	}
	return store.Wrap("ending a session", s.db.Sessions.End(ctx, hash))
}

// A token of a session or a one-time link is 256 random bits in base64url: 43 characters.
const (
	tokenBytes      = 32
	tokenCharacters = 43
)

// newToken returns a token and its SHA-256, which is all that is stored.
func newToken() (token string, hash [sha256.Size]byte) {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	token = base64.RawURLEncoding.EncodeToString(random[:])
	return token, sha256.Sum256([]byte(token))
}

// tokenHash returns the hash for a token's look-up; ok is false for a text that can't be a token.
func tokenHash(token string) (hash [sha256.Size]byte, ok bool) {
	if len(token) != tokenCharacters {
		return hash, false
	}
	return sha256.Sum256([]byte(token)), true
}

// Client describes the program through which a person signs in.
type Client struct {
	// Address is the client's IP address, or the customer's network for IPv6. Failures are counted by it. Empty means unknown.
	Address string
	// Device is a token of [Sessions.Device] from an earlier sign-in. Empty means none.
	Device string
	// Agent is the program's User-Agent, for the list of sessions.
	Agent string
	// Code is of the user's second factor. Empty means none.
	Code string
}

// A device token is a random name and, after a dot, an HMAC of the name keyed with the stored hash of the user's password: it
// is valid for one user, until the password changes, and needs no row.
const (
	deviceNameBytes      = 16
	deviceNameCharacters = 22
	deviceCharacters     = deviceNameCharacters + 1 + 43
)

func deviceProof(passwordHash, name string) string {
	mac := hmac.New(sha256.New, []byte(passwordHash))
	mac.Write([]byte("device\n" + name)) //nolint:errcheck // a hash never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// knownDevice returns the name in a valid device token of the user with the stored hash. It is empty for any other text.
func knownDevice(passwordHash, token string) string {
	name, proof, _ := strings.Cut(token, ".")
	if passwordHash == "" || len(token) != deviceCharacters || len(name) != deviceNameCharacters ||
		!hmac.Equal([]byte(proof), []byte(deviceProof(passwordHash, name))) {
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

// take counts a try of a password or a code. It returns a [ThrottledError] after too many failures.
func take(ctx context.Context, db *store.DB, what string, bounds []store.LoginBound) (store.Login, error) {
	login, err := db.Logins.Take(ctx, bounds)
	if err != nil {
		return login, fmt.Errorf("counting %s: %w", what, err)
	}
	if login.RetryAfter > 0 {
		return login, &ThrottledError{time.Duration(login.RetryAfter) * time.Millisecond}
	}
	return login, nil
}

// try checks the password of a sign-in against the records with the e-mail address who, and returns the matching and accepted records, with the
// client that more hashes are for. It returns [ErrWrongPassword] if there is none, a [ThrottledError], [ErrBusy], or the store's error.
func (p *passwords) try(
	ctx context.Context, db *store.DB, who, password string, from Client, records []store.LoginRecord, accepted func(*store.LoginRecord) bool,
) (login store.Login, matching []store.LoginRecord, by asker, err error) {
	device, by, stored := "", stranger(from.Address), make([]string, len(records))
	for i := range records {
		stored[i] = records[i].Password
		if known := knownDevice(stored[i], from.Device); known != "" {
			device, by = known, knownUser(records[i].UserID)
		}
	}
	if login, err = take(ctx, db, "a login", loginBounds(who, from.Address, device)); err != nil {
		return login, nil, by, err
	}
	matches, err := p.check(ctx, stored, password, by)
	if errors.Is(err, ErrBusy) {
		_ = db.Logins.GiveBack(ctx, login) // if it fails, the person waits for a minute at most
	}
	if err != nil {
		return login, nil, by, fmt.Errorf("checking a password: %w", err)
	}
	for _, i := range matches {
		if accepted(&records[i]) {
			matching = append(matching, records[i])
		}
	}
	if len(matching) == 0 {
		// It is written for every address alike, and the answer is the same if that fails.
		_ = db.Logins.CountFailed(ctx, sha256.Sum256([]byte("failed\n"+who)), records, from.Address)
		return login, nil, by, ErrWrongPassword
	}
	return login, matching, by, nil
}

// loginBounds returns the bounds that a sign-in counts against, ordered so that one address can't use up a user's failures. device is the
// name of a known device, or empty.
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
