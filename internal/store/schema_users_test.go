package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// What must never stand in the tables of people is refused by them, whatever the code above does.
func TestConstraintsOfUsers(t *testing.T) {
	t.Parallel()
	const (
		user    = `INSERT INTO users (id, org_id, email, role, password, created_at, updated_at) `
		session = `INSERT INTO sessions (hash, user_id, org_id, created_at, seen_at, expires_at) `
		link    = `INSERT INTO user_links (hash, user_id, org_id, created_by, created_at, expires_at) `
		window  = `INSERT INTO login_windows (subject, window_start, count) `
	)
	hash := make([]byte, 32)
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		joinUser(t, db, "org_1", "usr_1", "owner")
		inviteUser(t, db, "org_1", "usr_2", "member")
		write(t, db, window+`VALUES ($1, 0, 1)`, hash)
		for text, arguments := range map[string][]any{
			user + `VALUES ('usr_3', 'org_1', 'usr_1@example.com', 'member', 'p', 1, 1)`: nil,
			user + `VALUES ('usr_3', 'org_none', 'a@b', 'member', 'p', 1, 1)`:            nil,
			user + `VALUES ('usr_3', 'org_1', 'a@b', 'member', '', 1, 1)`:                nil,
			`UPDATE users SET role = 'boss' WHERE id = 'usr_1'`:                          nil,
			`UPDATE users SET email = '' WHERE id = 'usr_1'`:                             nil,
			`UPDATE users SET password = NULL WHERE id = 'usr_1'`:                        nil,
			`DELETE FROM users WHERE id = 'usr_1'`:                                       nil, // there is a session
			session + `VALUES ($1, 'usr_none', 'org_1', 1, 1, 1)`:                        {hash},
			session + `VALUES ($1, 'usr_1', 'org_1', 1, 1, 1)`:                           {hash[1:]},
			link + `VALUES ($1, 'usr_2', 'org_1', 'usr_1', 1, 1)`:                        {hash}, // an invitation
			link + `VALUES ($1, 'usr_1', 'org_1', 'usr_1', 1, 1)`:                        {hash[1:]},
			window + `VALUES ($1, 0, 1)`:                                                 {hash},
			`UPDATE login_windows SET count = -1`:                                        nil,
		} {
			require.Error(t, tryWrite(db, text, arguments...), text)
		}
	})
}
