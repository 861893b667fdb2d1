package identity

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// A raw key is prefix (8) + 32 random bytes in base62 (43) + CRC-32 of everything before it in base62 (6). The checksum
// identifies a mistyped key without a look-up.
const (
	livePrefix = "ck_live_"
	testPrefix = "ck_test_"

	secretBytes    = 32
	secretDigits   = 43 // 62^43 > 2^256
	checksumDigits = 6  // 62^6 > 2^32
	keyLength      = len(livePrefix) + secretDigits + checksumDigits

	hintDigits = 4
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewKey returns a raw key of 256 random bits for env, its SHA-256, which the store keeps, and a hint: the prefix and the first
// four secret characters, for lists.
func NewKey(env store.Env) (raw string, hash [sha256.Size]byte, hint string) {
	if env == store.Test {
		return newKey(testPrefix)
	}
	return newKey(livePrefix)
}

func newKey(prefix string) (raw string, hash [sha256.Size]byte, hint string) {
	var secret [secretBytes]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	body := prefix + encodeBase62(new(big.Int).SetBytes(secret[:]), secretDigits)
	raw = body + checksum(body)
	return raw, sha256.Sum256([]byte(raw)), body[:len(prefix)+hintDigits] + "…"
}

// ParseKey checks prefix, length, alphabet and checksum of a raw key without the database and returns the hash for its look-up.
// ok is false for a malformed key.
func ParseKey(raw string) (hash [sha256.Size]byte, env store.Env, ok bool) {
	prefix := livePrefix
	env = store.Live
	if strings.HasPrefix(raw, testPrefix) {
		prefix, env = testPrefix, store.Test
	}
	if hash, ok = parseKey(raw, prefix); !ok {
		return hash, "", false
	}
	return hash, env, true
}

func parseKey(raw, prefix string) (hash [sha256.Size]byte, ok bool) {
	if len(raw) != len(prefix)+secretDigits+checksumDigits || !strings.HasPrefix(raw, prefix) {
		return hash, false
	}
	key := []byte(raw) // converted once: this runs on every request
	for _, digit := range key[len(prefix):] {
		if strings.IndexByte(base62, digit) < 0 {
			return hash, false
		}
	}
	if sum := len(key) - checksumDigits; !checksumMatches(key[:sum], key[sum:]) {
		return hash, false
	}
	return sha256.Sum256(key), true
}

// checksum returns the CRC-32 (IEEE) of body in base62.
func checksum(body string) string {
	return encodeBase62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))), checksumDigits)
}

// checksumMatches reports whether sum is checksum(body). It doesn't allocate.
func checksumMatches(body, sum []byte) bool {
	rest := crc32.ChecksumIEEE(body)
	for i := checksumDigits - 1; i >= 0; i-- {
		if sum[i] != base62[rest%62] {
			return false
		}
		rest /= 62
	}
	return true
}

// encodeBase62 writes n with exactly width digits, the most significant first; n must fit.
func encodeBase62(n *big.Int, width int) string {
	digits := make([]byte, width)
	base, digit := big.NewInt(62), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		digits[i] = base62[digit.Int64()]
	}
	return string(digits)
}

// KeyRequest describes a new API key.
type KeyRequest struct {
	OrgID string
	// Name is optional; among an organization's keys that are not revoked it is unique.
	Name string
	// Env is live if it is empty.
	Env store.Env
	// Scopes are names of scopes. Empty means DefaultScopes.
	Scopes []string
	// Models are the models that the key may use.
	Models store.KeyModels
	// RequestsPerMinute and MaxConcurrent are the bounds of the key; NULL means none.
	RequestsPerMinute, MaxConcurrent sql.NullInt64
	// ExpiresAt may be in the past. A key without it never expires.
	ExpiresAt *time.Time
}

// IssuedKey is a new key with its raw text, which is stored nowhere and can't be shown again.
type IssuedKey struct {
	store.APIKey
	Raw string
}

// CreateAPIKey makes a key; only its hash is stored. A key made by a key expires no later than its maker: a later expiry is
// [store.ErrOutlives]. Other errors are, wrapped, a [FieldError] for a refused value, [store.ErrNotFound] for an unknown
// organization, [store.ErrConflict] for a name that is taken, or the store's.
func CreateAPIKey(ctx context.Context, db *store.DB, actor string, request KeyRequest) (IssuedKey, error) {
	key := store.APIKey{
		ID: store.NewID("key"), OrgID: request.OrgID, Env: cmp.Or(request.Env, store.Live), CreatedAt: time.Now().UnixMilli(),
		Models: request.Models, RequestsPerMinute: request.RequestsPerMinute, MaxConcurrent: request.MaxConcurrent,
	}
	var err error
	if strings.TrimSpace(request.Name) != "" {
		if key.Name, err = CleanName("name", request.Name); err != nil {
			return IssuedKey{}, err
		}
	}
	if !key.Env.Valid() {
		return IssuedKey{}, &FieldError{"env", fmt.Sprintf("%q is not live or test", clip(string(request.Env)))}
	}
	scopes, err := ParseScopes(request.Scopes)
	if err != nil {
		return IssuedKey{}, err
	}
	key.Scopes = store.Column(scopes, func(scope Scope) string { return string(scope) })
	if request.ExpiresAt != nil {
		key.ExpiresAt = sql.NullInt64{Int64: request.ExpiresAt.UnixMilli(), Valid: true}
	}
	var raw string
	raw, key.Hash, key.Hint = NewKey(key.Env)
	if err := db.APIKeys.Create(ctx, actor, key); err != nil {
		return IssuedKey{}, fmt.Errorf("creating an API key of organization %q: %w", clip(request.OrgID), err)
	}
	// The store bounds the expiry by the maker's.
	if key, err = db.APIKeys.ByID(ctx, key.OrgID, key.ID); err != nil {
		return IssuedKey{}, fmt.Errorf("reading the new API key: %w", err)
	}
	return IssuedKey{APIKey: key, Raw: raw}, nil
}

// MaxProviderKeyBytes bounds a provider key; the longest known vendors' keys have some 200 bytes, tokens a few
// thousand.
const MaxProviderKeyBytes = 8 << 10

// PutProviderKey stores or replaces an organization's own key for a provider (BYOK), sealed for its row; the caller has checked
// that the provider is configured. White space around the key, such as a file's last newline, is dropped. It returns a
// [FieldError] that doesn't contain the key, [store.ErrNotFound] for an unknown organization, or the store's error.
func PutProviderKey(ctx context.Context, db *store.DB, ring *vault.Ring, actor, orgID, provider, key string) error {
	key = strings.TrimSpace(key)
	switch {
	case key == "":
		return &FieldError{"key", "is empty"}
	case len(key) > MaxProviderKeyBytes:
		return &FieldError{"key", fmt.Sprintf("has %d bytes, at most %d are allowed", len(key), MaxProviderKeyBytes)}
	case strings.ContainsFunc(key, invisible):
		return &FieldError{"key", "may hold visible ASCII characters only: one key, without spaces or line breaks"}
	}
	const shown, shortest = 4, 20 // four characters of a short key would reveal too much
	hint := "…"
	if len(key) >= shortest {
		hint += key[len(key)-shown:]
	}
	sealed := ring.Seal([]byte(key), vault.ProviderKey(orgID, provider))
	err := db.ProviderKeys.Put(ctx, actor, store.ProviderKey{OrgID: orgID, Provider: provider, Sealed: sealed, Hint: hint})
	return store.Wrap(fmt.Sprintf("storing the key of organization %q for %q", clip(orgID), clip(provider)), err)
}
