package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// priceList is a file in LiteLLM's form, with the input price of one model.
func priceList(price string) string {
	return `{
		"sample_spec": {"mode": "chat"},
		"acme-2": {"litellm_provider": "acme", "mode": "chat", "max_input_tokens": 1000, "max_output_tokens": 100, "input_cost_per_token": ` + price + `,
			"output_cost_per_token": 2e-06, "input_cost_per_token_above_200k_tokens": 1.6e-6, "cache_creation_input_token_cost_above_1hr": 2e-6},
		"acme/acme-free": {"litellm_provider": "acme", "mode": "chat", "max_tokens": 1000, "input_cost_per_token": 0, "output_cost_per_token": 0},
		"other": {"litellm_provider": "other", "mode": "chat", "max_tokens": 1000, "input_cost_per_token": 1, "output_cost_per_token": 1}
	}`
}

// TestCatalogImport guarantees the way of a price list into the configuration: its models are sold at its prices × currency_rate × markup,
// a later list shows its changes, and a jump changes nothing until it is accepted.
func TestCatalogImport(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	list, out := c.path("prices.json"), c.path("models.caddyfile")
	c.write("prices.json", priceList("8e-07"))
	args := []string{"catalog", "import", list, "--out", out, "--provider", "local=acme"}
	made := c.json(args...)
	require.Equal(t, "LiteLLM", made["source"])
	require.Equal(t, []any{map[string]any{"model": "acme/acme-free", "reason": "its price is missing or 0"}}, made["skipped"])
	info, err := os.Stat(out)
	require.NoError(t, err)
	require.EqualValues(t, 0o644, info.Mode().Perm())

	c.write("Caddyfile", strings.Replace(c.caddyfile(), "\t\tmodel local/echo {",
		"\t\timport "+out+"\n\t\tcurrency_rate 25000\n\t\tmarkup 1.1\n\t\tmodel local/acme-2\n\t\tmodel local/echo {", 1))
	c.json("migrate")
	org := c.newOrg("Acme")
	c.json("model", "disable", "--org", org, "local/acme-2")
	c.refused("There is no model with this id. The configuration has: local/acme-2, local/echo, openai/gpt-6-luna.", "model", "disable", "--org", org, "local/acme-free")

	same := c.run("", args...)
	require.NoError(t, same.err)
	require.Equal(t, "Skipped acme/acme-free: its price is missing or 0.\n"+out+" has 1 models of LiteLLM, with 0 changes. Import it in the svc block, "+
		"and name the models that you sell.\n", same.stdout)
	c.write("prices.json", priceList("9e-07"))
	require.Contains(t, c.run("", args...).stdout, "local/acme-2 price_input: 800000 → 900000\n")

	before, err := os.ReadFile(out)
	require.NoError(t, err)
	c.write("prices.json", priceList("9e-06"))
	c.refused("prices jump; look at them, then repeat with --accept-jumps. Nothing was written:\n  local/acme-2 price_input: 900000 → 9000000", args...)
	after, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.Contains(t, c.run("", append(args, "--accept-jumps")...).stdout, "900000 → 9000000")
}

// TestCatalogImportRefuses guarantees that bad input is named and leaves no file.
func TestCatalogImportRefuses(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	list, out := c.path("prices.json"), c.path("models.caddyfile")
	whole := priceList("8e-07")
	for _, test := range []struct {
		file, want string
		args       []string
	}{
		{whole, "name a file to write with --out", []string{"--provider", "acme"}},
		{whole, "at least one --provider", []string{"--out", out}},
		{whole, `has no vendor "emca"; it has: acme, other`, []string{"--out", out, "--provider", "emca"}},
		{whole, "has no such model with a price. Skipped: acme/acme-free: its price is missing or 0", []string{"--out", out, "--provider", "acme", "acme-f*"}},
		{whole, "has no such model with a price. Skipped: none", []string{"--out", out, "--provider", "acme", "x*"}},
		{whole, "has no such model with a price. Skipped: other/other: its price input_cost_per_token is absurdly large", []string{"--out", out, "--provider", "other"}},
		{whole, `the pattern "[": syntax error in pattern`, []string{"--out", out, "--provider", "acme", "["}},
		{whole[:200], "the file is cut off; download it again", []string{"--out", out, "--provider", "acme"}},
		{"<html>", "is neither LiteLLM's model_prices_and_context_window.json nor models.dev's api.json", []string{"--out", out, "--provider", "acme"}},
		{whole, "wasn't written by this command, so it isn't replaced", []string{"--out", c.path("Caddyfile"), "--provider", "acme"}},
		{whole, "no such file or directory", []string{"--out", c.path("no/models"), "--provider", "acme"}},
	} {
		c.write("prices.json", test.file)
		c.refused(test.want, append([]string{"catalog", "import", list}, test.args...)...)
	}
	c.refused("reading the price list: open", "catalog", "import", c.path("none"), "--out", out, "--provider", "acme")
	c.refused("requires at least 1 arg", "catalog", "import")
	left, err := filepath.Glob(c.path(".catalog-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoFileExists(t, out)
	require.Contains(t, c.caddyfile(), "svc {")
}
