#!/usr/bin/env bash
# The long forms of the tests (SVC_SOAK=1: more rounds, more processes, more kills), then each fuzz target for FUZZTIME.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go git node npm

. scripts/beside.sh
. scripts/parts.sh

step "soak: tests"
SVC_SOAK=1 SVC_POSTGRES_FSYNC=off scripts/services.sh go test -race -shuffle=on -count=1 -timeout=4h ./...

grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u | while read -r package; do
	for target in $(grep -h --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | cut -d' ' -f2); do
		step "soak: $package $target"
		go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-5m}" "$package"
	done
done
step "soak: done"
