// Package caddymodule is the Caddy shell of the gateway: the app `svc` with its JSON form and its block in the Caddyfile, the
// HTTP handlers with their directives, the worker's app, metrics, and the code that builds the plain packages out of a
// configuration. Only this package, its folders and the main packages import Caddy.
//
// It decides nothing about requests, money or keys: those rules are in handlers, billing and internal/*, which are tested
// without Caddy.
//
// Invariants:
//   - A configuration comes as a Caddyfile or as JSON; [App.faults] checks both. The Caddyfile reader adds file and line,
//     nothing else.
//   - All faults of the svc block are reported together, each with what is allowed.
//   - Exported fields hold placeholders of secrets. Provision resolves them into unexported fields, and no message quotes
//     the text in a secret's place.
//   - Provision opens no store and makes no connection, so `caddy validate` doesn't either.
package caddymodule
