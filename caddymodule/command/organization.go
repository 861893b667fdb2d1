package command

import (
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

func orgCommand(f *commandFlags) *cobra.Command {
	return f.noun("org", "Creates, lists, suspends and resumes organizations, and sets their plans and time zones", nil,
		operation{
			Operation: api.CreateOrganization, verb: "create",
			long:    "Creates an organization with a name that no other has. Without --plan it gets the first plan of the configuration.",
			example: `  $ caddy svc org create --name "Acme" --plan pro --json`,
		},
		operation{Operation: api.ListOrganizations, verb: "list", columns: []string{"id", "name", "plan", "externalId", "suspendedAt", "createdAt"}},
		operation{
			Operation: api.SuspendOrganization, verb: "suspend", ofOrg: true,
			example: "  $ caddy svc org suspend org_… --reason \"invoice 17 is unpaid\"",
		},
		operation{Operation: api.ResumeOrganization, verb: "resume", ofOrg: true, example: "  $ caddy svc org resume org_…"},
		operation{Operation: api.SetPlan, verb: "set-plan", ofOrg: true, example: "  $ caddy svc org set-plan org_… --plan pro"},
		operation{
			Operation: api.SetTimeZone, verb: "set-time-zone", ofOrg: true,
			example: "  $ caddy svc org set-time-zone org_… --time-zone Asia/Ho_Chi_Minh",
		},
		operation{Operation: api.ReadOrganization, verb: "show", ofOrg: true, example: "  $ caddy svc org show org_…"},
	)
}

func userCommand(f *commandFlags) *cobra.Command {
	const handOver = "No e-mail is sent: hand the link to the person yourself. Whoever opens it first sets the password; it works once."
	return f.noun("user", "Invites people to an organization, resets their passwords by a one-time link, lists, changes and removes them", nil,
		operation{
			Operation: api.InviteMember, verb: "invite",
			long: `Creates a user of an organization and shows a one-time link to set a password, only this once. No e-mail is sent: hand the link to
the person yourself. It is valid for 7 days, then the invitation ends; ` + "`caddy svc user reset`" + ` makes another link.

Roles: member (assistants, knowledge bases, conversations; reads channels and the wallet), administrator (also channels, API
keys, provider keys and members), owner (also owners). An organization's first user is best an owner.`,
			example: "  $ caddy svc user invite --org org_… --email lan@example.com --role owner", note: handOver,
		},
		operation{
			Operation: api.LinkMember, verb: "reset", byEmail: true,
			long: `Shows a new one-time link for a user who lost the password or the previous link, which ends. No e-mail is sent: hand the
link to the person yourself. The link is valid for a day, or 7 days if the user has no password yet. Until it is used, the
password and the sessions stay as they are.`,
			example: "  $ caddy svc user reset --org org_… --email lan@example.com", note: handOver,
		},
		operation{
			Operation: api.ResetMemberSecondFactor, verb: "reset-second-factor", byEmail: true, done: "User %s signs in without a second factor.",
			example: "  $ caddy svc user reset-second-factor --org org_… --email lan@example.com",
		},
		operation{
			Operation: api.ListMembers, verb: "list", columns: []string{"id", "email", "role", "state", "createdAt"},
			long: "Lists the users of an organization. State invited: no password is set yet; expired: none was set in time.",
		},
		operation{
			Operation: api.UpdateMember, verb: "set", byEmail: true, long: "Gives a user another role, which ends the user's sessions.",
			example: "  $ caddy svc user set --org org_… --email lan@example.com --role administrator",
		},
		operation{
			Operation: api.RemoveMember, verb: "remove", byEmail: true, done: "User %s is removed.",
			long: `Removes a user with the sessions and an unused link, at once. The e-mail address is free again, for instance when an
organization has invited a person of another one. The user's actions stay in the audit log. The last owner who can sign in
can't be removed.`,
			example: "  $ caddy svc user remove --org org_… --email lan@example.com",
		},
	)
}

func keyCommand(f *commandFlags) *cobra.Command {
	return f.noun("key", "Creates, lists, changes and revokes the API keys of an organization", nil,
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
			columns: []string{"id", "hint", "name", "environment", "scopes", "models", "createdAt", "expiresAt", "revokedAt"},
		},
		operation{
			Operation: api.UpdateAPIKey, verb: "set",
			example: "  $ caddy svc key set key_… --models openai/gpt-6-luna\n  $ caddy svc key set key_… --models null --requests-per-minute 60",
		},
		operation{
			Operation: api.RevokeAPIKey, verb: "revoke", example: "  $ caddy svc key revoke key_…", done: "API key %s is revoked.",
		},
	)
}

