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
	"github.com/caddy-svc/caddy-svc/internal/conditions"
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
		check := conditions.Check{DB: e.db, Catalog: channelTypes(), SweepInterval: e.app.SweepInterval(), Recent: *recent}
		var err error
		if check.Ring, err = e.app.Ring(e.repl); err != nil { // without the secret the doctor still checks the books
			_, _ = fmt.Fprintf(e.stderr, "svc.master_key was not checked: %v\n", err)
		}
		report, err := check.Examine(ctx)
		if err != nil {
			return nil, err
		}
		warnings := e.app.ComingPrices(time.Now())
		if *vendors {
			models, found, err := f.examineVendors(ctx, e.configuration)
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
func (f *commandFlags) examineVendors(ctx context.Context, configuration []byte) (examined billing.Examined, warnings []string, err error) {
	examined = billing.Examined{
		ID: "VENDORS", Text: "no vendor ends a configured model within 7 days, and every vendor with a list of models shows it",
		Advice: "the vendor's page of deprecations, and the provider's api_key and base_url",
	}
	found, err := caddymodule.CheckVendors(ctx, configuration, f.config)
	if err != nil {
		return examined, nil, fmt.Errorf("checking the vendors: %w", err)
	}
	for _, fault := range found.Faults {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: fault[0], Detail: fault[1]})
	}
	return examined, found.Warnings, nil
}
