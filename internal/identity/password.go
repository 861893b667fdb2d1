package identity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/sync/semaphore"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
)

// Bounds of a password, in Unicode code points.
const (
	MinPasswordLength = 12
	MaxPasswordLength = 256
)

// hashCost is the cost of a hash: memory in KiB, passes over it, threads.
type hashCost struct {
	memory, time uint32
	threads      uint8
}

// passwordCost is the minimum that OWASP's Password Storage Cheat Sheet recommends for argon2id. A stored hash of another cost
// is renewed at the next successful sign-in.
var passwordCost = hashCost{memory: 19 << 10, time: 2, threads: 1}

const (
	hashBytes = 32
	saltBytes = 16
)

// Limits of password hashes. Each hash needs 19 MiB and a processor. maxHashes passwords of strangers are hashed at a time, or one for
// every two processors if that is fewer. keptHashes are reserved for clients that have presented a session, a one-time link or a known
// device, so that guesses don't delay them. hashWait limits the wait, and maxWaiting the number of waiting attempts. An address has no
// limit of its own here, because few of its attempts may fail.
const (
	maxHashes  = 3
	keptHashes = 1
	hashWait   = 5 * time.Second
	maxWaiting = 1024
)

// ErrBusy reports that too many passwords are being checked; a later attempt may succeed.
var ErrBusy = errors.New("too many passwords are being checked")

// CheckNewPassword returns a [FieldError] for a new password that is too short, too long, or common.
func CheckNewPassword(password string) error {
	if err := CheckPassword(password); err != nil {
		return err
	}
	// Most common passwords are shorter than the minimum. The usual ways to lengthen them are to repeat them, and to put digits and
	// punctuation around them.
	lower := strings.ToLower(password)
	core := strings.TrimFunc(lower, func(c rune) bool { return !unicode.IsLetter(c) })
	if core == "" && digitsOnly(lower) || known(lower) || known(core) {
		return &FieldError{"password", "is one of the commonest passwords, or is made of one; choose several words"}
	}
	return nil
}

// CheckPassword returns a [FieldError] for a text that is too short or too long to be a password.
func CheckPassword(password string) error {
	switch length := utf8.RuneCountInString(password); {
	case !utf8.ValidString(password):
		return &FieldError{"password", "is not valid UTF-8"}
	case length < MinPasswordLength:
		return &FieldError{"password", fmt.Sprintf("has %d characters, at least %d are needed", length, MinPasswordLength)}
	case length > MaxPasswordLength:
		return &FieldError{"password", fmt.Sprintf("has %d characters, at most %d are allowed", length, MaxPasswordLength)}
	}
	return nil
}

// passwords computes and checks argon2id hashes (RFC 9106), a few at a time.
type passwords struct {
	// strangers limits the hashes for addresses, known the hashes for known users.
	strangers, known *dispatch.Turns
	// processors is the semaphore given to [NewSessions].
	processors *semaphore.Weighted
	patience   time.Duration
	cost       hashCost
}

func newPasswords() *passwords {
	return &passwords{
		strangers: passwordTurns(strangersHashes()), known: passwordTurns(keptHashes), patience: hashWait, cost: passwordCost,
	}
}

// passwordTurns returns turns in which each address or user has one place.
func passwordTurns(places int) *dispatch.Turns {
	return dispatch.NewTurns(dispatch.Bounds{Places: places, Each: 1, Line: maxWaiting, Lines: maxWaiting})
}

// strangersHashes is how many passwords of strangers are hashed at a time.
func strangersHashes() int { return min(maxHashes, max(1, runtime.GOMAXPROCS(0)/2)) }

// asker is the client that a password is hashed for: the user of a client that has presented a session, a one-time link or a known device;
// or the address of a stranger, so that no address holds up the others.
type asker struct {
	owner string
	known bool
}

func stranger(address string) asker { return asker{owner: address} }

func knownUser(name string) asker { return asker{owner: name, known: true} }

// turn waits until another hash may be computed. Its error is [ErrBusy] or the context's cause.
func (p *passwords) turn(ctx context.Context, by asker) (done func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.patience, ErrBusy)
	defer cancel()
	turns := p.strangers
	if by.known {
		turns = p.known
	}
	err = turns.Enter(ctx, by.owner)
	switch {
	case errors.Is(err, dispatch.ErrBusy):
		return nil, ErrBusy
	case err != nil:
		return nil, err
	case p.processors == nil:
		return func() { turns.Leave(by.owner) }, nil
	}
	if p.processors.Acquire(ctx, 1) != nil {
		turns.Leave(by.owner)
		return nil, context.Cause(ctx)
	}
	return func() { p.processors.Release(1); turns.Leave(by.owner) }, nil
}

// hash returns the PHC string of argon2id with the salt of another hash, or with a random one if that is empty.
func (p *passwords) hash(ctx context.Context, password, salted string, by asker) (string, error) {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails: crypto/rand ends the process instead
	if salted != "" {
		other, err := parseHash(salted)
		if err != nil {
			return "", err
		}
		salt = other.salt
	}
	done, err := p.turn(ctx, by)
	if err != nil {
		return "", err
	}
	defer done()
	return encodedHash{p.cost, salt, p.cost.sum(password, salt, hashBytes)}.String(), nil
}

