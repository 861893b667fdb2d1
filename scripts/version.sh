#!/usr/bin/env bash
# Prints the version of the present commit: its tag v…, else v0.0.0-git.TIME.gCOMMIT. With changes that are in no commit it ends with
# "-dirty"; outside of a Git repository it is empty.
set -euo pipefail
cd "$(dirname "$0")/.."
git rev-parse --quiet --verify HEAD >/dev/null 2>&1 || exit 0
version=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null) || {
	commit=$(git rev-parse HEAD)
	version=v0.0.0-git.$(TZ=UTC git show --no-patch --date=format-local:%Y%m%d%H%M%S --format=%cd HEAD).g${commit:0:12}
}
[ -z "$(git status --porcelain --untracked-files=no)" ] || version=$version-dirty
echo "$version"
