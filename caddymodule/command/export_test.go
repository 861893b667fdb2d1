package command

import (
	"io/fs"

	"github.com/spf13/cobra"
)

// InitCommand is `caddy svc init` for other vendors than the built-in ones.
func InitCommand(vendors fs.FS) *cobra.Command {
	flags := new(commandFlags)
	command := flags.initCommand(vendors)
	flags.configFlags(command)
	command.PersistentFlags().BoolVar(&flags.json, "json", false, "")
	return command
}

// BuiltInVendors are the vendors of init.
func BuiltInVendors() fs.FS { return builtInVendors() }
