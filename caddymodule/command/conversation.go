package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func agentCommand(f *commandFlags) *cobra.Command {
	return f.noun("agent", "Administers the assistants of an organization", nil,
		operation{
			Operation: api.CreateAgent, verb: "create",
			long: `Creates an assistant: a model with the instructions that begin every conversation. It answers the customers of the
channels that name it.`,
			example: `  $ caddy svc agent create --org org_… --name Mai --model openai/gpt-6-luna --instructions "You sell tea."
  $ caddy svc agent create --org org_… --name Mai --model openai/gpt-6-luna --instructions-file ./mai.txt --json`,
		},
		operation{Operation: api.ListAgents, verb: "list", columns: []string{"id", "name", "model", "createdAt"}},
		operation{Operation: api.GetAgent, verb: "show", example: "  $ caddy svc agent show agt_…"},
		operation{
			Operation: api.UpdateAgent, verb: "set", example: "  $ caddy svc agent set agt_… --typing --max-tokens null",
			long: "Changes an assistant. Settings without a flag stay as they are.",
		},
		operation{Operation: api.DeleteAgent, verb: "delete", example: "  $ caddy svc agent delete agt_…", done: "Agent %s is deleted."},
	)
}

// channelTypes returns the types of the platforms of this build. A platform with a faulty description is reported when a
// configuration is loaded.
func channelTypes() *messaging.Catalog {
	catalog, _ := caddymodule.PlatformCatalog()
	return catalog
}

func channelCommand(f *commandFlags) *cobra.Command {
	flags := map[string]string{"agentId": "agent", "origins": "origin", "openingHours": "open"}
	return f.noun("channel", "Creates, lists, changes, approves and deletes the messaging channels of an organization", nil,
		operation{
			Operation: api.ConnectChannel, verb: "create", seals: true, flags: flags,
			long: `Creates a channel between an organization and a platform, and shows the address to register there as the webhook. It is
active immediately: that the organization has the page, number or shop is for you to know, while a channel that a client makes
waits until the platform or you confirm it. A channel of another organization that still waits with the same external id
loses it, which that organization's audit log says. The plan's number of channels doesn't bind you.

The credentials are a JSON object, read from a file or standard input and never from the command line. By type:

` + credentialForms() + `
They are stored encrypted under master_key and never shown. The external id is what the platform calls the page, the
account, the phone number or the shop; types with a webhook address for each channel, such as bot, have none.

A widget has neither: it is a chat for the organization's own site. --origin names a site that may show it, as
https://shop.example.com or https://*.example.com, and may be repeated.`,
			example: `  $ caddy svc channel create --org org_… --type bot --name "Tea bot" --agent agt_… --credentials-file ./bot.json
  $ pass show page | caddy svc channel create --org org_… --type social_messenger --name Page --external-id 1234567890 --credentials-file -
  $ caddy svc channel create --org org_… --type widget --name Site --agent agt_… --origin https://shop.example.com`,
		},
		operation{
			Operation: api.ListChannels, verb: "list", seals: true,
			columns: []string{"id", "type", "name", "externalId", "agentId", "state", "webhookUrl"},
		},
		operation{Operation: api.GetChannel, verb: "show", seals: true, example: "  $ caddy svc channel show chn_…"},
		operation{
			Operation: api.UpdateChannel, verb: "set", seals: true, flags: flags,
			long: `Changes a channel. Settings without a flag stay as they are, null removes one, and --open "" means any time.`,
			example: `  $ caddy svc channel set chn_… --answer-mode draft
  $ caddy svc channel set chn_… --max-age-minutes 240 --closed-notice null
  $ caddy svc channel set chn_… --open 'mon-fri 08:00-17:30' --open 'sat 09:00-12:00' --time-zone Asia/Ho_Chi_Minh`,
		},
		operation{
			Operation: api.ApproveChannel, verb: "approve", seals: true, example: "  $ caddy svc channel approve chn_…",
			long: `Confirms that the organization of a pending channel has the page, account, number or shop that the channel names. Until
then, or until the platform has confirmed it, the channel's messages are dropped. Approving an active channel changes
nothing.`,
		},
		operation{
			Operation: api.DeleteChannel, verb: "delete", example: "  $ caddy svc channel delete chn_…", done: "Channel %s is deleted.",
			long: `Deletes a channel with all its conversations. Its external id is free again, for instance when an organization holds
one that isn't theirs. A deletion that is interrupted leaves the channel pending; repeat it.`,
		},
	)
}

// credentialForms lists the credentials of the types for a command's help, one line for all types with the same.
func credentialForms() string {
	var forms []string
	types := map[string][]string{}
	for _, t := range channelTypes().Types() {
		var fields, optional []string
		for _, field := range t.Credentials {
			if field.Optional {
				optional = append(optional, field.Name)
			} else {
				fields = append(fields, `"`+field.Name+`": "…"`)
			}
		}
		if len(fields) == 0 {
			continue
		}
		form := "{" + strings.Join(fields, ", ") + "}"
		if len(optional) > 0 {
			form += "; of an own application: " + strings.Join(optional, ", ")
		}
		if types[form] == nil {
			forms = append(forms, form)
		}
		types[form] = append(types[form], string(t.Type))
	}
	var b strings.Builder
	for _, form := range forms {
		fmt.Fprintf(&b, "  %-40s %s\n", strings.Join(types[form], ", "), form)
	}
	return b.String()
}

