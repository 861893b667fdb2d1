package identity_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// operator adds an operator and uses the link.
func operator(t *testing.T, o *identity.Operators, db *store.DB, email, role string) (id, session string) {
	t.Helper()
	added, link, err := identity.AddOperator(t.Context(), db, "cli:lan", email, role)
	require.NoError(t, err)
	session, signedIn, err := o.UseLink(t.Context(), link.Token, password, identity.Client{})
	require.NoError(t, err)
	require.Equal(t, added.ID, signedIn.ID)
	require.Zero(t, signedIn.Principal().OperatorScopes, "no right without a second factor")
	return added.ID, session
}

func TestRolesOfOperators(t *testing.T) {
	t.Parallel()
	for _, scope := range identity.AllOperatorScopes() {
		reads := scope[len(scope)-5:] == ":read"
		require.True(t, identity.OperatorRoleScopes(identity.OperatorAdministrator).Has(scope))
		require.Equal(t, reads, identity.OperatorRoleScopes(identity.OperatorViewer).Has(scope), scope)
		require.Zero(t, identity.OperatorRoleScopes("owner"))
		helps := map[identity.OperatorScope]bool{
			"organizations:write": true, "api_keys:write": true, "channels:write": true, "queue:write": true, "doctor:write": true,
		}
		require.Equal(t, reads || helps[scope], identity.OperatorRoleScopes(identity.OperatorSupport).Has(scope), scope)
	}
	require.NotEqual(t, identity.CommandLineScopes, identity.OperatorRoleScopes(identity.OperatorAdministrator))
}

// TestOperatorsSignIn: password, second factor, and the end of sessions.
func TestOperatorsSignIn(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, secret, o := t.Context(), newSecret(t), identity.NewCheapOperators(db, ring(t, 1))
		id, session := operator(t, o, db, " LAN@example.com", identity.OperatorSupport)
		_, _, err := identity.AddOperator(ctx, db, "cli:lan", "lan@example.com", identity.OperatorViewer)
		require.ErrorIs(t, err, store.ErrConflict)
		require.ErrorIs(t, o.SecondFactor(ctx, session, "123456"), identity.ErrNoSecondFactor)
		codes, err := o.EnableSecondFactor(ctx, session, secret, codeAt(t, db, secret, 0))
		require.NoError(t, err)
		signedIn, err := o.Session(ctx, session)
		require.NoError(t, err)
		require.Equal(t, identity.OperatorRoleScopes(identity.OperatorSupport), signedIn.Principal().OperatorScopes)
		require.Equal(t, "operator:lan@example.com", signedIn.Principal().Actor())
		require.True(t, signedIn.SecondFactor)

		for _, wrong := range [][2]string{{"lan@example.com", "another password"}, {"mai@example.com", password}, {"lan", password}} {
			_, _, err = o.SignIn(ctx, wrong[0], wrong[1], identity.Client{Address: "192.0.2.1"})
			require.ErrorIs(t, err, identity.ErrWrongPassword)
		}
		device, err := o.Device(ctx, signedIn)
		require.NoError(t, err)
		again, signedIn, err := o.SignIn(ctx, "lan@example.com", password, identity.Client{Device: device})
		require.NoError(t, err)
		require.Zero(t, signedIn.Principal().OperatorScopes)
		require.ErrorIs(t, o.SecondFactor(ctx, again, "aaaa"), identity.ErrWrongCode)
		require.NoError(t, o.SecondFactor(ctx, again, codes[0]))
		signedIn, err = o.Session(ctx, again)
		require.NoError(t, err)
		require.NotZero(t, signedIn.Principal().OperatorScopes)
		require.NoError(t, o.End(ctx, again))
		ended := func(token string) {
			t.Helper()
			_, err := o.Session(ctx, token)
			require.ErrorIs(t, err, identity.ErrNoSession)
			require.ErrorIs(t, o.SecondFactor(ctx, token, codes[1]), identity.ErrNoSession)
		}
		ended(again)

		viewer, disabled := identity.OperatorViewer, true
		require.NoError(t, db.Operators.Change(ctx, "cli:lan", id, &viewer, nil))
		ended(session)
		session, _, err = o.SignIn(ctx, "lan@example.com", password, identity.Client{})
		require.NoError(t, err)
		require.NoError(t, db.Operators.Change(ctx, "cli:lan", id, nil, &disabled))
		ended(session)
		_, _, err = o.SignIn(ctx, "lan@example.com", password, identity.Client{})
		require.ErrorIs(t, err, identity.ErrWrongPassword)
		disabled = false
		require.NoError(t, db.Operators.Change(ctx, "cli:lan", id, nil, &disabled))

		link, err := identity.LinkOperator(ctx, db, "cli:lan", id)
		require.NoError(t, err)
		_, _, err = o.UseLink(ctx, link.Token, "short", identity.Client{})
		require.ErrorContains(t, err, "at least 12")
		session, signedIn, err = o.UseLink(ctx, link.Token, "another password", identity.Client{})
		require.NoError(t, err)
		require.Zero(t, signedIn.Principal().OperatorScopes, "a link doesn't go round the second factor")
		_, _, err = o.UseLink(ctx, link.Token, "another password", identity.Client{})
		require.ErrorIs(t, err, identity.ErrLinkUsed)
		require.NoError(t, db.SecondFactors.Delete(ctx, "cli:lan", "", id, nil))
		ended(session)
		session, signedIn, err = o.SignIn(ctx, "lan@example.com", "another password", identity.Client{})
		require.NoError(t, err)
		require.False(t, signedIn.SecondFactor)
		require.NoError(t, db.Operators.Remove(ctx, "cli:lan", id))
		ended(session)
		require.ErrorIs(t, db.Operators.Remove(ctx, "cli:lan", id), store.ErrNotFound)
		_, err = identity.LinkOperator(ctx, db, "cli:lan", id)
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

// TestLastAdministrator: two administrators who remove, demote or disable each other at the same moment leave one.
func TestLastAdministrator(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, o := t.Context(), identity.NewCheapOperators(db, ring(t, 1))
		nodes := []*store.DB{db, storetest.OpenAt(t, db.Location(), store.Options{})}
		invited, _, err := identity.AddOperator(ctx, db, "cli:lan", "invited@example.com", identity.OperatorAdministrator)
		require.NoError(t, err)
		viewer, disabled := identity.OperatorViewer, true
		for _, take := range []func(db *store.DB, id string) error{
			func(db *store.DB, id string) error { return db.Operators.Remove(context.WithoutCancel(ctx), "x", id) },
			func(db *store.DB, id string) error {
				return db.Operators.Change(context.WithoutCancel(ctx), "x", id, &viewer, nil)
			},
			func(db *store.DB, id string) error {
				return db.Operators.Change(context.WithoutCancel(ctx), "x", id, nil, &disabled)
			},
		} {
			var ids [2]string
			for i, email := range []string{"a@example.com", "b@example.com"} {
				ids[i], _ = operator(t, o, db, email, identity.OperatorAdministrator)
			}
			var both sync.WaitGroup
			errs := make([]error, 2)
			for i := range ids {
				both.Go(func() { errs[i] = take(nodes[i], ids[1-i]) })
			}
			both.Wait()
			refused := 0
			if errs[1] != nil {
				refused = 1
			}
			require.ErrorIs(t, errs[refused], store.ErrLastAdministrator, "%v", errs)
			require.NoError(t, errs[1-refused])
			require.NoError(t, db.Exec(ctx, func(_ context.Context, tx store.Tx) error {
				tx.Queue(store.AnyRows, `DELETE FROM operator_sessions`)
				tx.Queue(store.AnyRows, `DELETE FROM operators WHERE id <> $1`, invited.ID)
				return nil
			}))
		}
		require.NoError(t, db.Operators.Remove(ctx, "cli:lan", invited.ID), "who was never able to sign in is no administrator")
	})
}

