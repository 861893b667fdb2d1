package command

import (
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

func keyCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{Use: "key", Short: "Creates, lists and revokes the API keys of an organization"}, f.operations("key",
		operation{
			Operation: api.CreateAPIKey, verb: "create", flags: map[string]string{"environment": "env"},
			long: "Creates an API key and shows it, only this once: the store has its SHA-256 hash.\n\nScopes: " +
				identity.JoinScopes(identity.AllScopes(), ", ") + ".",
			example: `  $ caddy svc key create --org org_… --name "web shop" --json
  $ caddy svc key create --org org_… --env test --scopes models:read,chat:write,wallet:read --expires-in-days 90`,
			note: "Keep the key now: it is not stored and can't be shown again.",
		},
		operation{
			Operation: api.ListAPIKeys, verb: "list",
			columns: []string{"id", "hint", "name", "environment", "scopes", "createdAt", "expiresAt", "revokedAt"},
		},
		operation{
			Operation: api.RevokeAPIKey, verb: "revoke", example: "  $ caddy svc key revoke key_…", done: "API key %s is revoked.",
		},
	)...)
}
