#!/usr/bin/env bash
# Known vulnerabilities in the Go modules and npm packages we use. Needs the internet (vuln.go.dev, the npm registry).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go npm
for module in . packaging; do
	go -C "$module" run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...
done
npm audit --prefix tests/clients
