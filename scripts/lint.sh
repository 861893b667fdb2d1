#!/usr/bin/env bash
# Formatting and golangci-lint, which has go vet's analyzers, over the product, packaging/ and tests/guest, the systemd units, and Prometheus' rules. Changes nothing.
# `scripts/lint.sh tools` only installs and builds what that needs.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go git

step "lint: building the tools (tools/go.mod; some minutes the first time)"
linter=$(fast go tool -modfile=tools/go.mod -n golangci-lint)

step "lint: systemd units"
scripts/units.sh

step "lint: Prometheus' rules and Grafana's board"
scripts/promtool.sh
[ "${1:-}" != tools ] || exit 0

step "lint: gofmt, on files for every system"
# golangci-lint's own formatters, which are stricter, see this system's files.
unformatted=$(git ls-files -z -co --exclude-standard -- '*.go' | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'not formatted (make fmt):\n%s\n' "$unformatted" >&2
	exit 1
fi

step "lint: packaging (a module of its own, whose tests have no race detector)"
(cd packaging && fast "$linter" run ./...)

# With the race detector's flag, so that the dependencies are compiled once for lint and tests.
export GOFLAGS="$GOFLAGS ${UNWATCHED[*]@Q} -race"
step "lint: golangci-lint, with go vet's analyzers (compiles what tests depend on the first time)"
fast "$linter" run ./...
(cd tests/guest && fast "$linter" run ./...)
