# Sourced by the scripts that run the tests, after go.sh and beside.sh, in the project's folder: makes and installs what
# the end-to-end tests drive, and says where it is (SVC_CADDY, SVC_CADDY_CRASH, SVC_CADDY_GUEST, SVC_TOXIPROXY,
# SVC_CHROMIUM).
# shellcheck shell=bash

downloads() {
	step "npm packages of the official clients, and the accessibility rules"
	npm ci --prefix tests/clients --no-audit --no-fund --loglevel=error &&
		npm ci --prefix tests/browser --no-audit --no-fund --loglevel=error || return
	step "Chromium, for the pages"
	scripts/chromium.sh || return
	step "PostgreSQL, Redis, PgBouncer"
	scripts/services.sh true
}
beside downloads downloads

step "parts: the binary, with the race detector"
XCADDY_RACE_DETECTOR=1 ./xcaddy.sh
# It compiles only the guests; then one core is busy with linking.
beside guest env XCADDY_RACE_DETECTOR=1 XCADDY_GUEST=1 ./xcaddy.sh
step "parts: the binary with failpoints, for crash tests"
XCADDY_RACE_DETECTOR=1 XCADDY_FAILPOINTS=1 ./xcaddy.sh
SVC_CADDY=$PWD/dist/caddy-race SVC_CADDY_CRASH=$PWD/dist/caddy-crash-race SVC_CADDY_GUEST=$PWD/dist/caddy-guest-race

step "parts: toxiproxy, the bad network of the fault tests"
SVC_TOXIPROXY=$PWD/dist/toxiproxy
fast go build -modfile=tools/go.mod -o "$SVC_TOXIPROXY" github.com/Shopify/toxiproxy/v2/cmd/server

joined guest
joined downloads
SVC_CHROMIUM=$(scripts/chromium.sh)
export SVC_CADDY SVC_CADDY_CRASH SVC_CADDY_GUEST SVC_TOXIPROXY SVC_CHROMIUM
