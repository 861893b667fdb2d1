package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/argon2"
	"golang.org/x/sync/semaphore"
)

const goodPassword = "correct horse battery"

func TestPasswordHash(t *testing.T) {
	t.Parallel()
	p := newPasswords()
	first, err := p.hash(t.Context(), goodPassword, false)
	require.NoError(t, err)
	second, err := p.hash(t.Context(), goodPassword, false)
	require.NoError(t, err)
	require.NotEqual(t, first, second, "each has its own salt")
	// At least 19 MiB, two passes, one thread.
	require.Regexp(t, `^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`, first)

	for password, want := range map[string]bool{goodPassword: true, goodPassword + " ": false, "Correct horse battery": false, "": false} {
		matches, stale, err := p.check(t.Context(), first, password, false)
		require.NoError(t, err)
		require.Equal(t, want, matches, password)
		require.False(t, stale)
	}
	matches, _, err := p.check(t.Context(), "", goodPassword, false)
	require.NoError(t, err)
	require.False(t, matches, "nobody has no password")
}

// No password matches a user without one: the hash that it is compared with can't come from a password.
func TestNobodyHasNoPassword(t *testing.T) {
	t.Parallel()
	matches, stale, err := newPasswords().check(t.Context(), "", "", false)
	require.NoError(t, err)
	require.False(t, matches)
	require.False(t, stale)
}

// A hash of another cost still matches, and is reported as stale.
func TestStaleHash(t *testing.T) {
	t.Parallel()
	salt := []byte("0123456789abcdef")
	old := encodedHash{hashCost: hashCost{8, 1, 1}, salt: salt, sum: argon2.IDKey([]byte(goodPassword), salt, 1, 8, 1, 32)}
	matches, stale, err := newPasswords().check(t.Context(), old.String(), goodPassword, false)
	require.NoError(t, err)
	require.True(t, matches)
	require.True(t, stale)
}

func TestHashThatCannotBeRead(t *testing.T) {
	t.Parallel()
	salt, sum := base64.RawStdEncoding.EncodeToString(make([]byte, 16)), base64.RawStdEncoding.EncodeToString(make([]byte, 32))
	for _, bad := range []string{
		"x", "$argon2id$v=19$m=19456,t=2,p=1$" + salt, "$argon2i$v=19$m=19456,t=2,p=1$" + salt + "$" + sum,
		"$argon2id$v=18$m=19456,t=2,p=1$" + salt + "$" + sum, "$argon2id$v=19$m=0,t=2,p=1$" + salt + "$" + sum,
		"$argon2id$v=19$m=19456,t=0,p=1$" + salt + "$" + sum, "$argon2id$v=19$m=19456,t=2,p=0$" + salt + "$" + sum,
		"$argon2id$v=19$m=9999999999,t=2,p=1$" + salt + "$" + sum, "$argon2id$v=19$m=2000000,t=2,p=1$" + salt + "$" + sum,
		"$argon2id$v=19$m=19456,t=2,p=1$!$" + sum, "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$", "$argon2id$v=19$m=19456,t=2,p=1$$" + sum,
	} {
		_, _, err := newPasswords().check(t.Context(), bad, goodPassword, false)
		require.ErrorIs(t, err, errHash, bad)
		require.NotContains(t, err.Error(), sum)
	}
}

func TestPasswordLengths(t *testing.T) {
	t.Parallel()
	for password, want := range map[string]string{
		strings.Repeat("ä", 11): "password: has 11 characters, at least 12 are needed", strings.Repeat("ä", 12): "",
		strings.Repeat("\U0001F600", 256): "", strings.Repeat("a", 257): "password: has 257 characters, at most 256 are allowed",
		strings.Repeat("\xff", 20): "password: is not valid UTF-8", "": "password: has 0 characters, at least 12 are needed",
	} {
		err := CheckPassword(password)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
		var field *FieldError
		require.ErrorAs(t, err, &field)
	}
}

