package identity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/sync/semaphore"
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

// Each hash takes 19 MiB and a processor. Of unauthenticated clients at most maxHashes passwords are hashed at a time, at most
// one for two processors. keptHashes more are reserved for clients that have presented a session, a one-time link or a known
// device. hashWait bounds the wait.
const (
	maxHashes  = 3
	keptHashes = 1
	hashWait   = 5 * time.Second
)

// ErrBusy reports that too many passwords are being checked; a later attempt may succeed.
var ErrBusy = errors.New("too many passwords are being checked")

// CheckNewPassword returns a [FieldError] for a new password that is too short, too long, or common.
func CheckNewPassword(password string) error {
	if err := CheckPassword(password); err != nil {
		return err
	}
	if commonPassword(password) {
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
	default:
		return nil
	}
}

// passwords computes and checks argon2id hashes (RFC 9106), a few at a time.
type passwords struct {
	turns chan struct{}
	kept  chan struct{} // places of known clients
	// processors is the semaphore given to [NewSessions].
	processors *semaphore.Weighted
	patience   time.Duration
	cost       hashCost
}

func newPasswords() *passwords {
	return &passwords{
		turns: make(chan struct{}, min(maxHashes, max(1, runtime.GOMAXPROCS(0)/2))), kept: make(chan struct{}, keptHashes),
		patience: hashWait, cost: passwordCost,
	}
}

// turn waits until another hash may be computed. Its error is [ErrBusy] or the context's cause.
func (p *passwords) turn(ctx context.Context, known bool) (done func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.patience, ErrBusy)
	defer cancel()
	leave, err := p.place(ctx, known)
	if err != nil || p.processors == nil {
		return leave, err
	}
	if p.processors.Acquire(ctx, 1) != nil {
		leave()
		return nil, context.Cause(ctx)
	}
	return func() { p.processors.Release(1); leave() }, nil
}

// place waits for one of the places for hashes.
func (p *passwords) place(ctx context.Context, known bool) (leave func(), err error) {
	var kept chan struct{} // never ready while nil
	if known {
		kept = p.kept
	}
	select { // prefer a free place to the context's end
	case p.turns <- struct{}{}:
		return func() { <-p.turns }, nil
	case kept <- struct{}{}:
		return func() { <-p.kept }, nil
	default:
	}
	select {
	case p.turns <- struct{}{}:
		return func() { <-p.turns }, nil
	case kept <- struct{}{}:
		return func() { <-p.kept }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// hash returns the PHC string of argon2id with a random salt.
func (p *passwords) hash(ctx context.Context, password string, known bool) (string, error) {
	done, err := p.turn(ctx, known)
	if err != nil {
		return "", err
	}
	defer done()
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails: crypto/rand ends the process instead
	return encodedHash{
		hashCost: p.cost, salt: salt,
		sum: p.cost.sum(password, salt, hashBytes),
	}.String(), nil
}

// check compares a password with a stored hash. For "", the hash of an unknown user, it does the same work and returns false,
// so that the time doesn't reveal whether a user exists. stale reports that the stored hash has an outdated cost.
func (p *passwords) check(ctx context.Context, stored, password string, trusted bool) (matches, stale bool, err error) {
	known := encodedHash{hashCost: p.cost, salt: make([]byte, saltBytes), sum: make([]byte, hashBytes)}
	if stored != "" {
		if known, err = parseHash(stored); err != nil {
			return false, false, err
		}
	}
	done, err := p.turn(ctx, trusted)
	if err != nil {
		return false, false, err
	}
	defer done()
	sum := known.hashCost.sum(password, known.salt, len(known.sum))
	matches = subtle.ConstantTimeCompare(sum, known.sum) == 1 && stored != ""
	return matches, known.hashCost != p.cost || len(known.sum) != hashBytes, nil
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
	var err error
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return h, errHash
	}
	if h.sum, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
		return h, errHash
	}
	if h.memory == 0 || h.memory > mostMemory || h.time == 0 || h.time > mostTime || h.threads == 0 || h.threads > mostThreads ||
		len(h.sum) < 16 || len(h.sum) > 64 || len(h.salt) < 8 || len(h.salt) > 64 {
		return h, errHash
	}
	return h, nil
}
