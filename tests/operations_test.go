package tests

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestBackupAndRestore guarantees the recipe of docs/operating.md for SQLite: a backup that is taken under traffic is
// consistent, and a server that starts on it has the keys, own provider keys and wallets as they were.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	p := startProduct(t, d)
	c := p.operator().customer(t, 1_000_000)
	c.ownKey(t, "own", "sk-own-before-the-backup")
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
	balance := c.wallet(t).BalanceMicros

	running := holdStreams(t, p, up, p.operator().customer(t, 1_000_000), 3)
	copied := filepath.Join(p.Dir, "backup.db")
	p.svc(t, "backup", copied)
	_, err := p.caddy("svc", "backup", copied, "--config", p.configFile())
	require.ErrorContains(t, err, "never overwrites")
	running.requireWhole(t)
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd) // after the backup
	p.terminate()
	p.wait()
	p.closeOperatorStore(t)

	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(p.location.DSN + suffix); !os.IsNotExist(err) {
			require.NoError(t, err)
		}
	}
	require.NoError(t, os.Rename(copied, p.location.DSN))
	p.svc(t, "doctor")
	p.start()
	p.awaitReady()
	restored := *c
	restored.operatorStore = p.operator()
	require.Equal(t, balance, restored.wallet(t).BalanceMicros)
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
	done := requireCompletion(t, p.as(c).chat(t, prompt(modelKeyed, "hi", false), "X-Svc-Use-Byok", "true"), modelKeyed)
	require.Zero(t, done.charged(t))
	// The streams that ran during the backup are holds in the copy; their time has come when they expire.
	p.cut = true
}

// TestRekey guarantees key rotation: a new master key before the old one reads what was sealed,
// `rekey` seals it anew, and after that the old one can go; a server without the right key doesn't start, and says why.
func TestRekey(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		c := p.operator().customer(t, 0)
		c.ownKey(t, "own", "sk-own-that-stays")
		requireKnown := func() {
			t.Helper()
			s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
			requireCompletion(t, p.as(c).chat(t, prompt(modelKeyed, s.Mark, false), "X-Svc-Use-Byok", "true"), modelKeyed)
			require.Equal(t, "Bearer sk-own-that-stays", s.only(t).Header.Get("Authorization"))
		}
		requireKnown()
		fresh := make([]byte, 32)
		_, _ = rand.Read(fresh)
		next := base64.StdEncoding.EncodeToString(fresh)
		begin := func(master string) {
			t.Helper()
			p.terminate()
			p.wait()
			for i, variable := range p.env {
				if strings.HasPrefix(variable, "SVC_MASTER_KEY=") {
					p.env[i] = "SVC_MASTER_KEY=" + master
				}
			}
			p.start()
		}
		restart := func(master string) {
			t.Helper()
			begin(master)
			p.awaitReady()
		}
		restart(next + " " + p.masterKey)
		requireKnown()
		p.svc(t, "rekey")
		requireKnown()
		restart(next)
		requireKnown()
		begin(p.masterKey) // the old one alone opens nothing now
		<-p.ended
		require.Error(t, p.status)
		require.Contains(t, p.log.String(), "none of its keys sealed what this store holds")
		p.killed = true // its end was no orderly one
		restart(next)
		requireKnown()
	})
}

// TestDoctorFindsWhatIsWrong guarantees that `doctor` sees broken books and ends with status 1: here a wallet that lost a
// micro behind the ledger's back.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	c := p.operator().customer(t, 1_000_000)
	p.svc(t, "doctor")
	p.cut = true // the books stay broken
	_, err := connect(t, p.location).ExecContext(t.Context(),
		"UPDATE wallets SET balance_micros = balance_micros - 1 WHERE org_id = $1", c.OrgID)
	require.NoError(t, err)
	var out string
	out, err = p.caddy("svc", "doctor", "--config", p.configFile(), "--json")
	require.Error(t, err)
	require.Contains(t, out, `{"subject":"`+c.OrgID+`:live","detail":"number 1 leaves 1000000, its wallet has number 1 and 999999"}`)
}
