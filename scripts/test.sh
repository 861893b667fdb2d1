#!/usr/bin/env bash
# Everything CI runs. Packages to test may be given (default ./...); lint and builds are done in any case.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go git node npm
[ $# -gt 0 ] || set -- ./...

scripts/lint.sh

step "test: npm packages of the official clients, and the accessibility rules"
npm ci --prefix tests/clients --no-audit --no-fund --loglevel=error
npm ci --prefix tests/browser --no-audit --no-fund --loglevel=error
step "test: Chromium, for the pages"
chromium=$(scripts/chromium.sh)
rm -rf dist/screenshots

step "test: the binary, with the race detector"
XCADDY_RACE_DETECTOR=1 ./xcaddy.sh
step "test: the binary with failpoints, for crash tests"
XCADDY_RACE_DETECTOR=1 XCADDY_FAILPOINTS=1 ./xcaddy.sh

step "test: toxiproxy, the bad network of the fault tests"
go build -modfile=tools/go.mod -o dist/toxiproxy github.com/Shopify/toxiproxy/v2/cmd/server

step "test: go test -race $*"
# One line per package as it ends; the full output of what fails; then the count.
SVC_CADDY=$PWD/dist/caddy-race SVC_CADDY_CRASH=$PWD/dist/caddy-crash-race SVC_TOXIPROXY=$PWD/dist/toxiproxy \
	SVC_CHROMIUM=$chromium \
	scripts/services.sh go test -race -shuffle=on -count=1 -timeout=20m "$@" 2>&1 |
	awk '{ print; fflush() }
		/^ok / { passed++ }
		/^FAIL\t/ { failed++ }
		END { printf "packages: %d passed, %d failed\n", passed, failed }'
step "test: done"
