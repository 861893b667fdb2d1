#!/usr/bin/env bash
# The long forms of the tests (SVC_SOAK=1: more rounds, more processes, more kills), then the operator's operations over 5 million calls, then
# a simulated week of fifty tenants without the
# race detector, with which it takes hours, then the packages of a release, which two builds must make alike, then the attacks on the
# binary without the race detector, which multiplies times and memory (scripts/bench.sh -only abuse), then each fuzz target for FUZZTIME.
# Arguments are packages: then only their fuzz targets run.
#
#     FUZZTIME=2s scripts/soak.sh ./verify
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh

# finds_nothing PACKAGE TARGET: fuzzes one target. An input that reaches new code is made smaller first, for up to a minute by default, in
# which nothing else is tried. At the end of its time, Go before 1.27 may fail without having found anything (golang/go#75804).
finds_nothing() {
	local output
	output=$(go test -run='^$' -fuzz="^$2\$" -fuzztime="${FUZZTIME:-5m}" -fuzzminimizetime=2s "$1" </dev/null 2>&1 | tee >(cat >&2)) && return
	[[ $output == *$'\n    context deadline exceeded\n'* && $output != *'Failing input written'* ]]
}

# fuzz PACKAGE…: runs each fuzz target of the packages. One that fails doesn't keep the others from running.
fuzz() {
	local package target targets ran=0 failed=()
	for package in "$@"; do
		targets=$(grep -h -o '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | cut -d' ' -f2) || failed+=("$package has none")
		for target in $targets; do
			step "soak: $package $target"
			ran=$((ran + 1))
			finds_nothing "$package" "$target" || failed+=("$package $target")
		done
	done
	step "soak: $ran fuzz targets, ${#failed[@]} failed"
	[ ${#failed[@]} -eq 0 ] || printf 'failed: %s\n' "${failed[@]}" >&2
	[ "$ran" -gt 0 ] && [ ${#failed[@]} -eq 0 ]
}

if [ $# -gt 0 ]; then
	need go
	fuzz "$@"
	exit
fi
need go git node npm

. scripts/beside.sh
. scripts/parts.sh

step "soak: tests"
# shellcheck disable=SC2046 # one word for each package
SVC_SOAK=1 SVC_POSTGRES_FSYNC=off scripts/services.sh go test -race "${UNWATCHED[@]}" -shuffle=on -count=1 -timeout=4h -skip '^TestAbuse$' \
	$(go list ./... | grep -v '/tests/week$')

step "soak: attacks, which take the whole machine with the race detector"
SVC_SOAK=1 SVC_POSTGRES_FSYNC=off scripts/services.sh go test -race "${UNWATCHED[@]}" -count=1 -timeout=1h -run '^TestAbuse$' ./tests

step "soak: the operator's operations over 10,000 organizations and 5 million calls"
SVC_SCALE=1 SVC_POSTGRES_FSYNC=off scripts/services.sh go test -count=1 -timeout=1h -run '^TestScale$' -v ./handlers/api

step "soak: a week of fifty tenants"
SVC_SOAK=1 go test -count=1 -timeout=4h -v ./tests/week

step "soak: the packages of a release, twice, and what they install"
scripts/dist.sh twice
SVC_DIST=$PWD/dist/release go -C packaging test -count=1 ./...

step "soak: attacks on the binary without the race detector, and more than its store can do"
scripts/bench.sh -only abuse
scripts/bench.sh -only overload

packages=$(grep -rl --include='*_test.go' --exclude-dir=node_modules '^func Fuzz' . | xargs -r -n 1 dirname | sort -u)
# shellcheck disable=SC2086 # one word for each package
fuzz $packages
step "soak: done"
