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
)

const (
	// trialQuestion is the prompt of a trial call.
	trialQuestion = "Say hello in five words."
	// trialWait bounds a trial call.
	trialWait = 90 * time.Second
)

// triedAnswer is the result of a trial call.
type triedAnswer struct {
	OrgID         string `json:"orgId"`
	Model         string `json:"model"`
	Reply         string `json:"reply"`
	ChargedMicros string `json:"chargedMicros"`
}

func (a triedAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "%s replied %q, which cost %s micros.\n", a.Model, a.Reply, a.ChargedMicros)
}

func (f *commandFlags) tryCommand() *cobra.Command {
	var orgID string
	command := &cobra.Command{
		Use:   "try [MODEL] [--org ORG_ID]",
		Short: "Asks a model one short question, and says why it fails",
		Long: `Asks a model one short question through the configuration's provider, and says why if it fails. It needs no running server. The
call is charged to the organization, like any other. MODEL is by default the first model of the configuration, and --org may be
left out while there is one organization.`,
		Example:               "  $ caddy svc try openai/gpt-6-luna --org org_…",
		Args:                  cobra.MaximumNArgs(1),
		DisableFlagsInUseLine: true,
	}
	command.Flags().StringVar(&orgID, "org", "", "the `id` of the organization that pays")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		trial, err := f.planTrial(cmd, args, orgID)
		if err != nil {
			return err
		}
		tried, err := f.try(cmd.Context(), trial)
		if err != nil {
			return err
		}
		return f.write(cmd.OutOrStdout(), tried)
	}
	return command
}

// trial is a call that is to be tried.
type trial struct{ orgID, model string }

// planTrial checks the model and the organization of a trial call. It closes the store, because the call opens it again.
func (f *commandFlags) planTrial(cmd *cobra.Command, args []string, orgID string) (planned trial, err error) {
	e, err := f.openEnv(cmd.Context(), cmd, args, openExisting)
	if err != nil {
		return trial{}, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	names := e.app.ModelNames()
	if planned.model = strings.Join(args, ""); planned.model == "" && len(names) > 0 {
		planned.model = names[0]
	}
	if err := configured("model", planned.model, names); err != nil {
		return trial{}, err
	}
	if orgID != "" {
		planned.orgID = orgID
		return planned, e.checkOrganization(cmd.Context(), orgID)
	}
	organizations, err := e.db.Organizations.All(cmd.Context())
	if err != nil {
		return trial{}, err
	}
	if len(organizations) != 1 {
		return trial{}, errors.New("--org is needed unless there is exactly one organization; `caddy svc org list` shows them")
	}
	planned.orgID = organizations[0].ID
	return planned, nil
}

// try makes a trial call. The error states the cause and the remedy.
func (f *commandFlags) try(ctx context.Context, t trial) (triedAnswer, error) {
	adapted, err := f.adapt()
	if err != nil {
		return triedAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, trialWait)
	defer cancel()
	result, err := caddymodule.TrialCall(ctx, adapted, f.config, t.orgID, t.model, trialQuestion)
	if err != nil {
		return triedAnswer{}, fmt.Errorf("the call of %s failed: %w", t.model, err)
	}
	return triedAnswer{
		OrgID: t.orgID, Model: result.Model, Reply: result.Text, ChargedMicros: billing.FormatMicros(result.ChargedMicros),
	}, nil
}
