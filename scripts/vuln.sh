#!/usr/bin/env bash
# Known vulnerabilities in the Go modules and npm packages we use. Needs the internet (vuln.go.dev, the npm registry).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go npm
go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...
npm audit --prefix tests/clients
