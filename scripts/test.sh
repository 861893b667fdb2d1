#!/usr/bin/env bash
# Everything CI runs. Packages to test may be given (default ./...); lint and builds are done in any case.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go git node npm
[ $# -gt 0 ] || set -- ./tests ./... # the longest first: what others leave of two cores is then used to the end
. scripts/beside.sh

# Tests make and drop hundreds of databases, of hundreds of files each: in memory that takes two fifths less processor time.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "$(df --output=avail /dev/shm | tail -n 1)" -ge $((8 << 20)) ] &&
	! findmnt -n -o OPTIONS /dev/shm | grep -qw noexec; then
	export TMPDIR=/dev/shm
fi

rm -rf dist/screenshots # before anything walks through the folders
# The linter's own build shares no package with what is built for the race detector, and the modules' check mostly waits.
beside modules scripts/modules.sh
beside tools scripts/lint.sh tools
. scripts/parts.sh
joined modules
joined tools

# These modules of their own use one core: the packages are compressed for a minute.
guests_and_packages() {
	step "test: the guests' own"
	go -C tests/guest test -race "${UNWATCHED[@]}" -vet=off -count=1 ./... || return
	step "test: the packages of a release, with the binary of the other tests"
	go -C packaging test -vet=off -count=1 ./...
}
beside guests guests_and_packages
scripts/lint.sh
joined guests

step "test: go test -race $*"
# One line per package as it ends; the full output of what fails; then the count.
# The detector would let each process sleep for a second before it ends.
GORACE=atexit_sleep_ms=50 SVC_POSTGRES_FSYNC=off fast scripts/services.sh go test -exec "env -u GOGC" -race "${UNWATCHED[@]}" -vet=off -shuffle=on -count=1 -timeout=30m "$@" 2>&1 |
	{
		passed=0 failed=0
		while IFS= read -r line; do # awk would wait for a full buffer
			printf '%s\n' "$line"
			case $line in
			'ok '*) passed=$((passed + 1)) ;;
			FAIL$'\t'*) failed=$((failed + 1)) ;;
			esac
		done
		printf 'packages: %d passed, %d failed\n' "$passed" "$failed"
	}
step "test: done"
