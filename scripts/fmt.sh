#!/usr/bin/env bash
# Formats all Go files as scripts/lint.sh wants them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go
exec go tool -modfile=tools/go.mod golangci-lint fmt ./...
