package command

import (
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers/api"
)

func agentCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{Use: "agent", Short: "Administers the assistants of an organization"}, f.operations("agent",
		operation{
			Operation: api.CreateAgent, verb: "create",
			long: `Creates an assistant: a model with the instructions that begin every conversation. It answers the customers of the
channels that name it.`,
			example: `  $ caddy svc agent create --org org_… --name Mai --model openai/gpt-4o-mini --instructions "You sell tea."
  $ caddy svc agent create --org org_… --name Mai --model openai/gpt-4o-mini --instructions-file ./mai.txt --json`,
		},
		operation{Operation: api.ListAgents, verb: "list", columns: []string{"id", "name", "model", "createdAt"}},
		operation{Operation: api.GetAgent, verb: "show", example: "  $ caddy svc agent show agt_…"},
		operation{
			Operation: api.UpdateAgent, verb: "set", example: "  $ caddy svc agent set agt_… --typing --max-tokens null",
			long: "Changes an assistant: what no flag names stays as it is.",
		},
		operation{Operation: api.DeleteAgent, verb: "delete", example: "  $ caddy svc agent delete agt_…", done: "Agent %s is deleted."},
	)...)
}
