package conditions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
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
	for _, examine := range []func(context.Context, int64) (billing.Examined, error){c.queue, c.channels, c.events, c.files, c.masterKey} {
		examined, err := examine(ctx, since)
		if err != nil {
			return report, err
		}
		if examined.ID != "" {
			report.Invariants = append(report.Invariants, examined)
		}
	}
	return report, nil
}

// queue checks the queue of messages.
func (c Check) queue(ctx context.Context, since int64) (billing.Examined, error) {
	examined := billing.Examined{
		ID: "QUEUE", Text: "every customer message is answered at most once, by an answer that was sent or says why not",
		Advice: "the conversation in GET /conversations/{id}/messages, and `caddy svc audit`",
	}
	findings, err := inbox.CheckSince(ctx, c.DB, since)
	if err != nil {
		return examined, fmt.Errorf("checking the queue: %w", err)
	}
	for _, f := range findings {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: f.Subject, Detail: f.Detail})
	}
	return examined, nil
}

// channels checks that this program contains the platforms of all channels.
func (c Check) channels(ctx context.Context, _ int64) (billing.Examined, error) {
	examined := billing.Examined{
		ID: "CHANNELS", Text: "this program contains the platform of every channel; channels of others stand still",
		Advice: "build the platform in, or delete the channels",
	}
	types, err := c.DB.Channels.Types(ctx)
	if err != nil {
		return examined, fmt.Errorf("checking the channels: %w", err)
	}
	for _, t := range types {
		if _, known := c.Catalog.Find(t.Type); !known {
			examined.Findings = append(examined.Findings, billing.Finding{
				Subject: t.Type, Detail: fmt.Sprintf("no platform of this program has this type; channels: %d", t.Channels),
			})
		}
	}
	return examined, nil
}

// events checks that workers deliver events.
func (c Check) events(ctx context.Context, _ int64) (billing.Examined, error) {
	examined := billing.Examined{
		ID: "EVENTS", Text: "every event that is due is tried within 15 minutes",
		Advice: "run a worker, and look into its log",
	}
	overdue, err := c.DB.EventDeliveries.Overdue(ctx, (15 * time.Minute).Milliseconds())
	if err != nil {
		return examined, fmt.Errorf("checking the events: %w", err)
	}
	if overdue > 0 {
		examined.Findings = append(examined.Findings, billing.Finding{
			Subject: "event_deliveries", Detail: fmt.Sprintf("no worker delivers events; overdue: %d", overdue),
		})
	}
	return examined, nil
}

// files checks the files of messages.
func (c Check) files(ctx context.Context, since int64) (billing.Examined, error) {
	examined := billing.Examined{
		ID: "FILES", Text: "a file that a customer sent is stored whole, or says why not, and goes with its message",
		Advice: "run a worker, and look into its log",
	}
	findings, err := media.CheckSince(ctx, c.DB, since)
	if err != nil {
		return examined, fmt.Errorf("checking the files: %w", err)
	}
	for _, f := range findings {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: f.Subject, Detail: f.Detail})
	}
	return examined, nil
}

// masterKey checks that the master key opens every provider key and the credentials of every channel, and that the server would start with it.
func (c Check) masterKey(ctx context.Context, _ int64) (billing.Examined, error) {
	const most = 20 // findings, as of the books
	if c.Ring == nil {
		return billing.Examined{}, nil
	}
	examined := billing.Examined{
		ID: "KEY",
		Text: "master_key opens every provider key, the credentials of every channel, the secrets of every event endpoint " +
			"and the key of customers' ids",
		Advice: "put the missing key back into master_key, or see docs/operating.md \"A lost master key\"",
	}
	note := func(subject string, sealed []byte, place vault.AAD) {
		_, err := c.Ring.Open(sealed, place)
		if err != nil && len(examined.Findings) == most {
			examined.More = true
		} else if err != nil {
			examined.Findings = append(examined.Findings, billing.Finding{Subject: subject, Detail: err.Error()})
		}
	}
	err := CheckMasterKey(ctx, c.DB, c.Ring)
	if errors.Is(err, ErrOtherMasterKey) {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: "master_key", Detail: err.Error()})
		err = nil
	}
	if err == nil {
		err = c.DB.ProviderKeys.Each(ctx, func(key store.ProviderKey) error {
			note(key.OrgID+":"+key.Provider, key.Sealed, vault.ProviderKey(key.OrgID, key.Provider))
			return nil
		})
	}
	if err == nil {
		err = c.DB.ChannelCredentials.Each(ctx, func(channel store.Channel) error {
			note(channel.ID, channel.Credentials, vault.ChannelCredentials(channel.OrgID, channel.ID))
			return nil
		})
	}
	if err == nil {
		err = c.DB.EventEndpoints.Each(ctx, func(e store.EventEndpoint) error {
			note(e.ID, e.Secret, vault.EventSecret(e.OrgID, e.ID))
			return nil
		})
	}
	if err == nil {
		err = c.DB.SecondFactors.Each(ctx, func(f store.SecondFactor) error {
			note(f.PersonID, f.Secret, vault.SecondFactor(f.OrgID, f.PersonID))
			return nil
		})
	}
	if err == nil {
		var keys []store.IDKey
		keys, err = c.DB.IDKeys.All(ctx)
		if len(keys) > 0 { // the newest was made in place of those before, if these are lost
			key := keys[len(keys)-1]
			note(fmt.Sprintf("id_keys:%d", key.Number), key.Sealed, vault.StoredIDKey(key.Number))
		}
	}
	if err != nil {
		return examined, fmt.Errorf("checking the master key: %w", err)
	}
	return examined, nil
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
