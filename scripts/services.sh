#!/usr/bin/env bash
# Runs a command beside a private PostgreSQL and a private Redis:
#
#     scripts/services.sh CMD ARGS…
#
# CMD sees SVC_TEST_POSTGRES (a superuser's DSN) and SVC_TEST_REDIS. Both servers live in a temporary folder of their own,
# on free ports of 127.0.0.1 with random passwords, and end with CMD, whose exit status is returned. A server whose
# variable is set already is not started. SVC_TEST_PGBOUNCER is the path of PgBouncer's program, which the tests that need
# one start themselves. SVC_POSTGRES_FSYNC=off lets PostgreSQL's commits not wait for the disk: fine for tests, which cut no
# power, and wrong for measurements. What is missing is installed from Debian's packages when we are root; otherwise it is
# named. CMD runs in a process group of its own; don't give it a program that asks questions on the terminal.
set -euo pipefail
(: {probe}<&0) 2>/dev/null || exec </dev/null # CI may close standard input

say() { printf 'services: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[ $# -gt 0 ] || die "usage: scripts/services.sh CMD ARGS…"

want_postgres=1 want_redis=1 want_pgbouncer=1
[ -z "${SVC_TEST_POSTGRES:-}" ] || want_postgres=
[ -z "${SVC_TEST_REDIS:-}" ] || want_redis=
[ -z "${SVC_TEST_PGBOUNCER:-}" ] || want_pgbouncer=
[ -n "$want_postgres$want_redis$want_pgbouncer" ] || exec "$@"

# --- what is needed on this machine ------------------------------------------------------------------------------

postgres_bin() { # prints the folder of the newest PostgreSQL server's programs
	local found
	found=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1 || true)
	if [ -n "$found" ] && [ -x "$found/initdb" ]; then
		echo "$found"
	elif command -v initdb >/dev/null && command -v postgres >/dev/null; then
		dirname "$(command -v initdb)"
	fi
}

pgbouncer_program() { PATH=$PATH:/usr/sbin command -v pgbouncer || true; }

missing() { # prints the Debian packages that are wanted and not there
	if [ -n "$want_postgres" ] && [ -z "$(postgres_bin)" ]; then echo postgresql; fi
	if [ -n "$want_redis" ] && ! command -v redis-server >/dev/null; then echo redis-server; fi
	if [ -n "$want_pgbouncer" ] && [ -z "$(pgbouncer_program)" ]; then echo pgbouncer; fi
}

# shellcheck source=scripts/packages.sh
. "$(dirname "$0")/packages.sh"

# --- the supervisor: parent of both servers, ends them when our end of its pipe closes, however we ended ---------

as() { # as USER CMD…: as that user when we are root, else as ourselves; the process ends with its parent
	local user=$1
	shift
	local drop=()
	if [ "$(id -u)" = 0 ]; then drop=(--reuid="$user" --regid="$user" --init-groups); fi
	exec setsid setpriv "${drop[@]}" --pdeathsig INT -- "$@"
}

own() { [ "$(id -u)" != 0 ] || chown -R "$1" "$2"; }

free_port() { echo $((10000 + (RANDOM * 32768 + RANDOM) % 22000)); } # below the range that outgoing connections use

answers() { # answers PID CMD…: waits until CMD succeeds; fails when the process ends first or a minute passes
	local pid=$1 tries=0
	shift
	until "$@" >/dev/null 2>&1; do
		kill -0 "$pid" 2>/dev/null || return 1
		tries=$((tries + 1))
		[ "$tries" -lt 600 ] || return 1
		sleep 0.1
	done
	kill -0 "$pid" 2>/dev/null # else it was somebody else's server that answered
}

start_postgres() {
	local bin password=$1 port
	bin=$(postgres_bin)
	mkdir -m 700 "$dir/postgres"
	printf '%s\n' "$password" >"$dir/postgres/password"
	own postgres "$dir/postgres"
	# A language's collation, not C: an ORDER BY that the code also does byte by byte shows here.
	(as postgres "$bin/initdb" -D "$dir/postgres/data" -U postgres -A md5 --pwfile="$dir/postgres/password" \
		-E UTF8 --locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US --no-sync >"$dir/postgres.log" 2>&1) || return 1
	for _ in 1 2 3 4 5; do
		port=$(free_port)
		(as postgres "$bin/postgres" -D "$dir/postgres/data" -p "$port" -k "$dir/postgres" \
			-c listen_addresses=127.0.0.1 -c max_connections=300 -c shared_buffers=128MB -c fsync="${SVC_POSTGRES_FSYNC:-on}" \
			-c max_wal_size=2GB -c checkpoint_timeout=30min -c jit=off >>"$dir/postgres.log" 2>&1) &
		postgres_pid=$!
		if answers "$postgres_pid" "$bin/pg_isready" -q -h 127.0.0.1 -p "$port" -U postgres; then
			echo "export SVC_TEST_POSTGRES='postgres://postgres:$password@127.0.0.1:$port/postgres?sslmode=disable'" >>"$dir/env"
			return 0
		fi
		kill -INT "$postgres_pid" 2>/dev/null || true
	done
	return 1
}

