package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// loginOf reads the only user with an e-mail address.
func loginOf(t *testing.T, db *store.DB, email string) store.LoginRecord {
	t.Helper()
	records, err := db.Logins.ByEmail(t.Context(), email)
	require.NoError(t, err)
	require.Len(t, records, 1)
	return records[0]
}

// A session begins only with the password that was checked: a change in between ends the sessions of the old one.
func TestBeginSessionAfterAChange(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		joinUser(t, db, "org_1", "usr_1", "owner")
		record := loginOf(t, db, "usr_1@example.com")
		fresh := store.NewSession{Hash: [32]byte{9}, Lifetime: 60_000}
		require.NoError(t, db.Sessions.Begin(ctx, record, "renewed", fresh, store.Login{}))
		require.ErrorIs(t, db.Sessions.Begin(ctx, record, "", store.NewSession{Hash: [32]byte{10}, Lifetime: 1}, store.Login{}), store.ErrNotFound)
		require.Equal(t, "renewed", loginOf(t, db, "usr_1@example.com").Password)
		_, found, err := db.Sessions.ByHash(ctx, fresh.Hash)
		require.NoError(t, err)
		require.True(t, found)
		nobody, err := db.Logins.ByEmail(ctx, "nobody@example.com")
		require.NoError(t, err)
		require.Empty(t, nobody)
	})
}

// A login deletes expired sessions.
func TestExpiredSessionsAreDeleted(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		old := joinUser(t, db, "org_1", "usr_1", "owner")
		write(t, db, `UPDATE sessions SET expires_at = 1`)
		record := loginOf(t, db, "usr_1@example.com")
		require.NoError(t, db.Sessions.Begin(t.Context(), record, "", store.NewSession{Hash: [32]byte{9}, Lifetime: 60_000}, store.Login{}))
		_, found, err := db.Sessions.ByHash(t.Context(), old.Hash)
		require.NoError(t, err)
		require.False(t, found)
	})
}

// The windows of logins don't pile up, and what was refused at one bound counts in none after it.
func TestLoginWindows(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		write(t, db, `INSERT INTO login_windows (subject, window_start, count) VALUES ($1, 0, 7)`, make([]byte, 32))
		tight, wide := store.LoginBound{Subject: [32]byte{1}, Most: 2}, store.LoginBound{Subject: [32]byte{2}, Most: 100}
		taken := 0
		for range 8 { // in at most two windows
			login, err := db.Logins.Take(ctx, []store.LoginBound{tight, wide})
			require.NoError(t, err)
			require.LessOrEqual(t, login.RetryAfter, int64(60_000))
			if login.RetryAfter == 0 {
				taken++
			}
		}
		require.Contains(t, []int{2, 3, 4}, taken)
		require.Equal(t, []string{"0"}, texts(t, db, `SELECT CAST(count(*) AS TEXT) FROM login_windows WHERE window_start = 0`))
		var sum int
		require.NoError(t, db.Reader().QueryRowContext(ctx, `SELECT SUM(count) FROM login_windows WHERE subject = $1`, wide.Subject[:]).Scan(&sum))
		require.Equal(t, taken, sum)
	})
}
