package identity_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// codeAt is the code of an app with the secret at a time of its clock, which is off from the database's.
func codeAt(t *testing.T, db *store.DB, secret string, off time.Duration) string {
	t.Helper()
	now, err := db.Now(t.Context())
	require.NoError(t, err)
	code, err := totp.GenerateCode(secret, time.UnixMilli(now).Add(off))
	require.NoError(t, err)
	return code
}

func newSecret(t *testing.T) string {
	t.Helper()
	enrolment, err := identity.NewEnrolment("svc.example.com", "lan@example.com")
	require.NoError(t, err)
	require.Contains(t, enrolment.URI, "otpauth://totp/svc.example.com:lan@example.com?")
	require.Contains(t, enrolment.URI, enrolment.Secret)
	picture, err := identity.QR(enrolment.URI)
	require.NoError(t, err)
	require.Equal(t, "\x89PNG", string(picture[:4]))
	return enrolment.Secret
}

// forget makes codes that were used valid again, so that a test needn't wait for the next.
func forget(t *testing.T, db *store.DB) {
	t.Helper()
	require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, `UPDATE second_factors SET step = 0`)
		return nil
	}))
}

// TestSecondFactorOfUsers: from switching on to switching off. A refusal changes nothing.
func TestSecondFactorOfUsers(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, o, secret := t.Context(), newFixture(t, db, "Acme"), newSecret(t)
		o.sessions.Seal(ring(t, 1))
		id, session := o.join("lan@example.com", identity.Owner)
		_, elsewhere := o.join("mai@example.com", identity.Administrator)
		other, lan, err := o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{})
		require.NoError(t, err)
		signIn := func(code string) error {
			_, _, err := o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{Code: code})
			return err
		}

		_, err = o.sessions.EnableSecondFactor(ctx, lan, session, secret, "12345")
		require.ErrorIs(t, err, identity.ErrWrongCode)
		_, err = o.sessions.EnableSecondFactor(ctx, lan, session, "JBSWY3DPEHPK3PXP", codeAt(t, db, "JBSWY3DPEHPK3PXP", 0))
		require.ErrorContains(t, err, "secret: is not one that was made here")
		var clock *identity.ClockError
		_, err = o.sessions.EnableSecondFactor(ctx, lan, session, secret, codeAt(t, db, secret, -5*time.Minute))
		require.ErrorAs(t, err, &clock)
		require.InDelta(t, -5, clock.Ahead.Minutes(), 1)
		require.NoError(t, signIn(""), "it is still off")
		codes, err := o.sessions.EnableSecondFactor(ctx, lan, session, secret, codeAt(t, db, secret, 0))
		require.NoError(t, err)
		require.Len(t, codes, 10)
		o.signedOut(other)
		for _, kept := range []string{session, elsewhere} {
			_, err = o.sessions.Authenticate(ctx, kept)
			require.NoError(t, err)
		}
		_, err = o.sessions.EnableSecondFactor(ctx, lan, session, newSecret(t), "123456")
		require.Error(t, err)
		stored, err := db.SecondFactors.Of(ctx, o.orgID, id)
		require.NoError(t, err)
		require.NotContains(t, string(stored.Secret), secret)
		require.NotContains(t, strings.Join(stored.Recovery, " "), codes[0])

		require.ErrorIs(t, signIn(""), identity.ErrCodeNeeded)
		_, _, err = o.sessions.Begin(ctx, "lan@example.com", "another password", "", identity.Client{Code: codes[0]})
		require.ErrorIs(t, err, identity.ErrWrongPassword, "the password first, and the code isn't used")
		code := codeAt(t, db, secret, 30*time.Second)
		require.NoError(t, signIn(code[:3]+" "+code[3:]))
		require.ErrorIs(t, signIn(code), identity.ErrCodeUsed)
		require.ErrorIs(t, signIn("aaaa-bbbb-cccc-dddd"), identity.ErrWrongCode)
		forget(t, db)
		require.ErrorAs(t, signIn(codeAt(t, db, secret, -7*time.Minute)), &clock)
		require.InDelta(t, -7, clock.Ahead.Minutes(), 1)
		require.ErrorIs(t, signIn(codeAt(t, db, secret, 7*time.Minute)), identity.ErrWrongCode, "a guess doesn't learn a code that will be valid")
		require.NoError(t, signIn(strings.ToUpper(codes[0])))
		require.ErrorIs(t, signIn(codes[0]), identity.ErrWrongCode, "used up")

		link, err := o.users.NewLink(ctx, identity.Authority{Actor: "cli", Role: identity.Owner, Operator: true}, o.orgID, id)
		require.NoError(t, err)
		_, _, err = o.sessions.BeginWithLink(ctx, link.Token, password, identity.Client{})
		require.ErrorIs(t, err, identity.ErrCodeNeeded, "a reset of the password doesn't go round it")
		session, _, err = o.sessions.BeginWithLink(ctx, link.Token, password, identity.Client{Code: codes[1]})
		require.NoError(t, err, "the link is still valid")
		for _, code := range codes[2:] {
			require.NoError(t, signIn(code))
		}
		require.ErrorIs(t, signIn(codes[9]), identity.ErrNoRecoveryCodes)

		require.ErrorIs(t, o.sessions.DisableSecondFactor(ctx, lan, "12"), identity.ErrNoRecoveryCodes)
		forget(t, db)
		require.NoError(t, o.sessions.DisableSecondFactor(ctx, lan, codeAt(t, db, secret, 0)))
		require.ErrorIs(t, o.sessions.DisableSecondFactor(ctx, lan, codeAt(t, db, secret, 0)), identity.ErrNoSecondFactor)
		require.NoError(t, signIn(""))

		_, err = o.sessions.EnableSecondFactor(ctx, lan, session, secret, codeAt(t, db, secret, 0))
		require.NoError(t, err)
		require.ErrorIs(t, o.users.ResetSecondFactor(ctx, as(identity.Administrator), o.orgID, id), identity.ErrOwnersOnly)
		require.NoError(t, o.users.ResetSecondFactor(ctx, identity.Authority{Actor: "cli", Role: identity.Owner, Operator: true}, o.orgID, id))
		require.NoError(t, signIn(""))
		entries, err := db.AuditLog.List(ctx, o.orgID, store.Page{Limit: 100})
		require.NoError(t, err)
		counts := map[string]int{}
		for _, entry := range entries {
			counts[entry.Action]++
		}
		require.Equal(t, []int{2, 2, 10}, []int{
			counts["second_factor.enable"], counts["second_factor.disable"], counts["second_factor.recover"],
		})
		require.Positive(t, counts["second_factor.fail"])
	})
}

