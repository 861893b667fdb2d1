package command

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/catalog"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// importedCatalog is the result of an import.
type importedCatalog struct {
	Source  string            `json:"source"`
	File    string            `json:"file"`
	Models  int               `json:"models"`
	Changes []catalog.Change  `json:"changes"`
	Skipped []catalog.Skipped `json:"skipped"`
}

func (a *importedCatalog) text(w *strings.Builder) {
	for _, skipped := range a.Skipped {
		fmt.Fprintf(w, "Skipped %s: %s.\n", skipped.Model, skipped.Reason)
	}
	for _, change := range a.Changes {
		fmt.Fprintln(w, changeText(change))
	}
	fmt.Fprintf(w, "%s has %d models of %s, with %d changes. Import it in the svc block, and name the models that you sell.\n",
		a.File, a.Models, a.Source, len(a.Changes))
}

func changeText(c catalog.Change) string {
	return fmt.Sprintf("%s %s: %s → %s", c.Model, c.Option, cmp.Or(c.Before, "none"), cmp.Or(c.After, "none"))
}

// catalogImport has the arguments of an import.
type catalogImport struct {
	out, file   string
	acceptJumps bool
	// vendors are the file's names of vendors, by the name of the provider.
	vendors  map[string]string
	patterns []string
}

func (f *commandFlags) catalogImportCommand() *cobra.Command {
	var wanted catalogImport
	var named []string
	command := &cobra.Command{
		Use:   "import FILE --out SNIPPET --provider NAME=VENDOR [PATTERN...]",
		Short: "Writes rows of the catalogue from a price list of LiteLLM or models.dev",
		Long: `Reads LiteLLM's model_prices_and_context_window.json or models.dev's api.json, and writes the models of the named vendors as
catalog_model rows, to be imported in the svc block. A row is sold once a model line names it. Prices are those of the file, in US dollars:
currency_rate and markup of the svc block apply to them.

It skips, with the reason, each model without a price above 0 that can be believed. It shows what changes in a snippet that it wrote before, and
stops without writing if a price becomes more than 3 times as high or as low, or goes, unless --accept-jumps is given. It makes no request and needs
no configuration.`,
		Example: `  $ caddy svc catalog import model_prices_and_context_window.json --out models.caddyfile --provider openai 'gpt-6*'
  $ caddy svc catalog import api.json --out models.caddyfile --provider gemini=google --provider claude=anthropic`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.MinimumNArgs(1),
	}
	flags := command.Flags()
	flags.StringVar(&wanted.out, "out", "", "the `file` to write")
	flags.StringArrayVar(&named, "provider", nil,
		"the `name` of a provider, and after = the file's name of its vendor if it is another; may be repeated")
	flags.BoolVar(&wanted.acceptJumps, "accept-jumps", false, "write prices that jump")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		wanted.file, wanted.patterns = args[0], args[1:]
		wanted.vendors = map[string]string{}
		for _, pair := range named {
			name, vendor, _ := strings.Cut(pair, "=")
			wanted.vendors[name] = cmp.Or(vendor, name)
		}
		made, err := wanted.run()
		if err != nil {
			return err
		}
		return f.write(cmd.OutOrStdout(), made)
	}
	return command
}

// run reads the file and writes the snippet, unless nothing changes.
func (w *catalogImport) run() (*importedCatalog, error) {
	if w.out == "" || len(w.vendors) == 0 {
		return nil, errors.New("name a file to write with --out, and at least one --provider")
	}
	for _, pattern := range w.patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("the pattern %q: %w", pattern, err)
		}
	}
	read, err := w.read()
	if err != nil {
		return nil, err
	}
	before, err := os.ReadFile(w.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading what was written before: %w", err)
	}
	if !catalog.IsSnippet(string(before)) {
		return nil, fmt.Errorf("%s wasn't written by this command, so it isn't replaced; choose another --out", w.out)
	}
	after := catalog.Snippet(read.Models, w.vendors)
	made := &importedCatalog{
		Source: read.Source, File: w.out, Models: len(read.Models), Skipped: read.Skipped, Changes: catalog.Compare(string(before), after),
	}
	var jumps []string
	for _, change := range made.Changes {
		if change.Jump {
			jumps = append(jumps, changeText(change))
		}
	}
	if len(jumps) > 0 && !w.acceptJumps {
		return nil, fmt.Errorf("prices jump; look at them, then repeat with --accept-jumps. Nothing was written:\n  %s", strings.Join(jumps, "\n  "))
	}
	if len(made.Changes) == 0 {
		return made, nil
	}
	return made, replace(w.out, []byte(after))
}

// read reads the models of the vendors and patterns.
func (w *catalogImport) read() (*catalog.File, error) {
	source, err := os.Open(w.file)
	if err != nil {
		return nil, fmt.Errorf("reading the price list: %w", err)
	}
	defer source.Close() //nolint:errcheck // it was only read
	read, err := catalog.Read(source, w.selects)
	if err != nil {
		return nil, fmt.Errorf("reading the price list %s: %w", w.file, err)
	}
	for _, vendor := range w.vendors {
		if !slices.Contains(read.Vendors, vendor) {
			return nil, fmt.Errorf("%s has no vendor %q; it has: %s", w.file, vendor, strings.Join(read.Vendors, ", "))
		}
	}
	if len(read.Models) == 0 {
		reasons := store.Column(read.Skipped, func(skipped catalog.Skipped) string { return skipped.Model + ": " + skipped.Reason })
		return nil, fmt.Errorf("%s has no such model with a price. Skipped: %s", w.file, cmp.Or(strings.Join(reasons, "; "), "none"))
	}
	return read, nil
}

// selects reports whether a model of the file is to be imported.
func (w *catalogImport) selects(vendor, model string) bool {
	if !slices.Contains(slices.Collect(maps.Values(w.vendors)), vendor) {
		return false
	}
	return len(w.patterns) == 0 || slices.ContainsFunc(w.patterns, func(pattern string) bool {
		matched, _ := path.Match(pattern, model)
		return matched
	})
}

// replace replaces a file by one with text. After an error the file is unchanged.
func replace(file string, text []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), ".catalog-*")
	if err != nil {
		return fmt.Errorf("writing beside %s: %w", file, err)
	}
	_, err = temporary.Write(text)
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, errors.Join(err, os.Remove(temporary.Name())))
	}
	return nil
}
