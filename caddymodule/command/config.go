package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/caddymodule"
)

const defaultConfig = "./Caddyfile"

// commandFlags are the flags that all commands share.
type commandFlags struct {
	config, adapter string
	envFiles        []string
	json            bool
}

// app reads the svc app of the configuration. The adapter's warnings are left to the server.
func (f *commandFlags) app() (*caddymodule.App, error) {
	adapted, err := f.read()
	if err != nil {
		return nil, err
	}
	return caddymodule.ReadApp(adapted, f.config)
}

// configFlags adds the flags that name the configuration to a command and those below it.
func (f *commandFlags) configFlags(command *cobra.Command) {
	flags := command.PersistentFlags()
	flags.StringVarP(&f.config, "config", "c", defaultConfig, "configuration `file` of the server")
	flags.StringVarP(&f.adapter, "adapter", "a", "", "config adapter `name`, if it doesn't follow from the file's name")
	flags.StringSliceVar(&f.envFiles, "envfile", nil, "environment `file`(s) to load; variables that are set already keep their values")
}

// read loads the environment files and returns the whole configuration in Caddy's JSON form.
func (f *commandFlags) read() ([]byte, error) {
	for _, file := range f.envFiles {
		if err := loadEnvFile(file); err != nil {
			return nil, err
		}
	}
	return f.adapt()
}

// adapt returns the configuration file in Caddy's JSON form.
func (f *commandFlags) adapt() ([]byte, error) {
	text, err := os.ReadFile(f.config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no configuration %s; name it with --config", f.config)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	name := f.adapterName()
	if name == "" {
		if !json.Valid(text) {
			return nil, fmt.Errorf("%s is not valid JSON; if it is in another format, name its --adapter, e.g. caddyfile", f.config)
		}
		return text, nil
	}
	adapter := caddyconfig.GetAdapter(name)
	if adapter == nil {
		return nil, fmt.Errorf("there is no config adapter %q in this build", name)
	}
	adapted, _, err := adapter.Adapt(text, map[string]any{"filename": f.config})
	if err != nil {
		return nil, fmt.Errorf("adapting %s: %w", f.config, err)
	}
	return adapted, nil
}

// adapterName returns the adapter that `caddy run` would use for the same flags. It is empty for JSON.
func (f *commandFlags) adapterName() string {
	base := strings.ToLower(filepath.Base(f.config))
	switch {
	case f.adapter != "":
		return f.adapter
	case strings.HasSuffix(base, ".json"):
		return ""
	case strings.HasPrefix(base, "caddyfile"), strings.HasSuffix(base, ".caddyfile"):
		return "caddyfile"
	default:
		return ""
	}
}

// loadEnvFile sets the variables of an environment file, as `caddy run --envfile` does: lines of KEY=VALUE, an
// optional `export ` before, values optionally in quotes and then over several lines, `#` comments. A variable that is set
// already keeps its value. Errors name the line and never show a value.
func loadEnvFile(path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("reading the environment file: %w", err)
	}
	variables, err := parseEnvFile(string(text))
	if err != nil {
		return fmt.Errorf("environment file %s: %w", path, err)
	}
	for name, value := range variables {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("environment file %s: setting %s: %w", path, name, err)
		}
	}
	return nil
}

func parseEnvFile(text string) (map[string]string, error) {
	variables := map[string]string{}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name = strings.TrimPrefix(name, "export ")
		switch {
		case !found:
			return nil, fmt.Errorf("line %d is not KEY=VALUE", i+1)
		case name == "" || strings.ContainsAny(name, " \t"):
			return nil, fmt.Errorf("line %d: the name is empty or has a space", i+1)
		case strings.HasPrefix(value, " ") || strings.HasPrefix(value, "\t"):
			return nil, fmt.Errorf("line %d: there is a space before the value", i+1)
		}
		// Caddy ends a value at the first #, even inside quotes. The server must read the same value.
		if before, _, comment := strings.Cut(value, "#"); comment {
			value = strings.TrimRight(before, " \t")
		}
		if value != "" && (value[0] == '"' || value[0] == '\'') {
			value, i = quotedValue(value, lines, i)
		}
		variables[name] = value
	}
	return variables, nil
}

// quotedValue returns the value that begins with a quote on line i, and the line on which it ends.
func quotedValue(value string, lines []string, i int) (string, int) {
	quote := value[:1]
	ends := func(line string) bool { return strings.HasSuffix(line, quote) && !strings.HasSuffix(line, `\`+quote) }
	last := i
	if !ends(strings.TrimSpace(lines[i])) && (len(value) == 1 || !ends(value)) {
		for last+1 < len(lines) {
			last++
			if ends(lines[last]) {
				break
			}
		}
	}
	value = strings.Join(append([]string{value}, lines[i+1:last+1]...), "\n")
	value = strings.TrimSuffix(strings.TrimPrefix(value, quote), quote)
	return strings.ReplaceAll(value, `\`+quote, quote), last
}