// check compares a password with the stored hashes of the users with one e-mail address, and returns the indexes of the matches. Without a
// hash, or for the empty hash of a user without a password, it does the same work and matches nothing, so that the time doesn't reveal
// whether a user exists. All hashes of an address have one salt, so it computes one sum; after a change of the cost, or an import, they may
// have several, of which it computes mostSums.
func (p *passwords) check(ctx context.Context, stored []string, password string, by asker) (matches []int, err error) {
	known := make([]encodedHash, len(stored))
	for i, text := range stored {
		if text == "" {
			continue
		}
		if known[i], err = parseHash(text); err != nil {
			return nil, err
		}
	}
	done, err := p.turn(ctx, by)
	if err != nil {
		return nil, err
	}
	defer done()
	sums := make(map[string][]byte, 1)
	for i, h := range known {
		if h.sum == nil {
			continue
		}
		sum, computed := sums[h.kind()]
		if !computed && len(sums) < mostSums {
			sum = h.hashCost.sum(password, h.salt, len(h.sum))
			sums[h.kind()] = sum
		}
		if subtle.ConstantTimeCompare(sum, h.sum) == 1 {
			matches = append(matches, i)
		}
	}
	if len(sums) == 0 {
		p.cost.sum(password, make([]byte, saltBytes), hashBytes)
	}
	return matches, nil
}

// mostSums bounds how many hashes one sign-in computes.
const mostSums = 4

// stale reports whether a stored hash, which has matched, has an outdated cost.
func (p *passwords) stale(stored string) bool {
	h, err := parseHash(stored)
	return err == nil && (h.hashCost != p.cost || len(h.sum) != hashBytes)
}

// renew returns another hash of a password that has matched a stale one, or an empty text.
func (p *passwords) renew(ctx context.Context, stored, password string, by asker) (hash string, err error) {
	if p.stale(stored) {
		if hash, err = p.hash(ctx, password, stored, by); err != nil {
			return "", fmt.Errorf("hashing a password: %w", err)
		}
	}
	return hash, nil
}

func (c hashCost) sum(password string, salt []byte, length int) []byte {
	collectFor(uint64(c.memory) << 10)
	return argon2.IDKey([]byte(password), salt, c.time, c.memory, c.threads, uint32(length)) //nolint:gosec // hashBytes, or what parseHash allows
}

// collectFor collects garbage when allocating bytes would pass the heap's goal. An allocation that passes it in one piece
// starts a collection that every allocating goroutine assists, 65 ms with 10,000 connections. Started before, the collection
// delays only this hash. Collections of a small heap are too short to matter.
func collectFor(bytes uint64) {
	const (
		room  = 8 << 20 // for allocations of other goroutines meanwhile
		small = 128 << 20
	)
	heap := [...]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(heap[:])
	if used, goal := heap[0].Value.Uint64(), heap[1].Value.Uint64(); goal > small && used+bytes+room > goal {
		runtime.GC()
	}
}

// encodedHash is a hash with its parameters.
type encodedHash struct {
	hashCost

	salt, sum []byte
}

func (h encodedHash) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.threads,
		base64.RawStdEncoding.EncodeToString(h.salt), base64.RawStdEncoding.EncodeToString(h.sum))
}

// kind is equal for hashes that one sum is enough for.
func (h encodedHash) kind() string { return fmt.Sprint(h.hashCost, len(h.sum), " ", string(h.salt)) }

// errHash reveals nothing of the hash.
var errHash = errors.New("a stored password hash can't be read")

// parseHash parses what [encodedHash.String] writes. It bounds the cost, so that a manipulated row can't exhaust the memory.
func parseHash(text string) (encodedHash, error) {
	const mostMemory, mostTime, mostThreads = 1 << 20, 100, 64
	parts := strings.Split(text, "$")
	var h encodedHash
	var version int
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return h, errHash
	}
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return h, errHash
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.time, &h.threads); err != nil {
		return h, errHash
	}
	var errSalt, errSum error
	h.salt, errSalt = base64.RawStdEncoding.DecodeString(parts[4])
	h.sum, errSum = base64.RawStdEncoding.DecodeString(parts[5])
	if errSalt != nil || errSum != nil || h.memory == 0 || h.memory > mostMemory || h.time == 0 || h.time > mostTime ||
		h.threads == 0 || h.threads > mostThreads ||
		len(h.sum) < 16 || len(h.sum) > 64 || len(h.salt) < 8 || len(h.salt) > 64 {
		return h, errHash
	}
	return h, nil
}

// commonPasswordList is the dictionary "passwords" of the npm package zxcvbn 4.4.2 (package/src/frequency_lists.coffee) in
// lower case, without the entries of fewer than 6 characters, one to a line and sorted. Its licence (MIT) is in
// common_passwords.LICENSE.
//
//go:embed common_passwords.txt
var commonPasswordList string

var commonPasswords = sync.OnceValue(func() map[string]bool {
	all := make(map[string]bool)
	for line := range strings.Lines(commonPasswordList) {
		all[strings.TrimSuffix(line, "\n")] = true
	}
	return all
})

// digitsOnly reports whether a password consists of digits, each equal or adjacent to the digit before. 9 and 0 are
// adjacent.
func digitsOnly(password string) bool {
	for i := range len(password) {
		if password[i] < '0' || password[i] > '9' {
			return false
		}
		if step := int(password[i]) - int(password[max(i-1, 0)]); (step < -1 || step > 1) && step != 9 && step != -9 {
			return known(password)
		}
	}
	return true
}

// known reports whether a text is in the list, or repeats an entry of it.
func known(text string) bool {
	all := commonPasswords()
	for length := 1; length <= len(text); length++ {
		if len(text)%length == 0 && (length == len(text) || strings.Repeat(text[:length], len(text)/length) == text) &&
			(all[text[:length]] || length < 6 && length < len(text)) {
			return true
		}
	}
	return false
}
