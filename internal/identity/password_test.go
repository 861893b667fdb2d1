package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
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
	first, err := p.hash(t.Context(), goodPassword, "", stranger("192.0.2.1"))
	require.NoError(t, err)
	second, err := p.hash(t.Context(), goodPassword, "", stranger("192.0.2.1"))
	require.NoError(t, err)
	require.NotEqual(t, first, second, "each has its own salt")
	// At least 19 MiB, two passes, one thread.
	require.Regexp(t, `^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`, first)

	for password, want := range map[string]bool{goodPassword: true, goodPassword + " ": false, "Correct horse battery": false, "": false} {
		matches, err := p.check(t.Context(), []string{first}, password, stranger("192.0.2.1"))
		require.NoError(t, err)
		require.Equal(t, want, len(matches) == 1, password)
	}
	require.False(t, p.stale(first))
	matches, err := p.check(t.Context(), []string{"", first, second, ""}, goodPassword, stranger("192.0.2.1"))
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, matches, "nobody has no password")
}

// No password matches a user without one: the hash that it is compared with can't come from a password.
func TestNobodyHasNoPassword(t *testing.T) {
	t.Parallel()
	for _, stored := range [][]string{nil, {""}, {"", ""}} {
		matches, err := newPasswords().check(t.Context(), stored, "", stranger("192.0.2.1"))
		require.NoError(t, err)
		require.Empty(t, matches)
	}
}

// A password costs one sum, whether or not there is a user or a password to compare it with. The test counts what the process allocates, and
// so has no other beside it.
func TestUnknownUsersCostASum(t *testing.T) {
	p := newPasswords()
	hash, err := p.hash(t.Context(), goodPassword, "", stranger("192.0.2.1"))
	require.NoError(t, err)
	for name, stored := range map[string][]string{"nobody": nil, "nobody with a password": {""}, "somebody": {hash}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := p.check(t.Context(), stored, "a wrong password", stranger("192.0.2.1"))
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		sums := float64(after.TotalAlloc-before.TotalAlloc) / float64(p.cost.memory<<10)
		require.InDelta(t, 1, sums, 0.5, name)
	}
}

// A hash of another cost still matches, and is reported as stale.
func TestStaleHash(t *testing.T) {
	t.Parallel()
	salt := []byte("0123456789abcdef")
	old := encodedHash{hashCost: hashCost{8, 1, 1}, salt: salt, sum: argon2.IDKey([]byte(goodPassword), salt, 1, 8, 1, 32)}
	matches, err := newPasswords().check(t.Context(), []string{old.String()}, goodPassword, stranger("192.0.2.1"))
	require.NoError(t, err)
	require.Len(t, matches, 1)
	require.True(t, newPasswords().stale(old.String()))
}

