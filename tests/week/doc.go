// Package week lets a worker live through a week of a shop's life, in minutes: outages of the vendor, the platforms and the store, tokens
// that end, clocks that step, people who take over, and tenants of very different size.
//
// It runs in a bubble of package synctest, whose clock goes on when everybody waits, with the real queue, ledger, gateway, worker and
// platform adapters on SQLite. The model and the platforms' servers (package platformfake, which judges every message) are scripted.
package week
