# Sourced by scripts in which one thing waits for the network or for one core while another compiles.
# shellcheck shell=bash

declare -A beside_pids=()
beside_logs=$(mktemp -d "${TMPDIR:-/tmp}/svc-beside.XXXXXXXX")
trap 'beside_end' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# beside NAME CMD…: runs CMD while the script goes on. Its output is kept for joined.
beside() {
	local name=$1
	shift
	step "beside: $name"
	set -m # a process group of its own, so that all that CMD starts can be ended
	"$@" </dev/null >"$beside_logs/$name" 2>&1 &
	beside_pids[$name]=$!
	set +m
}

# joined NAME: prints what NAME has said and what it still says until it ends. Its failure is the script's.
joined() {
	local pid=${beside_pids[$1]} status=0
	step "$1: what ran beside"
	tail -n +1 -s 0.2 -f --pid="$pid" "$beside_logs/$1" >&2
	wait "$pid" || status=$?
	unset "beside_pids[$1]"
	[ "$status" = 0 ] || printf '%s: failed (its output is above)\n' "$1" >&2
	return "$status"
}

beside_end() { # ends what nobody joined, because the script failed or was interrupted
	local pid
	for pid in "${beside_pids[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
	rm -rf "$beside_logs"
}