func queueCommand(f *commandFlags) *cobra.Command {
	flags := map[string]string{"channelId": "channel", "id": "conversation"}
	return f.noun("queue", "Lists messages without an answer or a delivery, and retries, dismisses or resends them", nil,
		operation{
			Operation: api.ListDeadTurns, verb: "dead",
			columns: []string{"id", "orgId", "channelId", "conversationId", "code", "attempts", "updatedAt"},
			long: `Lists the turns that were given up: the model or the service failed too often, or in a way that no retry can fix. Their
customers have no answer. The code is that of the last failure.`,
		},
		operation{
			Operation: api.ListAttention, verb: "standing", seals: true, flags: flags,
			columns: []string{"id", "channelId", "state", "attention", "updatedAt"},
			long: `Lists the conversations of an organization that need a person: an answer was given up or waits for something, or a message
was not delivered, or perhaps not. The attention is the code of the last cause.`,
		},
		operation{
			Operation: api.ActOnConversations, verb: "retry", noun: "turn", flags: flags, fixed: endpoint.Values{"action": "retry"},
			one: &operation{Operation: api.RetryTurn, done: "Turn %s is in the queue again."}, done: "%d conversations are retried.",
			long: `Puts a turn that was given up into the queue again, or with --org all turns that were given up or wait, in the
conversations that queue standing lists with the same flags. If a turn was charged already, it is not charged again: the
model's answer is kept under the turn's id.`,
			example: `  $ caddy svc queue retry trn_…
  $ caddy svc queue retry --org org_… --code provider_error`,
		},
		operation{
			Operation: api.ActOnConversations, verb: "dismiss", noun: "conversation", flags: flags, fixed: endpoint.Values{"action": "dismiss"},
			one:  &operation{Operation: api.DismissConversation, seals: true, noun: "conversation", done: "Conversation %s is dismissed."},
			done: "%d conversations are dismissed.",
			long: `Ends the attention of one conversation, or with --org of all that queue standing lists with the same flags: their customers
get no answer to their last messages, and the assistant answers the next ones.`,
			example: `  $ caddy svc queue dismiss cnv_…
  $ caddy svc queue dismiss --org org_… --channel chn_…`,
		},
		operation{
			Operation: api.ResendMessage, verb: "resend", noun: "message", argument: "messageId", seals: true, flags: flags,
			done: "Message %s is in the queue again.",
			long: `Sends a message to a customer again that failed, and with it the later parts of the same answer that failed with it. A message
whose delivery is unknown may have arrived: it is sent only with --may-arrive-twice.`,
			example: "  $ caddy svc queue resend msg_… --conversation cnv_… --may-arrive-twice",
		},
	)
}

func conversationCommand(f *commandFlags) *cobra.Command {
	return f.noun("conversation", "Blocks, exports and erases the customer of a conversation", []*cobra.Command{f.conversationExport()},
		operation{
			Operation: api.BlockCustomer, verb: "block", seals: true, example: "  $ caddy svc conversation block cnv_…",
			long: "Lets the assistant answer nothing of a customer until unblock. The customer's messages are kept, and cost nothing.",
			done: "The customer of %s is blocked.",
		},
		operation{
			Operation: api.UnblockCustomer, verb: "unblock", seals: true, example: "  $ caddy svc conversation unblock cnv_…",
			long: "Lets the assistant answer the next messages of a blocked customer.", done: "The customer of %s is unblocked.",
		},
		operation{
			Operation: api.DeleteConversation, verb: "erase", example: "  $ caddy svc conversation erase cnv_…",
			long: `Deletes everything that is stored about a customer: the conversation with messages, names and the platform's ids, and within the
hour the answers that are kept for repeated calls. The costs of calls stay in the books, which have no personal data. If the customer
writes again, a new conversation begins.`,
			done: "The customer of %s is erased.",
		},
	)
}

type exportedConversation struct {
	ID   string `json:"id"`
	Path string `json:"path"`
}

func (x exportedConversation) text(w *strings.Builder) {
	fmt.Fprintf(w, "Everything about the customer of %s is in %s.\n", x.ID, x.Path)
}

func (f *commandFlags) conversationExport() *cobra.Command {
	var org, path string
	command := &cobra.Command{
		Use:   "export CONVERSATION_ID --org ORG_ID --file FILE",
		Short: "Writes everything that is stored about a customer into one file",
		Long: `Writes everything that is stored about a customer into one JSON file, which must not exist yet: the conversation with names and
the platform's ids, all messages in clear text, and the turns that answered them.`,
		Example: "  $ caddy svc conversation export --org org_… cnv_… --file lan.json",
		Args:    exactly("the conversation's id"),
	}
	command.Flags().StringVar(&org, "org", "", "the `id` of the organization")
	command.Flags().StringVar(&path, "file", "", "the `file` to write")
	required(command, "org", "file")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		if err := e.checkOrganization(ctx, org); err != nil {
			return nil, err
		}
		ring, err := e.ring()
		if err != nil {
			return nil, err
		}
		id := e.args[0]
		err = createFile(path, "creating the file", 0o600, func(w io.Writer) error {
			return inbox.New(e.db, ring).Export(ctx, org, id, w, func() {})
		})
		if errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("the organization has no conversation %q", id)
		}
		if err != nil {
			return nil, fmt.Errorf("conversation %s: %w", id, err)
		}
		return exportedConversation{ID: id, Path: path}, nil
	})
}

// createFile writes a file that doesn't exist yet. After an error there is none; doing begins the error of a file that can't be created.
func createFile(path, doing string, mode os.FileMode, write func(w io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	err = errors.Join(write(file), file.Sync(), file.Close())
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
