package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

type orgAnswer struct {
	ID          string  `json:"id"`
	Name        string  `json:"name"`
	Plan        string  `json:"plan"`
	Suspended   bool    `json:"suspended"`
	SuspendedAt *string `json:"suspendedAt"`
	CreatedAt   string  `json:"createdAt"`
}

func newOrgAnswer(o store.Organization) orgAnswer {
	return orgAnswer{
		ID: o.ID, Name: o.Name, Plan: o.Plan, CreatedAt: moment(o.CreatedAt),
		Suspended: o.SuspendedAt.Valid, SuspendedAt: nullableMoment(o.SuspendedAt),
	}
}

func (o orgAnswer) state() string {
	if o.Suspended {
		return "suspended"
	}
	return "active"
}

func (o orgAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "organization\t%s\nname\t%s\nplan\t%s\nstate\t%s\ncreated\t%s\n", o.ID, o.Name, o.Plan, o.state(), o.CreatedAt)
}

func (o orgAnswer) cells() []string { return []string{o.ID, o.Name, o.Plan, o.state(), o.CreatedAt} }

func orgCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "org",
		Short: "Creates, lists, suspends and resumes organizations, and sets their plans",
	}, f.orgCreate(), f.orgList(),
		f.orgSetSuspended("suspend", "Suspends an organization: every call gets 402 organization_suspended from the next request on", true),
		f.orgSetSuspended("resume", "Ends the suspension of an organization", false),
		f.orgSetPlan())
}

func (f *commandFlags) orgCreate() *cobra.Command {
	var name, plan string
	command := &cobra.Command{
		Use:     "create --name NAME [--plan PLAN]",
		Short:   "Creates an organization",
		Long:    "Creates an organization with a name that no other has. Without --plan it gets the first plan of the configuration.",
		Example: "  $ caddy svc org create --name \"Acme\" --plan pro --json",
	}
	command.Flags().StringVar(&name, "name", "", "the `name`: 1 to 100 characters, unique")
	command.Flags().StringVar(&plan, "plan", "", "a `plan` of the configuration (default: its first)")
	required(command, "name")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		if plan == "" {
			plan = e.app.DefaultPlan()
		} else if err := configured("plan", plan, e.app.PlanNames()); err != nil {
			return nil, err
		}
		organization, err := identity.CreateOrganization(ctx, e.db, e.actor, name, plan)
		if errors.Is(err, store.ErrConflict) {
			return nil, fmt.Errorf("there is already an organization with the name %q", name)
		}
		if err != nil {
			return nil, err
		}
		return newOrgAnswer(organization), nil
	})
}

func (f *commandFlags) orgList() *cobra.Command {
	command := &cobra.Command{Use: "list", Short: "Lists all organizations"}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		organizations, err := e.db.Organizations.All(ctx)
		if err != nil {
			return nil, err
		}
		return newList("ID\tNAME\tPLAN\tSTATE\tCREATED", organizations, newOrgAnswer), nil
	})
}

// orgArgument lets a verb name its organization as its only argument or, like the verbs of other nouns, by --org.
func orgArgument(command *cobra.Command) func(e *commandEnv) (id string) {
	org := command.Flags().String("org", "", "the `id` of the organization, if it isn't the argument")
	command.Args = func(cmd *cobra.Command, args []string) error {
		if (*org == "") == (len(args) == 0) || len(args) > 1 {
			return fmt.Errorf("%s takes the id of one organization, as its argument or by --org, and nothing else but flags (see %s --help)",
				cmd.CommandPath(), cmd.CommandPath())
		}
		return nil
	}
	return func(e *commandEnv) string {
		if *org != "" {
			return *org
		}
		return e.args[0]
	}
}

func (f *commandFlags) orgSetSuspended(name, short string, suspended bool) *cobra.Command {
	command := &cobra.Command{
		Use:     name + " ORG_ID",
		Short:   short,
		Example: "  $ caddy svc org " + name + " org_…",
	}
	id := orgArgument(command)
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		return e.changeOrg(ctx, id(e), func(id string) error { return e.db.Organizations.SetSuspended(ctx, e.actor, id, suspended) })
	})
}

// changeOrg changes one organization and shows it afterwards.
func (e *commandEnv) changeOrg(ctx context.Context, id string, change func(id string) error) (answer, error) {
	if _, err := e.organization(ctx, id); err != nil {
		return nil, err
	}
	if err := change(id); err != nil {
		return nil, err
	}
	organization, err := e.organization(ctx, id)
	if err != nil {
		return nil, err
	}
	return newOrgAnswer(organization), nil
}

func (f *commandFlags) orgSetPlan() *cobra.Command {
	var plan string
	command := &cobra.Command{
		Use:     "set-plan ORG_ID --plan PLAN",
		Short:   "Moves an organization to another plan of the configuration",
		Example: "  $ caddy svc org set-plan org_… --plan pro",
	}
	id := orgArgument(command)
	command.Flags().StringVar(&plan, "plan", "", "a `plan` of the configuration")
	required(command, "plan")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		if err := configured("plan", plan, e.app.PlanNames()); err != nil {
			return nil, err
		}
		return e.changeOrg(ctx, id(e), func(id string) error { return e.db.Organizations.SetPlan(ctx, e.actor, id, plan) })
	})
}
