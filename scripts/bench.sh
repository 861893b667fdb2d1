#!/usr/bin/env bash
# Measures the built binary (without the race detector) against the reverse_proxy of stock Caddy and prints ratios, on
# SQLite, PostgreSQL, and PostgreSQL with Redis, then the ledger alone on both engines, and the counting of tokens for each
# shape of text, which must be as fast for 200,000 characters as for 10,000. The servers are private
# (scripts/services.sh). Without arguments everything but growth and queues of a million is measured three times and written
# to docs/benchmarks: a page, a plot and a profile of each row. With arguments only what they ask for; -only is a part of the
# rows' names:
#
#     scripts/bench.sh -only stream -rounds 3
#     scripts/bench.sh -only stream -out docs/benchmarks
#     scripts/bench.sh -only postgres
#     scripts/bench.sh -only redis
#     scripts/bench.sh -only worker
#     scripts/bench.sh -only backlog
#     scripts/bench.sh -only "backlog, sqlite, 1 organization, 1 M"
#     scripts/bench.sh -only growth
#     scripts/bench.sh -only "growth, sqlite, 1 M"
#     scripts/bench.sh -only overload
#     scripts/bench.sh -only abuse
#     scripts/bench.sh -ledger
#     scripts/bench.sh -count
#     BENCH_GC_FLOOR=64MiB scripts/bench.sh -only "answer, C=32"
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go

ledger() { scripts/services.sh go run ./tests/bench -ledger -rounds 3 -slice 700ms "$@"; }
count() { go test -run '^$' -bench '^BenchmarkCount$' -benchtime 300ms ./internal/gateway; }
case "${1:-}" in
-count)
	count
	;;
-ledger)
	ledger "${@:2}"
	;;
*)
	./xcaddy.sh
	XCADDY_FAILPOINTS=1 ./xcaddy.sh
	CGO_ENABLED=0 go build -ldflags "-w -s" -o dist/caddy-stock ./tests/stock
	[ $# -gt 0 ] || set -- -runs 3 -out docs/benchmarks
	scripts/services.sh go run ./tests/bench -caddy dist/caddy "$@"
	[ "$*" != "-runs 3 -out docs/benchmarks" ] || {
		ledger
		count
	}
	;;
esac
