package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// errFindings makes doctor end with status 1.
var errFindings = errors.New("the books, the queue, a channel's platform, the master key or a vendor break an invariant")

type doctorAnswer struct {
	OK bool `json:"ok"`
	billing.Report
	// Warnings are sentences about vendors and coming prices that need no haste.
	Warnings []string `json:"warnings,omitempty"`
}

func (a doctorAnswer) text(w *strings.Builder) {
	fmt.Fprint(w, a.String())
	for _, warning := range a.Warnings {
		fmt.Fprintf(w, "Warning: %s.\n", warning)
	}
	if a.OK {
		fmt.Fprintln(w, "No findings.")
	}
}

func doctorCommand(f *commandFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Checks the books (wallets, holds, ledger, calls), the queue of messages, the channels' platforms, events and the master key",
		Long: `Checks the invariants of the books, such as that every wallet is the sum of its ledger, and of the queue, such as that
every message is answered at most once, that this program contains the platform of every channel, and that events are
delivered, and that the master key opens provider keys, the credentials of channels, the secrets of event endpoints and the key of customers' ids.
It changes nothing in them and may run beside a working server. The exit status is 1 when something is found; the
findings say where to look. With --recent it reads of the books only what was written in that time, and what is still
open. It warns of prices that begin within 14 days. With --vendors it also requests each provider's list of models once: it
warns of a model that the list doesn't have or that its vendor ends within 90 days, and finds one that ends within 7.`,
	}
	recent := command.Flags().Duration("recent", 0, "check only the books of this last `time`, such as 25h (default: all)")
	vendors := command.Flags().Bool("vendors", false, "compare the models with the lists of their vendors")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		report, err := billing.Checker{SweepInterval: e.app.SweepInterval(), Recent: *recent}.Check(ctx, e.db)
		if err != nil {
			return nil, err
		}
		queue, err := examineQueue(ctx, e.db)
		if err != nil {
			return nil, err
		}
		channels, err := examineChannels(ctx, e.db)
		if err != nil {
			return nil, err
		}
		events, err := examineEvents(ctx, e.db)
		if err != nil {
			return nil, err
		}
		files, err := examineFiles(ctx, e.db)
		if err != nil {
			return nil, err
		}
		report.Invariants = append(report.Invariants, queue, channels, events, files)
		// Without the secret the doctor still checks the books.
		if ring, err := e.app.Ring(e.repl); err != nil {
			_, _ = fmt.Fprintf(e.stderr, "svc.master_key was not checked: %v\n", err)
		} else {
			key, err := examineMasterKey(ctx, e.db, ring)
			if err != nil {
				return nil, err
			}
			report.Invariants = append(report.Invariants, key)
		}
		warnings := e.app.ComingPrices(time.Now())
		if *vendors {
			models, found, err := f.examineVendors(ctx)
			if err != nil {
				return nil, err
			}
			report.Invariants, warnings = append(report.Invariants, models), append(warnings, found...)
		}
		if !report.OK() {
			return doctorAnswer{Report: report, Warnings: warnings}, errFindings
		}
		return doctorAnswer{OK: true, Report: report, Warnings: warnings}, nil
	})
}

// examineVendors checks, for the doctor's report, that vendors still serve the configured models.
func (f *commandFlags) examineVendors(ctx context.Context) (examined billing.Examined, warnings []string, err error) {
	examined = billing.Examined{
		ID: "VENDORS", Text: "no vendor ends a configured model within 7 days, and every vendor with a list of models shows it",
		Advice: "the vendor's page of deprecations, and the provider's api_key and base_url",
	}
	adapted, err := f.adapt()
	if err != nil {
		return examined, nil, err
	}
	found, err := caddymodule.CheckVendors(ctx, adapted, f.config)
	if err != nil {
		return examined, nil, fmt.Errorf("checking the vendors: %w", err)
	}
	for _, fault := range found.Faults {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: fault[0], Detail: fault[1]})
	}
	return examined, found.Warnings, nil
}

// examineQueue checks the queue of messages for the doctor's report.
func examineQueue(ctx context.Context, db *store.DB) (billing.Examined, error) {
	examined := billing.Examined{
		ID: "QUEUE", Text: "every customer message is answered at most once, by an answer that was sent or says why not",
		Advice: "the conversation in GET /conversations/{id}/messages, and `caddy svc audit`",
	}
	findings, err := inbox.Check(ctx, db)
	if err != nil {
		return examined, fmt.Errorf("checking the queue: %w", err)
	}
	for _, f := range findings {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: f.Subject, Detail: f.Detail})
	}
	return examined, nil
}