func providerKeyCommand(f *commandFlags) *cobra.Command {
	return f.noun("provider-key", "Sets, lists and deletes an organization's own keys for providers (BYOK)", nil,
		operation{
			Operation: api.PutProviderKey, verb: "set", seals: true,
			long: `Stores, or replaces, an organization's own key for a provider of the configuration. Calls with the header
x-svc-use-byok: true use it and cost no credits. The key is read from a file or from standard input, never from the
command line, and is stored encrypted under master_key.`,
			example: `  $ caddy svc provider-key set --org org_… --provider openai --key-file ./openai.key
  $ pass show openai | caddy svc provider-key set --org org_… --provider openai --key-file -`,
		},
		operation{Operation: api.ListProviderKeys, verb: "list", columns: []string{"provider", "hint", "updatedAt"}},
		operation{
			Operation: api.DeleteProviderKey, verb: "delete", example: "  $ caddy svc provider-key delete --org org_… --provider openai",
			done: "The organization no longer has a key of its own at provider %s.",
		},
	)
}

func modelCommand(f *commandFlags) *cobra.Command {
	return f.noun("model", "Enables and disables models for an organization; a new one has all", nil,
		operation{
			Operation: api.EnableModel, verb: "enable", argument: "model", done: "Model %s is enabled.",
			example: "  $ caddy svc model enable --org org_… openai/gpt-6-luna",
		},
		operation{
			Operation: api.DisableModel, verb: "disable", argument: "model", done: "Model %s is disabled.",
			example: "  $ caddy svc model disable --org org_… openai/gpt-6-luna",
		},
	)
}

func walletCommand(f *commandFlags) *cobra.Command {
	flags := map[string]string{"environment": "env", "amountMicros": "micros", "reference": "ref"}
	command := f.noun("wallet", "Credits, adjusts, refunds and shows the wallets of an organization and its calls", nil,
		operation{
			Operation: api.CreditWallet, verb: "credit", flags: flags,
			long: `Credits a wallet with an amount above 0.

The command can be repeated safely: the same reference with the same amount is booked once, and with another amount it is refused.`,
			example: "  $ caddy svc wallet credit --org org_… --amount 10 --ref invoice-17",
		},
		operation{
			Operation: api.AdjustWallet, verb: "adjust", flags: flags,
			example: "  $ caddy svc wallet adjust --org org_… --amount -0.25 --reason \"booked twice\" --ref ticket-4711",
		},
		operation{
			Operation: api.RefundCall, verb: "refund", noun: "call", flags: flags, example: "  $ caddy svc wallet refund call_… --ref ticket-4711",
		},
		operation{
			Operation: api.ListCalls, verb: "calls", flags: flags, newest: true,
			columns: []string{"at", "id", "keyId", "model", "outcome", "promptTokens", "completionTokens", "chargedMicros"},
			example: "  $ caddy svc wallet calls --org org_… --key-id key_… --from 2026-11-01 --limit 20",
		},
		operation{
			Operation: api.ListStatements, verb: "statements", flags: flags,
			columns: []string{
				"month", "closed", "openingMicros", "creditsMicros", "chargesMicros", "refundsMicros", "correctionsMicros",
				"reversalsMicros", "closingMicros", "calls",
			},
			example: "  $ caddy svc wallet statements --org org_…",
		},
		operation{
			Operation: api.GetStatement, verb: "statement", flags: flags,
			example: "  $ caddy svc wallet statement --org org_… --month 2026-10 --format csv >october.csv",
		},
		operation{
			Operation: api.ListUsageEvents, verb: "export", flags: flags,
			long:    "Exports the charges of a wallet's calls and their refunds, as `caddy svc usage export` does for all organizations.",
			example: "  $ caddy svc wallet export --org org_… --format csv >usage.csv",
		},
		operation{
			Operation: api.GetWallet, verb: "show", flags: flags,
			long: `Shows a wallet's balance and what of it is held: for running calls and, while a wallet is busy and for two seconds after its
last call, for the next calls (docs/billing.md, "Tranches").`,
		},
	)
	command.Long = `Credits, adjusts, refunds and shows wallets. An organization has two, live and test.

Results have micros: millionths of the currency unit, so 1000000 micros are one unit. Every change is an entry of the
ledger and a row of the audit log.`
	return command
}

func paymentCommand(f *commandFlags) *cobra.Command {
	flags := map[string]string{"orgId": "org"}
	return f.noun("payment", "Lists the payments that providers have delivered, and decides those that wait", nil,
		operation{
			Operation: api.ListPayments, verb: "list", flags: flags, newest: true,
			columns: []string{"id", "state", "reason", "amount", "currency", "provider", "orgId", "text", "paidAt"},
			example: "  $ caddy svc payment list --state waiting",
		},
		operation{Operation: api.GetPayment, verb: "show", example: "  $ caddy svc payment show pay_…"},
		operation{Operation: api.MatchPayment, verb: "match", flags: flags, example: "  $ caddy svc payment match pay_… --org org_…"},
		operation{Operation: api.IgnorePayment, verb: "ignore", example: "  $ caddy svc payment ignore pay_… --reason \"a supplier's refund\""},
	)
}

