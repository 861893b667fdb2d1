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

// adapterName returns the adapter that `caddy run` would use for the same flags, "" for JSON.
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
