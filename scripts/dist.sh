#!/usr/bin/env bash
# Makes the packages of a release of the present commit in dist/release: archives for Linux and macOS, a Debian package and
# an image for Linux, SBOMs and checksums (packaging/pack). The same commit and the same Go make the same bytes, in any folder:
#
#     scripts/dist.sh                    # in dist/release, which is made anew
#     scripts/dist.sh twice              # then once more in a fresh clone with an empty build cache, and compares
#
# The version is that of scripts/version.sh. docs/releasing.md says how to release.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go git

if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	echo "dist: there are changes that are in no commit; a release is made of a commit" >&2
	exit 1
fi
commit=$(git rev-parse HEAD)
time=$(git show --no-patch --format=%ct HEAD)
version=$(scripts/version.sh)

out=$PWD/dist/release
rm -rf "$out" dist/targets
mkdir -p dist/targets
# Without what the tests need: flags for the race detector. All that makes a difference to the program is fixed here.
export GOFLAGS="-trimpath -buildvcs=false $TAGS"
for target in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64; do
	step "dist: caddy for $target"
	CGO_ENABLED=0 GOOS=${target%-*} GOARCH=${target#*-} GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' \
		go build -ldflags "-s -w -buildid= -X github.com/caddy-svc/caddy-svc/caddymodule.version=$version" -o "dist/targets/caddy-$target" ./cmd/caddy
done
step "dist: packages of $version"
go -C packaging run ./pack -version "$version" -maintainer "$(git show --no-patch --format='%an <%ae>' HEAD)" -time "$time" -root .. -binaries ../dist/targets -out "$out"
[ "${1:-}" = twice ] || exit 0

step "dist: once more, in a clone with an empty build cache"
clone=$(mktemp -d "${TMPDIR:-/tmp}/svc-dist.XXXXXXXX")
trap 'rm -rf "$clone"' EXIT
git clone --quiet . "$clone/again"
git -C "$clone/again" checkout --quiet --detach "$commit"
GOCACHE=$clone/cache "$clone/again/scripts/dist.sh"
diff "$out/SHA256SUMS" "$clone/again/dist/release/SHA256SUMS" || {
	echo "dist: the second build has other bytes" >&2
	exit 1
}
step "dist: both builds have the same bytes"