// examineChannels checks, for the doctor's report, that this program contains the platforms of all channels.
func examineChannels(ctx context.Context, db *store.DB) (billing.Examined, error) {
	examined := billing.Examined{
		ID: "CHANNELS", Text: "this program contains the platform of every channel; channels of others stand still",
		Advice: "build the platform in, or delete the channels",
	}
	catalog := channelTypes()
	types, err := db.Channels.Types(ctx)
	if err != nil {
		return examined, fmt.Errorf("checking the channels: %w", err)
	}
	for _, t := range types {
		if _, known := catalog.Find(t.Type); !known {
			examined.Findings = append(examined.Findings, billing.Finding{
				Subject: t.Type, Detail: fmt.Sprintf("no platform of this program has this type; channels: %d", t.Channels),
			})
		}
	}
	return examined, nil
}

// examineEvents checks, for the doctor's report, that workers deliver events.
func examineEvents(ctx context.Context, db *store.DB) (billing.Examined, error) {
	examined := billing.Examined{
		ID: "EVENTS", Text: "every event that is due is tried within 15 minutes",
		Advice: "run a worker, and look into its log",
	}
	overdue, err := db.EventDeliveries.Overdue(ctx, (15 * time.Minute).Milliseconds())
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

// examineFiles checks the files of customers' messages for the doctor's report.
func examineFiles(ctx context.Context, db *store.DB) (billing.Examined, error) {
	examined := billing.Examined{
		ID: "FILES", Text: "a file that a customer sent is stored whole, or says why not, and goes with its message",
		Advice: "run a worker, and look into its log",
	}
	findings, err := media.Check(ctx, db)
	if err != nil {
		return examined, fmt.Errorf("checking the files: %w", err)
	}
	for _, f := range findings {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: f.Subject, Detail: f.Detail})
	}
	return examined, nil
}

// examineMasterKey checks, for the doctor's report, that the master key opens every provider key and the credentials of every
// channel, and that the server would start with it.
func examineMasterKey(ctx context.Context, db *store.DB, ring *vault.Ring) (billing.Examined, error) {
	const most = 20 // findings, as of the books
	examined := billing.Examined{
		ID: "KEY",
		Text: "master_key opens every provider key, the credentials of every channel, the secrets of every event endpoint " +
			"and the key of customers' ids",
		Advice: "put the missing key back into master_key, or see docs/operating.md \"A lost master key\"",
	}
	note := func(subject string, sealed []byte, place vault.AAD) {
		_, err := ring.Open(sealed, place)
		if err != nil && len(examined.Findings) == most {
			examined.More = true
		} else if err != nil {
			examined.Findings = append(examined.Findings, billing.Finding{Subject: subject, Detail: err.Error()})
		}
	}
	err := caddymodule.CheckMasterKey(ctx, db, ring)
	if errors.Is(err, caddymodule.ErrOtherMasterKey) {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: "master_key", Detail: err.Error()})
		err = nil
	}
	if err == nil {
		err = db.ProviderKeys.Each(ctx, func(key store.ProviderKey) error {
			note(key.OrgID+":"+key.Provider, key.Sealed, vault.ProviderKey(key.OrgID, key.Provider))
			return nil
		})
	}
	if err == nil {
		err = db.ChannelCredentials.Each(ctx, func(c store.Channel) error {
			note(c.ID, c.Credentials, vault.ChannelCredentials(c.OrgID, c.ID))
			return nil
		})
	}
	if err == nil {
		err = db.EventEndpoints.Each(ctx, func(e store.EventEndpoint) error {
			note(e.ID, e.Secret, vault.EventSecret(e.OrgID, e.ID))
			return nil
		})
	}
	if err == nil {
		err = db.SecondFactors.Each(ctx, func(f store.SecondFactor) error {
			note(f.PersonID, f.Secret, vault.SecondFactor(f.OrgID, f.PersonID))
			return nil
		})
	}
	if err == nil {
		var keys []store.IDKey
		keys, err = db.IDKeys.All(ctx)
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
