package conditions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Check has the invariants that the doctor checks.
type Check struct {
	DB      *store.DB
	Catalog *messaging.Catalog
	// Ring has the keys of master_key. Without it the doctor doesn't check them.
	Ring *vault.Ring
	// SweepInterval is the configured interval of the sweeper.
	SweepInterval time.Duration
	// Recent limits the check of books, queue and files to rows that were written in this time or are still open. 0 means all rows.
	Recent time.Duration
}

// Examine checks all invariants. It only reads. The error is one of reading.
func (c Check) Examine(ctx context.Context) (billing.Report, error) {
	report, err := billing.Checker{SweepInterval: c.SweepInterval, Recent: c.Recent}.Check(ctx, c.DB)
	if err != nil {
		return report, err
	}
	since := int64(0)
	if c.Recent > 0 {
		if since, err = c.DB.Now(ctx); err != nil {
			return report, err
		}
		since -= c.Recent.Milliseconds()
	}
	for _, part := range parts {
		examined := part.Examined
		if err := part.examine(c, ctx, since, &examined); err != nil {
			return report, fmt.Errorf("checking %s: %w", part.what, err)
		}
		if examined.ID != "" {
			report.Invariants = append(report.Invariants, examined)
		}
	}
	return report, nil
}

// parts are the invariants beside the ledger's. Examine sets the findings of a part, or removes its ID if it can't be checked.
var parts = []struct {
	billing.Examined

	what    string
	examine func(c Check, ctx context.Context, since int64, e *billing.Examined) error
}{
	{billing.Examined{
		ID: "QUEUE", Text: "every customer message is answered at most once, by an answer that was sent or says why not",
		Advice: "the conversation in GET /conversations/{id}/messages, and `caddy svc audit`",
	}, "the queue", rowsSince(inbox.CheckSince)},
	{billing.Examined{
		ID: "CHANNELS", Text: "this program contains the platform of every channel; channels of others stand still",
		Advice: "build the platform in, or delete the channels",
	}, "the channels", Check.channels},
	{billing.Examined{
		ID: "EVENTS", Text: "every event that is due is tried within 15 minutes", Advice: "run a worker, and look into its log",
	}, "the events", func(c Check, ctx context.Context, _ int64, e *billing.Examined) error {
		overdue, err := c.DB.EventDeliveries.Overdue(ctx, (15 * time.Minute).Milliseconds())
		if overdue > 0 {
			e.Findings = []billing.Finding{{Subject: "event_deliveries", Detail: fmt.Sprintf("no worker delivers events; overdue: %d", overdue)}}
		}
		return err
	}},
	{billing.Examined{
		ID: "FILES", Text: "a file that a customer sent is stored whole, or says why not, and goes with its message",
		Advice: "run a worker, and look into its log",
	}, "the files", rowsSince(media.CheckSince)},
	{billing.Examined{
		ID: "KEY",
		Text: "master_key opens every provider key, the credentials of every channel, the secrets of every event endpoint " +
			"and the key of customers' ids",
		Advice: "put the missing key back into master_key, or see docs/operating.md \"A lost master key\"",
	}, "the master key", Check.masterKey},
}

// rowsSince returns the examination of the rows that were written since a moment or are still open.
func rowsSince(
	check func(ctx context.Context, db *store.DB, since int64) ([]billing.Finding, error),
) func(c Check, ctx context.Context, since int64, e *billing.Examined) error {
	return func(c Check, ctx context.Context, since int64, e *billing.Examined) (err error) {
		e.Findings, err = check(ctx, c.DB, since)
		return err
	}
}

// channels checks that this program contains the platforms of all channels.
func (c Check) channels(ctx context.Context, _ int64, e *billing.Examined) error {
	types, err := c.DB.Channels.Types(ctx)
	for _, t := range types {
		if _, known := c.Catalog.Find(t.Type); !known {
			e.Findings = append(e.Findings, billing.Finding{
				Subject: t.Type, Detail: fmt.Sprintf("no platform of this program has this type; channels: %d", t.Channels),
			})
		}
	}
	return err
}

// masterKey checks that the master key opens every provider key and the credentials of every channel, and that the server would start with it.
func (c Check) masterKey(ctx context.Context, _ int64, e *billing.Examined) error {
	if c.Ring == nil {
		e.ID = ""
		return nil
	}
	err := CheckMasterKey(ctx, c.DB, c.Ring)
	if errors.Is(err, ErrOtherMasterKey) {
		e.Findings = append(e.Findings, billing.Finding{Subject: "master_key", Detail: err.Error()})
		err = nil
	}
	if err != nil {
		return err
	}
	return identity.EachSealed(ctx, c.DB, c.Ring, func(value identity.SealedValue) error {
		if _, err := c.Ring.Open(value.Sealed, value.Place); err != nil && len(e.Findings) == store.MostFindings {
			e.More = true
		} else if err != nil {
			e.Findings = append(e.Findings, billing.Finding{Subject: value.Subject, Detail: err.Error()})
		}
		return nil
	})
}

// ErrOtherMasterKey is the error of a master key with which none of the newest sealed values of the store was sealed.
var ErrOtherMasterKey = errors.New("none of its keys sealed what this store holds")

// CheckMasterKey fails with [ErrOtherMasterKey] when the store has sealed values and none of the newest was sealed with a key
// of the ring. One that was is enough: after a rotation, and after a key was lost, older values stay sealed with keys that
// are gone. It reads some dozen rows.
func CheckMasterKey(ctx context.Context, db *store.DB, ring *vault.Ring) error {
	values, err := db.SealedSample(ctx)
	if err != nil {
		return fmt.Errorf("looking for what the master key sealed: %w", err)
	}
	if len(values) == 0 || slices.ContainsFunc(values, ring.Names) {
		return nil
	}
	return fmt.Errorf("%w: it is another master key, or an older key is missing in it", ErrOtherMasterKey)
}