// Strangers' passwords take one turn for two processors, and maxHashes at most. A caller that waits too long gets ErrBusy, and
// one whose context ends gets its cause.
func TestPasswordTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasswords()
		var release []func()
		for range min(maxHashes, max(1, runtime.GOMAXPROCS(0)/2)) {
			done, err := p.turn(t.Context(), false)
			require.NoError(t, err)
			release = append(release, done)
		}
		for range 2 { // strangers have none of the kept turns, one after the other
			done, err := p.turn(t.Context(), true)
			require.NoError(t, err)
			done()
		}
		began := time.Now()
		_, err := p.turn(t.Context(), false)
		require.ErrorIs(t, err, ErrBusy)
		require.Equal(t, hashWait, time.Since(began))

		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		_, err = p.turn(ctx, false)
		require.ErrorIs(t, err, gone)
		_, err = p.hash(ctx, goodPassword, false)
		require.ErrorIs(t, err, gone)
		_, _, err = p.check(ctx, "", goodPassword, false)
		require.ErrorIs(t, err, gone)

		got := make(chan error)
		go func() {
			done, err := p.turn(t.Context(), false)
			if err == nil {
				done()
			}
			got <- err
		}()
		synctest.Wait()
		release[0]()
		require.NoError(t, <-got)
	})
}

// A stored hash never makes the service take more than its bounds, and what is read is what was written.
func FuzzParseHash(f *testing.F) {
	f.Add("$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("$argon2id$v=19$m=8,t=1,p=1 x$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHash(text)
		if err != nil {
			require.ErrorIs(t, err, errHash)
			return
		}
		require.True(t, h.memory > 0 && h.memory <= 1<<20 && h.time > 0 && h.time <= 100 && h.threads > 0 && h.threads <= 64)
		again, err := parseHash(h.String())
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}

func TestCommonPasswords(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(commonPasswords()), 5000)
	require.LessOrEqual(t, len(commonPasswords()), 10_000)
	for _, password := range []string{
		"sonyericsson", "SonyEricsson", "password1234", "123!Password", "passwordpassword", "qwertyuiop12", "111111111111",
		"123456789012", "aaaaaaaaaaaa", "abababababab", "987654321098", "1qaz2wsx3edc", "Dragon!Dragon!"[:6] + "!!!!!!",
	} {
		var field *FieldError
		require.ErrorAs(t, CheckNewPassword(password), &field, password)
		require.Equal(t, "password", field.Field)
		require.NoError(t, CheckPassword(password), "who has it already can sign in")
	}
	for _, password := range []string{
		"correct horse battery", goodPassword, "a long password", "3141592653589793", "passwordhorse", "!!??//((%%==", "\u65e5\u672c\u8a9e\u306e\u9577\u3044\u5408\u8a00\u8449\u3067\u3059\u3088\u306d",
	} {
		require.NoError(t, CheckNewPassword(password), password)
	}
}

// TestPasswordsShareProcessors: a hash waits for a processor no longer than for its turn, and gives back both.
func TestPasswordsShareProcessors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasswords()
		p.processors = semaphore.NewWeighted(1)
		done, err := p.turn(t.Context(), false)
		require.NoError(t, err)
		began := time.Now()
		_, err = p.turn(t.Context(), true)
		require.ErrorIs(t, err, ErrBusy)
		require.Equal(t, hashWait, time.Since(began))
		require.Empty(t, p.kept)
		done()
		require.Empty(t, p.turns)
		require.True(t, p.processors.TryAcquire(1))
	})
}

// TestHashesCollectFirst: memory for a hash that would pass the heap's goal is made by a collection before, beside which the
// others go on.
func TestHashesCollectFirst(t *testing.T) {
	forced := func(hash func()) uint32 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		hash()
		runtime.ReadMemStats(&after)
		return after.NumForcedGC - before.NumForcedGC
	}
	passing := func() { collectFor(1 << 40) }
	runtime.GC()
	require.Zero(t, forced(passing), "a small heap is collected soon enough")

	large := make([]byte, 200<<20)
	runtime.GC()
	require.EqualValues(t, 1, forced(passing))
	require.Zero(t, forced(func() { collectFor(1 << 20) }), "there is room")
	runtime.KeepAlive(large)
}