start_redis() {
	local password=$1 port user=redis
	id -u redis >/dev/null 2>&1 || user=nobody
	mkdir -m 700 "$dir/redis"
	own "$user" "$dir/redis"
	for _ in 1 2 3 4 5; do
		port=$(free_port)
		(as "$user" redis-server --port "$port" --bind 127.0.0.1 --requirepass "$password" \
			--dir "$dir/redis" --save '' --appendonly no --daemonize no >>"$dir/redis.log" 2>&1) &
		redis_pid=$!
		if answers "$redis_pid" redis-cli -h 127.0.0.1 -p "$port" -a "$password" --no-auth-warning --no-raw PING; then
			echo "export SVC_TEST_REDIS='redis://default:$password@127.0.0.1:$port/0'" >>"$dir/env"
			return 0
		fi
		kill -TERM "$redis_pid" 2>/dev/null || true
	done
	return 1
}

gone() { # gone PID SIGNAL: asks, waits 10 s, then kills
	local pid=$1 tries=0
	[ -n "$pid" ] || return 0
	kill "-$2" "$pid" 2>/dev/null || return 0
	while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	kill -KILL "$pid" 2>/dev/null || true
}

supervise() {
	trap '' INT TERM HUP PIPE
	set +e
	local verdict=ready secret
	postgres_pid='' redis_pid=''
	cd / # not in a folder that somebody may want to remove
	secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	: >"$dir/env"
	if [ -n "$want_postgres" ] && ! start_postgres "$secret"; then verdict=postgres; fi
	if [ -n "$want_redis" ] && [ $verdict = ready ] && ! start_redis "$secret"; then verdict=redis; fi
	echo $verdict >"$dir/verdict.new"
	mv "$dir/verdict.new" "$dir/verdict"
	cat >/dev/null # until nobody holds the other end
	if [ -s "$dir/command" ]; then kill -KILL -- "-$(cat "$dir/command")" 2>/dev/null; fi
	# The data is thrown away: an immediate shutdown is enough.
	gone "$postgres_pid" QUIT
	gone "$redis_pid" TERM
	wait
	rm -rf "$dir"
}

# --- the run -----------------------------------------------------------------------------------------------------

install_missing
packages=$(missing | xargs)
[ -z "$packages" ] ||
	die "not installed on this machine: $packages. Install them (Debian: apt-get install $packages), or set SVC_TEST_POSTGRES and SVC_TEST_REDIS to servers of your own and SVC_TEST_PGBOUNCER to the program."
[ -z "$want_pgbouncer" ] || export SVC_TEST_PGBOUNCER="$(pgbouncer_program)"
dir=$(mktemp -d "${TMPDIR:-/tmp}/svc-services.XXXXXXXX")
chmod 711 "$dir" # the servers' users pass through to folders of their own

exec {guard}> >(supervise)
supervisor=$!

command_pid=''
finish() {
	trap '' INT TERM HUP
	if [ -n "$command_pid" ]; then kill -TERM -- "-$command_pid" 2>/dev/null || true; fi
	exec {guard}>&-
	wait "$supervisor" 2>/dev/null || true
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

until [ -e "$dir/verdict" ]; do
	kill -0 "$supervisor" 2>/dev/null || die "the supervisor of the servers ended early"
	sleep 0.05
done
verdict=$(cat "$dir/verdict")
if [ "$verdict" != ready ]; then
	tail -n 30 "$dir/$verdict.log" >&2 || true
	die "$verdict did not start (its log is above)"
fi
# shellcheck disable=SC1091
. "$dir/env"

set -m # a group of its own for CMD, so that all it started can be ended at once
"$@" <&0 {guard}>&- &
command_pid=$!
set +m
echo "$command_pid" >"$dir/command"

pass_on() { # CMD decides what the signal means
	signalled=1
	kill "-$1" -- "-$command_pid" 2>/dev/null || true
}
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM HUP
while :; do
	signalled='' status=0
	wait "$command_pid" || status=$?
	[ -n "$signalled" ] || break # else the signal ended the wait, not CMD
done
command_pid=''
: >"$dir/command"
exit "$status"
