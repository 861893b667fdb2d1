#!/usr/bin/env bash
# Everything CI runs. Packages to test may be given (default ./...); lint and builds are done in any case.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go git node npm
[ $# -gt 0 ] || set -- ./...

scripts/lint.sh

rm -rf dist/screenshots
. scripts/parts.sh

# What the tests write is thrown away: where memory has room for it, nobody waits for the disk.
room=$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1 || true)
if [ "${room:-0}" -ge 8 ]; then
	scratch=$(mktemp -d /dev/shm/svc-test.XXXXXXXX)
	trap 'rm -rf "$scratch" || true' EXIT
	chmod 711 "$scratch" # the servers' users pass through to folders of their own
	export GOTMPDIR=${TMPDIR:-/tmp} TMPDIR=$scratch
fi

step "test: go test -race $*"
# One line per package as it ends; the full output of what fails; then the count.
scripts/services.sh go test -race -shuffle=on -count=1 -timeout=30m "$@" 2>&1 |
	awk '{ print; fflush() }
		/^ok / { passed++ }
		/^FAIL\t/ { failed++ }
		END { printf "packages: %d passed, %d failed\n", passed, failed }'
step "test: done"
