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
		Example: "  $ caddy svc try openai/gpt-6-luna --org org_…",
		Args:    cobra.MaximumNArgs(1),
	}
	command.Flags().StringVar(&orgID, "org", "", "the `id` of the organization that pays")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		names := e.app.ModelNames()
		model := strings.Join(e.args, "")
		if model == "" && len(names) > 0 {
			model = names[0]
		}
		if err := configured("model", model, names); err != nil {
			return nil, err
		}
		organization, err := e.payer(ctx, orgID)
		if err != nil {
			return nil, err
		}
		tried, err := f.try(ctx, organization, model)
		if err != nil {
			return nil, err
		}
		return tried, nil
	})
}

// payer returns the id of an organization that exists, the only one's if none is given.
func (e *commandEnv) payer(ctx context.Context, orgID string) (string, error) {
	if orgID != "" {
		return orgID, e.checkOrganization(ctx, orgID)
	}
	organizations, err := e.db.Organizations.All(ctx)
	if err != nil {
		return "", err
	}
	if len(organizations) != 1 {
		return "", errors.New("--org is needed unless there is exactly one organization; `caddy svc org list` shows them")
	}
	return organizations[0].ID, nil
}

// try makes a trial call. The error states the cause and the remedy.
func (f *commandFlags) try(ctx context.Context, orgID, model string) (triedAnswer, error) {
	adapted, err := f.adapt()
	if err != nil {
		return triedAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, trialWait)
	defer cancel()
	result, err := caddymodule.TrialCall(ctx, adapted, f.config, orgID, model, trialQuestion)
	if err != nil {
		return triedAnswer{}, fmt.Errorf("the call of %s failed: %w", model, err)
	}
	return triedAnswer{
		OrgID: orgID, Model: result.Model, Reply: result.Text, ChargedMicros: billing.FormatMicros(result.ChargedMicros),
	}, nil
}
