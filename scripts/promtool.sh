#!/usr/bin/env bash
# Checks Prometheus' rules, their tests, and the expressions of Grafana's board with promtool:
#
#     scripts/promtool.sh
#
# promtool is SVC_PROMTOOL if that is set, else the one on this machine, else the one of Debian's package prometheus, which is
# unpacked into dist and not installed: that would start a server. It isn't built from its module, which needs a thousand others.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'promtool: %s\n' "$*" >&2; exit 1; }

unpacked=$PWD/dist/promtool
program() { command -v "${SVC_PROMTOOL:-promtool}" || command -v "$unpacked" || true; }

[ -z "${SVC_PROMTOOL:-}" ] || command -v "$SVC_PROMTOOL" >/dev/null || die "SVC_PROMTOOL is $SVC_PROMTOOL, which is no program."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [ -z "$(program)" ] && command -v apt-get >/dev/null; then
	printf 'promtool: unpacking the one of Debian'\''s package prometheus (20 MB)\n' >&2
	download() { (cd "$folder" && apt-get -q -o APT::Sandbox::User=root download prometheus </dev/null) >>"$folder/log" 2>&1; }
	refresh() { [ "$(id -u)" = 0 ] && apt-get -o DPkg::Lock::Timeout=300 -q update </dev/null >>"$folder/log" 2>&1; }
	if [ "$(id -u)" = 0 ]; then # apt doesn't wait while another script refreshes its lists
		exec {lock}>/var/lock/caddy-svc-install
		flock "$lock"
	fi
	download || { refresh && download; } || tail -n 5 "$folder/log" >&2
	[ -z "${lock:-}" ] || exec {lock}>&-
	if [ -e "$(echo "$folder"/prometheus_*.deb)" ]; then
		mkdir -p dist
		dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -xO ./usr/bin/promtool >"$unpacked.$$"
		chmod +x "$unpacked.$$"
		mv "$unpacked.$$" "$unpacked" # another run may be doing the same
	fi
fi
promtool=$(program)
[ -n "$promtool" ] || die "it is not on this machine. Install Prometheus' tools (Debian: the package prometheus), or set SVC_PROMTOOL to the program."

# Each expression of the board becomes a recording rule, with Grafana's variables filled in.
{
	printf 'groups:\n  - name: board\n    rules:\n'
	sed -nE 's/^ *"expr": "(.*)",?$/\1/p' packaging/grafana/caddy-svc.json |
		sed -e 's/\\"/"/g' -e "s/'/''/g" -e 's/\$__rate_interval/5m/g' -e 's/\$__range/1h/g' -e "s/.*/      - {record: 'board:panel', expr: '&'}/" |
		awk '{ sub(/board:panel/, "board:panel" NR); print }'
} >"$folder/board.yml"
grep -q 'board:panel10' "$folder/board.yml" || die "the board's expressions were not found"

for check in "check rules packaging/prometheus/caddy-svc.yml" "check rules $folder/board.yml" "test rules packaging/prometheus/caddy-svc_test.yml"; do
	# shellcheck disable=SC2086 # a command's words
	output=$("$promtool" $check 2>&1) || { printf 'promtool %s:\n%s\n' "$check" "$output" >&2; exit 1; }
done