func budgetCommand(f *commandFlags) *cobra.Command {
	flags := map[string]string{"environment": "env", "amountMicros": "micros"}
	columns := []string{"id", "name", "keyId", "agentId", "period", "limitMicros", "risenMicros", "spentMicros", "roomMicros", "endsAt"}
	return f.noun("budget", "Limits what an organization, an API key or an assistant spends a day, week or month, or in total", nil,
		operation{
			Operation: api.CreateBudget, verb: "create", flags: flags,
			example: "  $ caddy svc budget create --org org_… --name \"web shop\" --key-id key_… --period month --limit 200",
		},
		operation{Operation: api.ListBudgets, verb: "list", flags: flags, columns: columns, example: "  $ caddy svc budget list --org org_…"},
		operation{Operation: api.GetBudget, verb: "show", example: "  $ caddy svc budget show bud_… --json"},
		operation{
			Operation: api.UpdateBudget, verb: "set", example: "  $ caddy svc budget set bud_… --limit 300 --thresholds 80,100",
			long: "Changes a budget from the next call on. A limit below what is spent refuses the next call and ends no running one.",
		},
		operation{
			Operation: api.RaiseBudget, verb: "raise", flags: flags,
			example: "  $ caddy svc budget raise bud_… --amount 50 --ends-at 2027-01-31T12:00:00Z --reason \"a fair\"",
		},
		operation{
			Operation: api.EndBudgetRise, verb: "end-rise", noun: "rise", argument: "riseId", flags: map[string]string{"id": "budget"},
			example: "  $ caddy svc budget end-rise rise_… --budget bud_…", done: "Rise %s has ended.",
		},
		operation{Operation: api.EndBudget, verb: "end", example: "  $ caddy svc budget end bud_…", done: "Budget %s has ended."},
	)
}

func usageCommand(f *commandFlags) *cobra.Command {
	return f.noun("usage", "Exports the usage of all organizations for billing systems", nil,
		operation{
			Operation: api.ListAllUsageEvents, verb: "export",
			long: `Exports the charges of calls and their refunds as CloudEvents, or as CSV, to standard output. Each event has a sequence. Give that
of the last event as --since, and the export continues after it: no event is left out, and none comes twice. An event's id is the
id of its call, or of a refund's transaction, so that a billing system can drop what it has already.`,
			example: `  $ caddy svc usage export --since 41_1207 --format jsonl
  $ caddy svc usage export --format csv >usage.csv`,
		},
	)
}

func operatorCommand(f *commandFlags) *cobra.Command {
	keys := f.noun("key", "Creates, lists and revokes the keys for the operator's interface", nil,
		operation{
			Operation: api.CreateOperatorKey, verb: "create",
			long: `Creates a key for the operator's interface and shows it, only this once: the store has its SHA-256 hash. It is
refused everywhere else.

Scopes: ` + identity.JoinScopes(identity.AllOperatorScopes(), ", ") + ".",
			example: `  $ caddy svc operator key create --name sign-up --scopes organizations:write,api_keys:write --expires-in-days 365`,
			note:    "Keep the key now: it is not stored and can't be shown again.",
		},
		operation{
			Operation: api.ListOperatorKeys, verb: "list",
			columns: []string{"id", "hint", "name", "scopes", "createdBy", "createdAt", "expiresAt", "revokedAt", "usedAt"},
		},
		operation{
			Operation: api.RevokeOperatorKey, verb: "revoke", example: "  $ caddy svc operator key revoke opk_…",
			done: "Operator key %s is revoked.",
		},
	)
	const handOver = "No e-mail is sent: hand the link to the operator yourself. It is the end of the console's address and works once."
	return f.noun("operator", "Adds, lists, changes and removes the people who run the service, and their keys", []*cobra.Command{keys},
		operation{
			Operation: api.AddOperator, verb: "add", note: handOver,
			long: `Adds an operator, who signs in to the console with a password and a second factor, and shows a one-time link to set the password.

Roles: viewer (reads), support (also organizations, API keys, users, channels, the queue and the doctor; no money), administrator
(everything). Texts of customers are never shown to operators.`,
			example: "  $ caddy svc operator add --email lan@example.com --role administrator",
		},
		operation{Operation: api.ListOperators, verb: "list", columns: []string{"id", "email", "role", "state", "secondFactor", "createdAt"}},
		operation{
			Operation: api.UpdateOperator, verb: "set",
			example: "  $ caddy svc operator set opr_… --role support\n  $ caddy svc operator set opr_… --disabled",
		},
		operation{Operation: api.RemoveOperator, verb: "remove", example: "  $ caddy svc operator remove opr_…", done: "Operator %s is removed."},
		operation{
			Operation: api.LinkOperator, verb: "reset-password", example: "  $ caddy svc operator reset-password opr_…", note: handOver,
			long: `Shows a new one-time link for an operator who lost the password or the previous link, which ends. The password stays as it is until
the link is used, and the second factor in any case.`,
		},
		operation{
			Operation: api.ResetOperatorSecondFactor, verb: "reset-second-factor", example: "  $ caddy svc operator reset-second-factor opr_…",
			done: "Operator %s has no second factor: the next sign-in sets up another.",
		},
	)
}

func auditCommand(f *commandFlags) *cobra.Command {
	return (&operation{
		Operation: api.ListActions, verb: "audit", newest: true, flags: map[string]string{"orgId": "org"},
		columns: []string{"at", "actor", "action", "target", "orgId", "detail"},
	}).command(f, "")
}
