package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

type modelAnswer struct {
	OrgID   string `json:"orgId"`
	Model   string `json:"model"`
	Enabled bool   `json:"enabled"`
}

func (m modelAnswer) text(w *strings.Builder) {
	state := "disabled"
	if m.Enabled {
		state = "enabled"
	}
	fmt.Fprintf(w, "Model %s is %s for organization %s.\n", m.Model, state, m.OrgID)
}

func modelCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "model",
		Short: "Enables and disables models for an organization; a new one has all",
	}, f.modelSwitch("enable", "Enables a model for an organization", true),
		f.modelSwitch("disable", "Disables a model for an organization: it leaves its list, and calls get 400 unsupported_model", false))
}

func (f *commandFlags) modelSwitch(name, short string, enabled bool) *cobra.Command {
	command := &cobra.Command{
		Use:     name + " --org ORG_ID MODEL",
		Short:   short,
		Example: "  $ caddy svc model " + name + " --org org_… openai/gpt-4o-mini",
		Args:    exactly("the model's id, PROVIDER/MODEL"),
	}
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		model := e.args[0]
		if err := configured("model", model, e.app.ModelNames()); err != nil {
			return nil, err
		}
		if err := e.db.Organizations.SetModel(ctx, e.actor, orgID, model, enabled); err != nil {
			return nil, err
		}
		return modelAnswer{OrgID: orgID, Model: model, Enabled: enabled}, nil
	})
}
