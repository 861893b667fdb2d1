#!/usr/bin/env bash
# Checks all modules, ours and those of the tools, the packages, the guests and the generated client: go.mod and go.sum are
# tidy, and what was downloaded is what go.sum says. Changes nothing; needs the module proxy for what isn't on this machine yet.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go

failed=
for module in . tools packaging tests/guest tests/clients/oapi; do
	step "modules: $module/go.mod"
	if ! difference=$(cd "$module" && go mod tidy -diff 2>&1); then
		failed=1
		# Without go.sum's hundreds of lines, unless that is all there is.
		printf '%s\n' "$difference" | grep -v '^go: downloading ' | head -n 40 >&2
		printf '\nmodules: %s/go.mod or go.sum is not tidy, or could not be checked (above). Put it in order: (cd %s && go mod tidy)\n' "$module" "$module" >&2
	fi
	if ! (cd "$module" && go mod verify >&2); then
		failed=1
		printf '\nmodules: what lies in the module cache is not what %s/go.sum names (above). If this machine is to blame: go clean -modcache. If not, find out who changed the module before anything is built with it.\n' "$module" >&2
	fi
done
[ -z "$failed" ]
