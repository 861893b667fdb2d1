#!/usr/bin/env bash
# Prints a Caddyfile with the vendors of `caddy svc init` whose key is in the environment, such as OPENAI_API_KEY, added to its
# svc block. Without any it prints the file as it is.
set -euo pipefail

vendors=()
for file in "$(dirname "$0")"/../caddymodule/command/vendors/*.caddyfile; do
	variable=$(sed -n 's/.*{env\.\([A-Z_]*\)}.*/\1/p' "$file")
	if [ -n "$variable" ] && [ -n "${!variable:-}" ]; then vendors+=("$file"); fi
done
while IFS= read -r line; do
	printf '%s\n' "$line"
	if [ "$line" = $'\tsvc {' ] && [ ${#vendors[@]} -gt 0 ]; then sed 's/^/\t\t/' "${vendors[@]}"; fi
done <"$1"
