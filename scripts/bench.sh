#!/usr/bin/env bash
# Measures the built binary (without the race detector) against reverse_proxy in the same binary and prints ratios.
# Arguments go to the bench: scripts/bench.sh -only stream -rounds 3
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go
./xcaddy.sh
exec go run ./tests/bench -caddy dist/caddy "$@"
