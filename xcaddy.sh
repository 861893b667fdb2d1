#!/usr/bin/env bash
# Builds the custom Caddy into dist/caddy, and the companion worker into dist/svc-worker:
#
#     ./xcaddy.sh                          dist/caddy, dist/svc-worker
#     XCADDY_RACE_DETECTOR=1 ./xcaddy.sh   the same with the race detector: dist/caddy-race, dist/svc-worker-race
#     XCADDY_FAILPOINTS=1 ./xcaddy.sh      the same for crash tests: dist/caddy-crash, dist/svc-worker-crash, which kill
#                                          themselves where SVC_FAILPOINT says (internal/failpoint); nothing to deploy
#     XCADDY_GUEST=1 ./xcaddy.sh           with the modules of tests/guest, for tests: dist/caddy-guest
#
# The race detector can be combined with either: dist/caddy-crash-race, dist/svc-worker-crash-race, dist/caddy-guest-race.
# A build whose inputs didn't change since the last one is skipped. Further plugins: call xcaddy yourself with this
# module and theirs (docs/extending.md), `xcaddy build VERSION --with github.com/caddy-svc/caddy-svc --with THEIRS`, as the
# last one does. The others are cmd/caddy, the same Caddy without xcaddy's module around it: that would be tidied, which
# downloads what the tests of all dependencies need.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=scripts/go.sh
. scripts/go.sh
need go flock sha256sum

CADDY_VERSION=$(go list -m -f '{{.Version}}' github.com/caddyserver/caddy/v2) # the one the tests are run with
MODULE=github.com/caddy-svc/caddy-svc

# Without C, as releases are; only the race detector needs it.
export CGO_ENABLED=0
variant='' link='' build=() guest=()
if [ "${XCADDY_GUEST:-}" = 1 ]; then
	variant=-guest
	guest=(--with "example.org/guest@v0.0.0=$PWD/tests/guest")
elif [ "${XCADDY_FAILPOINTS:-}" = 1 ]; then
	variant=-crash
	link=" -X $MODULE/internal/failpoint.build=crash"
fi
if [ "${XCADDY_RACE_DETECTOR:-}" = 1 ]; then
	variant=$variant-race
	build+=(-race "${UNWATCHED[@]}")
	CGO_ENABLED=1
fi
# Builds for tests have the version "devel", so that not every commit makes them anew, and share compiled packages with the tests.
version=
if [ -z "$variant" ]; then
	version=$(scripts/version.sh)
	build+=(-trimpath)
fi
out=dist/caddy$variant worker=dist/svc-worker$variant
stamp=dist/.built$variant

# Everything a build can read: Go files without tests, what is embedded beside them, the module files, this script.
inputs() {
	find . \( -name .git -o -name node_modules -o -name testdata -o -path ./dist -o -path ./data \
		-o -path ./tests -o -path ./tools -o -path ./.ci \) -prune -o \
		-type f \( -path './*/*' -o -name '*.go' -o -name go.mod -o -name go.sum -o -name xcaddy.sh \) \
		! -name '*_test.go' ! -name '*.png' ! -name '.*' -print0 |
		LC_ALL=C sort -z | xargs -0 sha256sum
	[ ${#guest[@]} = 0 ] || find tests/guest -name '*.go' ! -name '*_test.go' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
	go version
	echo "$version"
}

# One line while packages are compiled: hundreds of them the first time, which takes some minutes.
progress() {
	local line packages=0
	while IFS= read -r line; do
		case $line in
		*'[INFO] exec'*'go get'*) echo "xcaddy: resolving modules" ;;
		*'[INFO] exec'*'mod tidy'*) echo "xcaddy: tidying" ;;
		'go: downloading '*) echo "${line#go: }" ;;
		*'[INFO]'* | 'go: added '* | 'go: upgraded '* | 'go: accepting '* | 'go: creating '* | 'go: to add '* | 'go: finding '* | 'package main'* | *" version" | "$CADDY_VERSION "* | '' | [[:space:]]* | ')' | '}' | 'import ('* | 'func main'*) ;;
		*[!A-Za-z0-9._/~-]*) echo "$line" ;; # a compiler's message
		*)
			packages=$((packages + 1))
			if [ $((packages % 50)) = 0 ]; then echo "$packages packages compiled, now $line"; fi
			;;
		esac
	done
}

mkdir -p dist
exec 9>dist/.lock$variant
flock 9 # of two builds at once the second finds the first one's result
now=$(inputs | sha256sum)
if [ -x "$out" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$now" ]; then
	echo "$out is up to date" >&2
	exit 0
fi
rm -f "$stamp"

echo "building $out (Caddy $CADDY_VERSION with this module; the first build takes some minutes)" >&2
rm -rf "$out.new"
if [ ${#guest[@]} = 0 ]; then
	# Both at once: they share all packages but their own.
	fast go build -v "${build[@]}" -ldflags "-w -s -X $MODULE/caddymodule.version=$version$link" -o "$out.new/" ./cmd/caddy ./cmd/svc-worker 2>&1 | progress >&2
	mv "$out.new/caddy" "$out"
	mv "$out.new/svc-worker" "$worker"
	rmdir "$out.new"
else # the worker of its own has no guests
	# The version v0.0.0 keeps `go get` from asking the network for the module's versions; -v feeds progress.
	# xcaddy's own flags would add -trimpath, with which our packages are compiled once more.
	xcaddy=$(fast go tool -n xcaddy)
	XCADDY_GO_BUILD_FLAGS="-ldflags '-w -s' ${build[*]@Q}" GOFLAGS="$GOFLAGS -v" fast "$xcaddy" build "$CADDY_VERSION" --with "$MODULE@v0.0.0=$PWD" "${guest[@]}" --output "$out.new" 2>&1 | progress >&2
	mv "$out.new" "$out"
fi
echo "$now" >"$stamp"
