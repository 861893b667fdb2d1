// Package config has what every part of the configuration needs, in JSON and in the Caddyfile: faults that are collected
// by path and reported together, and references to secrets. The settings themselves are the exported structs of package
// caddymodule.
package config
