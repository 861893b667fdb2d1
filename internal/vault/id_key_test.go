package vault_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// storedID is "thread-7" of org_1 as it was sealed once: databases hold this form.
const storedID = "fb3TI0eHYlFqOxTleBvIkC7Sj-lwHmUb"

func idKeyOf(t testing.TB, fill byte) *vault.IDKey {
	t.Helper()
	key, err := vault.ParseIDKey(bytes.Repeat([]byte{fill}, vault.IDKeyBytes))
	require.NoError(t, err)
	return key
}

// An id is sealed alike where it is the same, and otherwise wherever anything differs: the key, the organization, the column.
func TestEqualIDsAreSealedAlike(t *testing.T) {
	t.Parallel()
	key, place := idKeyOf(t, 1), vault.CustomerID("org_1")
	require.Equal(t, storedID, key.Seal("thread-7", place))
	opened, err := key.Open(storedID, place)
	require.NoError(t, err)
	require.Equal(t, "thread-7", opened)

	seen := map[string]bool{storedID: true}
	for _, other := range []string{
		key.Seal("thread-8", place), key.Seal("thread-70", place), key.Seal("thread-7", vault.CustomerID("org_2")),
		key.Seal("thread-7", vault.PlatformMessageID("org_1")),
		idKeyOf(t, 2).Seal("thread-7", place),
	} {
		require.False(t, seen[other])
		seen[other] = true
		_, err := key.Open(other, vault.AAD{Table: place.Table, Column: place.Column, OrgID: "org_3"})
		require.ErrorIs(t, err, vault.ErrCorrupt)
	}
}

// The cipher is the standard library's CTR mode, over several blocks and a counter that carries.
func TestIDsAreCounted(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{1}, vault.IDKeyBytes)
	block, err := aes.NewCipher(secret[:vault.KeyBytes])
	require.NoError(t, err)
	key, place := idKeyOf(t, 1), vault.CustomerID("org_1")
	carried := false
	for i := range 600 { // one counter in 256 carries in the second block, one in 64 in the first four
		id := fmt.Sprintf("%d-%s", i, strings.Repeat("x", 61))
		sealed, err := base64.RawURLEncoding.DecodeString(key.Seal(id, place))
		require.NoError(t, err)
		carried = carried || sealed[15] > 252
		text := make([]byte, len(id))
		cipher.NewCTR(block, sealed[:16]).XORKeyStream(text, sealed[16:])
		require.Equal(t, id, string(text))
	}
	require.True(t, carried)
}

// Ids that a platform counts up begin alike, so that they are neighbours in an index; ids of other organizations and other stems don't.
func TestCountedIDsAreNeighbours(t *testing.T) {
	t.Parallel()
	key, place := idKeyOf(t, 1), vault.PlatformMessageID("org_1")
	begins := func(id string, place vault.AAD) string { return key.Seal(id, place)[:8] }
	first := begins("1000123400", place)
	for _, near := range []string{"1000123401", "1000123499"} {
		require.Equal(t, first, begins(near, place))
		require.NotEqual(t, key.Seal("1000123400", place), key.Seal(near, place))
	}
	for _, far := range []string{"1000123500", "100012340", "10001234000"} {
		require.NotEqual(t, first, begins(far, place), far)
	}
	require.NotEqual(t, first, begins("1000123400", vault.PlatformMessageID("org_2")))
	require.NotEqual(t, key.Seal("1000123400", place)[8:22], key.Seal("1000123401", place)[8:22])
	require.Equal(t, begins("a", place), begins("bc", place), "short ones have no stem")
}

// Every id opens again under its key and place, the empty one too, at the same moment from everywhere.
func TestIDsOpen(t *testing.T) {
	t.Parallel()
	key := idKeyOf(t, 1)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for j := range 200 {
				id := fmt.Sprint(i, " ", j)
				if opened, err := key.Open(key.Seal(id, vault.CustomerID("org_1")), vault.CustomerID("org_1")); err != nil || opened != id {
					t.Errorf("%q opens as %q: %v", id, opened, err)
				}
			}
		})
	}
	callers.Wait()
	require.Empty(t, key.Seal("", vault.CustomerID("org_1")))
	rapid.Check(t, func(t *rapid.T) {
		id, org := rapid.String().Draw(t, "id"), rapid.String().Draw(t, "org")
		sealed := key.Seal(id, vault.CustomerID(org))
		opened, err := key.Open(sealed, vault.CustomerID(org))
		require.NoError(t, err)
		require.Equal(t, id, opened)
		if len(id) > 3 {
			require.NotContains(t, sealed, id)
		}
	})
}

// What was changed in any place doesn't open, nor does what was never sealed.
func TestChangedIDsDoNotOpen(t *testing.T) {
	t.Parallel()
	key, place := idKeyOf(t, 1), vault.PlatformMessageID("org_1")
	sealed, err := base64.RawURLEncoding.DecodeString(key.Seal("4711", place))
	require.NoError(t, err)
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		_, err := key.Open(base64.RawURLEncoding.EncodeToString(changed), place)
		require.ErrorIs(t, err, vault.ErrCorrupt, "byte %d", i)
	}
	for _, never := range []string{"4711", "to ann", strings.Repeat("a", 22), strings.Repeat("a", 40), string(sealed)} {
		_, err := key.Open(never, place)
		require.ErrorIs(t, err, vault.ErrCorrupt, never)
	}
}

// A key is made of a secret of exactly its length, which nothing prints.
func TestIDKeySecret(t *testing.T) {
	t.Parallel()
	secret := vault.NewIDKey()
	require.NotEqual(t, secret, vault.NewIDKey())
	key, err := vault.ParseIDKey(secret)
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		require.Equal(t, "vault.IDKey", fmt.Sprintf(verb, key))
	}
	for _, length := range []int{0, vault.KeyBytes, vault.IDKeyBytes - 1, vault.IDKeyBytes + 1} {
		_, err := vault.ParseIDKey(make([]byte, length))
		require.Error(t, err)
	}
}

func BenchmarkSealID(b *testing.B) {
	key, place := idKeyOf(b, 1), vault.PlatformMessageID("org_01jd5q8x7nq0v8w6k3m2t1r9az")
	b.ReportAllocs()
	for b.Loop() {
		key.Seal("mid.$cAAJsujCd2ORlgwcrAldcjgO", place)
	}
}