// However many users have an e-mail address, a sign-in computes the one hash of their salt, and at most mostSums if they have more.
func TestOneSumForAllOfAnAddress(t *testing.T) {
	t.Parallel()
	p := newPasswords()
	p.cost = hashCost{8, 1, 1}
	first, err := p.hash(t.Context(), goodPassword, "", stranger("192.0.2.1"))
	require.NoError(t, err)
	same := []string{first}
	for i := range 20 {
		hash, err := p.hash(t.Context(), fmt.Sprint("another password ", i), first, stranger("192.0.2.1"))
		require.NoError(t, err)
		require.Equal(t, strings.Split(first, "$")[4], strings.Split(hash, "$")[4])
		same = append(same, hash)
	}
	for i := range 20 {
		matches, err := p.check(t.Context(), same, fmt.Sprint("another password ", i), stranger("192.0.2.1"))
		require.NoError(t, err)
		require.Equal(t, []int{i + 1}, matches)
	}
	_, err = p.hash(t.Context(), goodPassword, "no hash", stranger("192.0.2.1"))
	require.ErrorIs(t, err, errHash)

	var others []string
	for range mostSums + 1 {
		hash, err := p.hash(t.Context(), goodPassword, "", stranger("192.0.2.1"))
		require.NoError(t, err)
		others = append(others, hash)
	}
	matches, err := p.check(t.Context(), others, goodPassword, stranger("192.0.2.1"))
	require.NoError(t, err)
	require.Len(t, matches, mostSums)
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
		_, err := newPasswords().check(t.Context(), []string{bad}, goodPassword, stranger("192.0.2.1"))
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

// TestPasswordTurns guarantees that strangers' passwords take one turn for two processors, and maxHashes at most, and addresses take turns,
// while users that are known have turns of their own. A caller that waits too long gets ErrBusy, and one whose context ends gets its cause.
func TestPasswordTurns(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, strangersHashes(), maxHashes)
	require.LessOrEqual(t, 2*strangersHashes(), max(2, runtime.GOMAXPROCS(0)), "one for two processors")
	synctest.Test(t, func(t *testing.T) {
		p := newPasswords()
		lan := stranger("192.0.2.1")
		var release []func()
		for i := range strangersHashes() {
			done, err := p.turn(t.Context(), stranger(fmt.Sprintf("198.51.100.%d", i)))
			require.NoError(t, err)
			release = append(release, done)
		}
		for range 2 { // one after the other
			done, err := p.turn(t.Context(), knownUser("usr_lan"))
			require.NoError(t, err)
			done()
		}
		began := time.Now()
		_, err := p.turn(t.Context(), lan)
		require.ErrorIs(t, err, ErrBusy)
		require.Equal(t, hashWait, time.Since(began))

		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		_, err = p.turn(ctx, lan)
		require.ErrorIs(t, err, gone)
		_, err = p.hash(ctx, goodPassword, "", lan)
		require.ErrorIs(t, err, gone)
		_, err = p.check(ctx, nil, goodPassword, lan)
		require.ErrorIs(t, err, gone)

		// 100 guesses from one address wait before the attempt of another, which has its turn after one of them.
		var order []asker // of who had the place
		ended := make(chan error)
		try := func(by asker) {
			done, err := p.turn(t.Context(), by)
			if err == nil {
				order = append(order, by)
				done()
			}
			ended <- err
		}
		guesser := stranger("203.0.113.1")
		for range 100 {
			go try(guesser)
		}
		synctest.Wait()
		go try(lan)
		synctest.Wait()
		release[0]()
		for range 101 {
			require.NoError(t, <-ended)
		}
		require.Equal(t, []asker{guesser, lan, guesser}, order[:3])
		for _, done := range release[1:] {
			done()
		}
	})
}

// TestOneAddressHasOnePlace guarantees that the passwords of one address are hashed one after the other, however many places there are.
func TestOneAddressHasOnePlace(t *testing.T) {
	t.Parallel()
	turns := passwordTurns(4) // of a machine with eight processors
	require.NoError(t, turns.Enter(t.Context(), "192.0.2.1"))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, turns.Enter(gone, "192.0.2.1"), context.Canceled, "it waits")
	require.NoError(t, turns.Enter(gone, "192.0.2.2"))
}

// TestLineForPasswords guarantees that the line for a hash has an end.
func TestLineForPasswords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasswords()
		for i := range strangersHashes() {
			_, err := p.turn(t.Context(), stranger(fmt.Sprint("holder ", i)))
			require.NoError(t, err)
		}
		refused := make(chan error, maxWaiting)
		for i := range maxWaiting {
			go func() {
				_, err := p.turn(t.Context(), stranger(fmt.Sprint("guesser ", i)))
				refused <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		_, err := p.turn(t.Context(), stranger("192.0.2.1"))
		require.ErrorIs(t, err, ErrBusy)
		require.Zero(t, time.Since(began), "one more is refused immediately")
		for range maxWaiting {
			require.ErrorIs(t, <-refused, ErrBusy)
		}
		require.Equal(t, hashWait, time.Since(began))
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

// TestPasswordsShareProcessors guarantees that a hash waits for a processor no longer than for its turn, and gives back both.
func TestPasswordsShareProcessors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasswords()
		p.processors = semaphore.NewWeighted(1)
		lan, known := stranger("192.0.2.1"), knownUser("usr_lan")
		done, err := p.turn(t.Context(), lan)
		require.NoError(t, err)
		began := time.Now()
		_, err = p.turn(t.Context(), known)
		require.ErrorIs(t, err, ErrBusy)
		require.Equal(t, hashWait, time.Since(began))
		done()
		for _, by := range []asker{known, lan} { // as often as there would be no place if one weren't given back
			for range 1 + maxHashes {
				done, err := p.turn(t.Context(), by)
				require.NoError(t, err)
				done()
			}
		}
		require.Equal(t, hashWait, time.Since(began), "none of them waited")
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
