package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const maxInstructions = 100_000

type agentAnswer struct {
	ID        string `json:"id"`
	OrgID     string `json:"orgId"`
	Name      string `json:"name"`
	Model     string `json:"model"`
	UseBYOK   bool   `json:"useByok"`
	CreatedAt string `json:"createdAt"`
}

func newAgentAnswer(a store.Agent) agentAnswer {
	return agentAnswer{ID: a.ID, OrgID: a.OrgID, Name: a.Name, Model: a.Model, UseBYOK: a.UseBYOK, CreatedAt: moment(a.CreatedAt)}
}

func (a agentAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "agent\t%s\norganization\t%s\nname\t%s\nmodel\t%s\ncreated\t%s\n", a.ID, a.OrgID, a.Name, a.Model, a.CreatedAt)
}

func (a agentAnswer) cells() []string { return []string{a.ID, a.Name, a.Model, a.CreatedAt} }

func agentCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "agent",
		Short: "Creates and lists the assistants of an organization",
	}, f.agentCreate(), f.agentList())
}

func (f *commandFlags) agentCreate() *cobra.Command {
	var name, model, instructions, file string
	var byok bool
	command := &cobra.Command{
		Use:   "create --org ORG_ID --name NAME --model MODEL [--instructions TEXT | --instructions-file FILE] [--use-byok]",
		Short: "Creates an assistant that answers on channels",
		Long: `Creates an assistant: a model with the instructions that begin every conversation. It answers the customers of the
channels that name it. To set its other options, or to change it, use the API (/agents).`,
		Example: `  $ caddy svc agent create --org org_… --name Mai --model openai/gpt-4o-mini --instructions "You sell tea."
  $ caddy svc agent create --org org_… --name Mai --model openai/gpt-4o-mini --instructions-file ./mai.txt --json`,
	}
	flags := command.Flags()
	flags.StringVar(&name, "name", "", "the `name`: 1 to 100 characters, unique in the organization")
	flags.StringVar(&model, "model", "", "a `model` of the configuration")
	flags.StringVar(&instructions, "instructions", "", "what the model is `told`, at most 100,000 characters")
	flags.StringVar(&file, "instructions-file", "", "the `file` that holds the instructions; - is standard input")
	flags.BoolVar(&byok, "use-byok", false, "call the model with the organization's own provider key")
	command.MarkFlagsMutuallyExclusive("instructions", "instructions-file")
	required(command, "name", "model")
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		name, err := identity.CleanName("name", name)
		if err != nil {
			return nil, err
		}
		if err := configured("model", model, e.app.ModelNames()); err != nil {
			return nil, err
		}
		if file != "" {
			text, err := e.readInput(file, "instructions", 4*maxInstructions)
			if err != nil {
				return nil, err
			}
			instructions = string(text)
		}
		if err := checkInstructions(instructions); err != nil {
			return nil, err
		}
		return e.createAgent(ctx, store.Agent{
			ID: store.NewID("agt"), OrgID: orgID, Name: name, Model: model, Instructions: instructions, UseBYOK: byok,
		})
	})
}

func checkInstructions(text string) error {
	switch {
	case !utf8.ValidString(text), strings.Contains(text, "\x00"):
		return errors.New("instructions: must be UTF-8 text without NUL")
	case utf8.RuneCountInString(text) > maxInstructions:
		return fmt.Errorf("instructions: at most %d characters are allowed", maxInstructions)
	default:
		return nil
	}
}

func (e *commandEnv) createAgent(ctx context.Context, agent store.Agent) (answer, error) {
	err := e.db.Agents.Create(ctx, e.actor, agent)
	if errors.Is(err, store.ErrConflict) {
		return nil, fmt.Errorf("organization %s already has an agent with the name %q", agent.OrgID, agent.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("creating an agent: %w", err)
	}
	created, err := e.db.Agents.ByID(ctx, agent.OrgID, agent.ID)
	if err != nil {
		return nil, fmt.Errorf("reading the new agent: %w", err)
	}
	return newAgentAnswer(created), nil
}

func (f *commandFlags) agentList() *cobra.Command {
	command := &cobra.Command{Use: "list --org ORG_ID", Short: "Lists the assistants of an organization"}
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		agents, err := allPages(func(page store.Page) ([]store.Agent, error) { return e.db.Agents.List(ctx, orgID, page) },
			func(a store.Agent) string { return a.ID })
		if err != nil {
			return nil, fmt.Errorf("listing agents: %w", err)
		}
		return newList("ID\tNAME\tMODEL\tCREATED", agents, newAgentAnswer), nil
	})
}
