// Package caddymodule is the Caddy shell of the product, and the only package that imports Caddy (design §2).
//
// What belongs here: the app module svc with its JSON form and its global Caddyfile block, one file for each
// directive, the command line, the metrics, and the wiring that makes the plain packages out of a configuration.
//
// Invariants:
//   - A configuration has two entrances, Caddyfile and JSON, and one judge: [App.faults]. The Caddyfile entrance adds
//     file and line, nothing else.
//   - All faults of the svc block are reported together, each with what is allowed (design §4 "Faults together").
//   - Secrets stay placeholders in every exported field; they are resolved by Provision into unexported ones, and no
//     message quotes what stood in a secret's place.
//   - Provision opens no store and dials nobody, so `caddy validate` doesn't either.
//
// What it does not do: it decides nothing about requests, money or keys. Those rules live in handlers, billing and
// internal/*, which test without Caddy.
package caddymodule
