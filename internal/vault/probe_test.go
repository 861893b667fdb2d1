package vault_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// A ring opens the probes of another exactly when it has all of the other's keys, in whatever order.
func TestProbes(t *testing.T) {
	t.Parallel()
	source := ringOf(t, keyText(1)+" "+keyText(2))
	probes := source.Probes()
	require.Len(t, probes, 2)
	require.True(t, source.Current(probes[0]))
	for _, has := range []string{keyText(1) + " " + keyText(2), keyText(2) + " " + keyText(1), keyText(3) + " " + keyText(2) + " " + keyText(1)} {
		require.NoError(t, ringOf(t, has).OpenProbes(probes))
	}
	for _, lacks := range []string{keyText(1), keyText(2), keyText(3)} {
		require.ErrorIs(t, ringOf(t, lacks).OpenProbes(probes), vault.ErrUnknownKey)
	}
	require.NoError(t, source.OpenProbes(nil))
	elsewhere := source.Seal(nil, vault.AAD{Table: "messages"})
	require.ErrorIs(t, source.OpenProbes([][]byte{elsewhere}), vault.ErrCorrupt, "it was sealed for another place")
}
