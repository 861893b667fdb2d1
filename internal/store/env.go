package store

// Env is the environment an API key works in, and so the wallet it spends (spec §5.1, design §6 "test keys").
type Env string

// The two environments, as they stand in key prefixes, columns and command line flags.
const (
	Live Env = "live"
	Test Env = "test"
)

// Valid reports whether e is one of the two environments.
func (e Env) Valid() bool { return e == Live || e == Test }