// TestSecondFactorGrowsOld: money needs a code of the last ten minutes, and everything one of the last eight hours.
func TestSecondFactorGrowsOld(t *testing.T) {
	t.Parallel()
	fixture, clock := clocked(t)
	ctx, db, secret := t.Context(), fixture.db, newSecret(t)
	o := identity.NewCheapOperators(db, ring(t, 1))
	_, session := operator(t, o, db, "lan@example.com", identity.OperatorAdministrator)
	_, err := o.EnableSecondFactor(ctx, session, secret, codeAt(t, db, secret, 0))
	require.NoError(t, err)
	rights := func() (scopes bool, needsCode bool) {
		signedIn, err := o.Session(ctx, session)
		require.NoError(t, err)
		principal := signedIn.Principal()
		return principal.OperatorScopes != 0, principal.NeedsCode
	}
	require.Equal(t, [2]bool{true, false}, pair(rights()))
	clock.pass(10*time.Minute - time.Millisecond)
	require.Equal(t, [2]bool{true, false}, pair(rights()))
	clock.pass(time.Millisecond)
	require.Equal(t, [2]bool{true, true}, pair(rights()))
	clock.pass(8*time.Hour - 10*time.Minute)
	require.Equal(t, [2]bool{false, true}, pair(rights()))
	require.NoError(t, o.SecondFactor(ctx, session, codeAt(t, db, secret, 0)))
	require.Equal(t, [2]bool{true, false}, pair(rights()))
	clock.pass(identity.SessionIdle)
	_, err = o.Session(ctx, session)
	require.ErrorIs(t, err, identity.ErrNoSession)
}

func pair(a, b bool) [2]bool { return [2]bool{a, b} }

// TestRekeySecondFactors: a second factor goes on working under another master key, and that of one person doesn't open for another.
func TestRekeySecondFactors(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, secret := t.Context(), newSecret(t)
		old := identity.NewCheapOperators(db, ring(t, 1))
		id, session := operator(t, old, db, "lan@example.com", identity.OperatorViewer)
		_, err := old.EnableSecondFactor(ctx, session, secret, codeAt(t, db, secret, 0))
		require.NoError(t, err)
		done, err := identity.Rekey(ctx, db, ring(t, 2, 1), "test")
		require.NoError(t, err)
		require.Equal(t, identity.Rekeyed{Renewed: 1}, done)
		forget(t, db)
		require.Error(t, old.SecondFactor(ctx, session, codeAt(t, db, secret, 0)))
		fresh := identity.NewCheapOperators(db, ring(t, 2))
		require.NoError(t, fresh.SecondFactor(ctx, session, codeAt(t, db, secret, 0)))
		_, _ = operator(t, fresh, db, "mai@example.com", identity.OperatorViewer)
		require.NoError(t, db.Exec(ctx, func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `UPDATE second_factors SET person_id = (SELECT id FROM operators WHERE id <> $1), step = 0`, id)
			return nil
		}))
		_, err = identity.Rekey(ctx, db, ring(t, 2), "test")
		require.ErrorContains(t, err, "second factor of opr_")
	})
}
