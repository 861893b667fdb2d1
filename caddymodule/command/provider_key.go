package command

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers/api"
)

func providerKeyCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use: "provider-key", Short: "Sets, lists and deletes an organization's own keys for providers (BYOK)",
	}, f.operations("provider-key",
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
			done: "The organization has no key of its own at provider %s any more.",
		},
	)...)
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
