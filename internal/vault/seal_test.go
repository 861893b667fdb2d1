package vault_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// stored is "secret" as it was sealed once under keyText(1) for here: databases hold this form.
const stored = "0172cd6e8422c407fb37bc18c584d03e3822254ba25fd91615ce825b98179b586789e1a8f882b448ab608e"

var here = vault.AAD{Table: "provider_keys", Column: "sealed", OrgID: "org_1", RowID: "openai"}

// A value opens only where it was sealed; two rows that were swapped both fail.
func TestSwappedRowsDoNotOpen(t *testing.T) {
	t.Parallel()
	ring := ringOf(t, keyText(1))
	sealed := ring.Seal([]byte("sk-secret"), here)

	plain, err := ring.Open(sealed, here)
	require.NoError(t, err)
	require.Equal(t, "sk-secret", string(plain))

	for name, elsewhere := range map[string]vault.AAD{
		"table":           {Table: "channels", Column: here.Column, OrgID: here.OrgID, RowID: here.RowID},
		"column":          {Table: here.Table, Column: "hint", OrgID: here.OrgID, RowID: here.RowID},
		"organization":    {Table: here.Table, Column: here.Column, OrgID: "org_2", RowID: here.RowID},
		"row":             {Table: here.Table, Column: here.Column, OrgID: here.OrgID, RowID: "local"},
		"shifted borders": {Table: here.Table + "s", Column: here.Column[1:], OrgID: here.OrgID, RowID: here.RowID},
	} {
		_, err := ring.Open(sealed, elsewhere)
		require.ErrorIs(t, err, vault.ErrCorrupt, name)
	}
}

// Rotation: a new key in front seals, the old one stays readable until it is taken out, and then the error says so.
func TestRotation(t *testing.T) {
	t.Parallel()
	before := ringOf(t, keyText(1))
	during := ringOf(t, keyText(2)+" "+keyText(1))
	after := ringOf(t, keyText(2))
	old := before.Seal([]byte("secret"), here)

	require.True(t, during.Names(old))
	require.True(t, during.Names(old[:vault.Overhead]), "the beginning is enough")
	require.False(t, after.Names(old))
	require.False(t, before.Names(nil))
	plain, err := during.Open(old, here)
	require.NoError(t, err)
	require.Equal(t, "secret", string(plain))
	require.True(t, before.Current(old))
	require.False(t, during.Current(old), "a rekey must take it up")

	renewed := during.Seal(plain, here)
	require.True(t, during.Current(renewed))
	plain, err = after.Open(renewed, here)
	require.NoError(t, err)
	require.Equal(t, "secret", string(plain))

	_, err = after.Open(old, here)
	require.ErrorIs(t, err, vault.ErrUnknownKey)
	require.EqualError(t, err, "sealed with a key that is not in master_key")
}

// What one version stored, the next ones read: the sealed form is pinned.
func TestTheStoredFormStaysReadable(t *testing.T) {
	t.Parallel()
	sealed, err := hex.DecodeString(stored)
	require.NoError(t, err)
	plain, err := ringOf(t, keyText(1)).Open(sealed, here)
	require.NoError(t, err)
	require.Equal(t, "secret", string(plain))
}

func TestSealedBytesShowNothingAndNeverRepeat(t *testing.T) {
	t.Parallel()
	ring := ringOf(t, keyText(1))
	plain := bytes.Repeat([]byte("sk-secret"), 20)
	first, second := ring.Seal(plain, here), ring.Seal(plain, here)
	require.Len(t, first, len(plain)+vault.Overhead)
	require.NotEqual(t, first, second, "the nonce is random")
	require.NotContains(t, string(first), "sk-secret")
}

func TestEveryChangedByteIsNoticed(t *testing.T) {
	t.Parallel()
	ring := ringOf(t, keyText(1))
	sealed := ring.Seal([]byte("secret"), here)
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		_, err := ring.Open(changed, here)
		require.Error(t, err, "byte %d", i)
	}
	for n := range sealed {
		_, err := ring.Open(sealed[:n], here)
		require.ErrorIs(t, err, vault.ErrCorrupt, "cut to %d bytes", n)
		require.False(t, n < vault.Overhead && ring.Current(sealed[:n]), "cut to %d bytes", n)
	}
}

func TestSealOpensForAnyPlainTextAndPlace(t *testing.T) {
	t.Parallel()
	ring := ringOf(t, keyText(1))
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.SliceOf(rapid.Byte()).Draw(t, "plain")
		place := func(label string) vault.AAD {
			part := rapid.StringMatching(`[ab|]{0,3}`)
			return vault.AAD{
				Table: part.Draw(t, label+" table"), Column: part.Draw(t, label+" column"),
				OrgID: part.Draw(t, label+" org"), RowID: part.Draw(t, label+" row"),
			}
		}
		sealedFor, askedAt := place("sealed"), place("asked")
		opened, err := ring.Open(ring.Seal(plain, sealedFor), askedAt)
		if sealedFor != askedAt {
			require.ErrorIs(t, err, vault.ErrCorrupt)
			return
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(plain, opened))
	})
}

// Open takes any bytes of a damaged database without a panic, and opens only what was sealed.
func FuzzOpen(f *testing.F) {
	ring := ringOf(f, keyText(1)+" "+keyText(2))
	// A stored value, not a fresh one: the fuzzing processes must agree on which bytes open.
	sealed, err := hex.DecodeString(stored)
	require.NoError(f, err)
	foreign := ringOf(f, keyText(9)).Seal([]byte("secret"), here)
	for _, seed := range [][]byte{nil, {1}, sealed, sealed[:len(sealed)-1], foreign, append([]byte{2}, sealed[1:]...), make([]byte, vault.Overhead)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		plain, err := ring.Open(data, here)
		if err == nil {
			require.Equal(t, sealed, data, "opened a value nobody sealed")
			require.Equal(t, "secret", string(plain))
			return
		}
		require.Nil(t, plain)
		require.True(t, errors.Is(err, vault.ErrCorrupt) || errors.Is(err, vault.ErrUnknownKey))
	})
}