// TestCodesAreUsedOnce: of many sign-ins with one code on two nodes at the same moment one succeeds, with the app's code and with a recovery code.
func TestCodesAreUsedOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx, secret := t.Context(), newSecret(t)
		nodes := []*store.DB{db, storetest.OpenAt(t, db.Location(), store.Options{})}
		operators := []*identity.Operators{identity.NewCheapOperators(nodes[0], ring(t, 1)), identity.NewCheapOperators(nodes[1], ring(t, 1))}
		_, session := operator(t, operators[0], db, "lan@example.com", identity.OperatorViewer)
		codes, err := operators[0].EnableSecondFactor(ctx, session, secret, codeAt(t, db, secret, 0))
		require.NoError(t, err)
		for _, code := range []string{codeAt(t, db, secret, 30*time.Second), codes[3]} {
			var tries sync.WaitGroup
			errs := make([]error, 4)
			for i := range errs {
				tries.Go(func() { errs[i] = operators[i%2].SecondFactor(context.WithoutCancel(ctx), session, code) })
			}
			tries.Wait()
			succeeded := 0
			for _, err := range errs {
				if err == nil {
					succeeded++
				} else if !errors.Is(err, identity.ErrCodeUsed) {
					require.ErrorIs(t, err, identity.ErrWrongCode) // the list was read after its use
				}
			}
			require.Equal(t, 1, succeeded, "%v", errs)
		}
	})
}

// TestWrongCodesAreBounded: an intruder with the password can't try codes.
func TestWrongCodesAreBounded(t *testing.T) {
	t.Parallel()
	o, clock := clocked(t)
	ctx, secret := t.Context(), newSecret(t)
	o.sessions.Seal(ring(t, 1))
	_, session := o.join("lan@example.com", identity.Owner)
	lan, err := o.sessions.Authenticate(ctx, session)
	require.NoError(t, err)
	_, err = o.sessions.EnableSecondFactor(ctx, lan, session, secret, codeAt(t, o.db, secret, 0))
	require.NoError(t, err)
	for range 10 {
		clock.pass(time.Minute)
		_, _, err = o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{Code: "00000"})
		require.ErrorIs(t, err, identity.ErrWrongCode)
	}
	var throttled *identity.ThrottledError
	_, _, err = o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{Code: codeAt(t, o.db, secret, 0)})
	require.ErrorAs(t, err, &throttled)
	require.Equal(t, 50*time.Minute, throttled.RetryAfter)
	clock.pass(50 * time.Minute)
	for range 20 { // right ones don't count
		clock.pass(time.Minute)
		_, _, err = o.sessions.Begin(ctx, "lan@example.com", password, "", identity.Client{Code: codeAt(t, o.db, secret, 0)})
		require.NoError(t, err)
	}
}
