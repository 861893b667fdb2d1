package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

type providerKeyAnswer struct {
	OrgID    string `json:"orgId"`
	Provider string `json:"provider"`
	Set      bool   `json:"set"`
}

func (p providerKeyAnswer) text(w *strings.Builder) {
	state := "has no key of its own any more for"
	if p.Set {
		state = "has its own key for"
	}
	fmt.Fprintf(w, "Organization %s %s provider %s.\n", p.OrgID, state, p.Provider)
}

func providerKeyCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "provider-key",
		Short: "Sets and deletes an organization's own key for a provider (BYOK)",
	}, f.providerKeySet(), f.providerKeyDelete())
}

func providerFlag(command *cobra.Command) *string {
	provider := command.Flags().String("provider", "", "the `name` of a provider")
	required(command, "provider")
	return provider
}

func (f *commandFlags) providerKeySet() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "set --org ORG_ID --provider NAME [--key-file FILE]",
		Short: "Stores an organization's own key for a provider, encrypted",
		Long: `Stores, or replaces, an organization's own key for a provider of the configuration. Calls with the header
x-svc-use-byok: true use it and cost no credits. The key is read from a file or from standard input, never from the
command line, and is stored encrypted under master_key.`,
		Example: `  $ caddy svc provider-key set --org org_… --provider openai --key-file ./openai.key
  $ pass show openai | caddy svc provider-key set --org org_… --provider openai --key-file -`,
	}
	provider := providerFlag(command)
	command.Flags().StringVar(&file, "key-file", "-", "the `file` that holds the key; - is standard input")
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		if err := configured("provider", *provider, e.app.ProviderNames()); err != nil {
			return nil, err
		}
		ring, err := e.ring()
		if err != nil {
			return nil, err
		}
		key, err := e.readSecret(file)
		if err != nil {
			return nil, err
		}
		if err := identity.PutProviderKey(ctx, e.db, ring, e.actor, orgID, *provider, key); err != nil {
			return nil, err
		}
		return providerKeyAnswer{OrgID: orgID, Provider: *provider, Set: true}, nil
	})
}

// readSecret reads a provider key from a file or, for "-", from standard input.
func (e *commandEnv) readSecret(file string) (string, error) {
	const most = identity.MaxProviderKeyBytes + 2 // the bound, a line break
	secret, err := e.readInput(file, "key", most)
	return string(secret), err
}

// readInput reads a file or, for "-", standard input. what is its name in errors. It reads at most one byte more than most, so
// that the caller can refuse longer input without reading all of it.
func (e *commandEnv) readInput(file, what string, most int64) ([]byte, error) {
	source := e.stdin
	if file == "-" {
		if terminal(source) {
			_, _ = fmt.Fprintf(e.stderr, "Enter the %s, then end with Ctrl-D:\n", what)
		}
	} else {
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("reading the %s: %w", what, err)
		}
		defer opened.Close() //nolint:errcheck // it was only read
		source = opened
	}
	text, err := io.ReadAll(io.LimitReader(source, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	return text, nil
}

// terminal reports whether source is a terminal, where a person types.
func terminal(source io.Reader) bool {
	file, ok := source.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (f *commandFlags) providerKeyDelete() *cobra.Command {
	command := &cobra.Command{
		Use:     "delete --org ORG_ID --provider NAME",
		Short:   "Deletes an organization's own key for a provider",
		Example: "  $ caddy svc provider-key delete --org org_… --provider openai",
	}
	provider := providerFlag(command)
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		err := e.db.ProviderKeys.Delete(ctx, e.actor, orgID, *provider)
		if errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("organization %s has no key of its own for provider %q", orgID, *provider)
		}
		if err != nil {
			return nil, err
		}
		return providerKeyAnswer{OrgID: orgID, Provider: *provider}, nil
	})
}
