package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func conversationCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use: "conversation", Short: "Blocks, exports and erases a customer, whom a conversation stands for",
	}, append(f.operations("conversation",
		operation{
			Operation: api.BlockCustomer, verb: "block", seals: true, example: "  $ caddy svc conversation block cnv_…",
			long: "Lets the assistant answer nothing of a customer until unblock: what they write is kept, and costs nothing.",
			done: "The customer of %s is blocked.",
		},
		operation{
			Operation: api.UnblockCustomer, verb: "unblock", seals: true, example: "  $ caddy svc conversation unblock cnv_…",
			long: "Lets the assistant answer what a blocked customer writes from now on.", done: "The customer of %s is unblocked.",
		},
		operation{
			Operation: api.DeleteConversation, verb: "erase", example: "  $ caddy svc conversation erase cnv_…",
			long: `Deletes everything that is stored about a customer: the conversation with messages, names and the platform's ids, and within the
hour the answers that are kept for repeated calls. What calls cost stays in the books, which have no personal data. If the customer
writes again, a new conversation begins.`,
			done: "The customer of %s is erased.",
		},
	), f.conversationExport())...)
}

func conversationFault(id string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("the organization has no conversation %q", id)
	}
	return fmt.Errorf("conversation %s: %w", id, err)
}

type exportedConversation struct {
	ID   string `json:"id"`
	Path string `json:"path"`
}

func (x exportedConversation) text(w *strings.Builder) {
	fmt.Fprintf(w, "Everything about the customer of %s is in %s.\n", x.ID, x.Path)
}

func (f *commandFlags) conversationExport() *cobra.Command {
	var path string
	command := &cobra.Command{
		Use:   "export CONVERSATION_ID --org ORG_ID --file FILE",
		Short: "Writes everything that is stored about a customer into one file",
		Long: `Writes everything that is stored about a customer into one JSON file, which must not exist yet: the conversation with names and
the platform's ids, all messages in clear text, and the turns that answered them.`,
		Example: "  $ caddy svc conversation export --org org_… cnv_… --file lan.json",
		Args:    exactly("the conversation's id"),
	}
	command.Flags().StringVar(&path, "file", "", "the `file` to write")
	required(command, "file")
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		ring, err := e.ring()
		if err != nil {
			return nil, err
		}
		id := e.args[0]
		if err := createFile(path, func(w io.Writer) error {
			return inbox.New(e.db, ring).Export(ctx, orgID, id, w, func() {})
		}); err != nil {
			return nil, conversationFault(id, err)
		}
		return exportedConversation{ID: id, Path: path}, nil
	})
}

// createFile writes a file that doesn't exist yet and that only its owner may read. After an error there is none.
func createFile(path string, write func(w io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("creating the file: %w", err)
	}
	err = errors.Join(write(file), file.Sync(), file.Close())
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
