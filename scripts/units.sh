#!/usr/bin/env bash
# Checks the systemd units of packaging/systemd: systemd must understand every line (it only warns about one it doesn't
# know, and goes on without it), and the confinement must not get weaker. Installs systemd's tools where they are missing
# and it may; nothing of systemd has to run.
set -euo pipefail
cd "$(dirname "$0")/.."

# The exposure that `systemd-analyze security` may find, in tenths; 10 would be 1.0, "OK". Most of what is left is that
# the programs talk to a network.
most_exposed=20

if ! command -v systemd-analyze >/dev/null; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "units: systemd-analyze is not on this machine. Install systemd (Debian: apt-get install systemd)." >&2
		exit 1
	fi
	exec {lock}>/var/lock/caddy-svc-install
	flock "$lock" # scripts/services.sh of another run may be installing
	echo "units: installing systemd (Debian package; nothing of it is started)" >&2
	apt() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q "$@" </dev/null; }
	if ! output=$({ apt update && apt install -y --no-install-recommends systemd; } 2>&1); then
		printf '%s\nunits: could not install systemd\n' "$output" >&2
		exit 1
	fi
	exec {lock}>&-
fi

copies=$(mktemp -d)
trap 'rm -rf "$copies"' EXIT
failed=
for unit in packaging/systemd/*.service; do
	copy=$copies/${unit##*/}
	# verify wants the programs to exist; what is checked here is not installed.
	sed -E 's#^(Exec[A-Za-z]+=)/usr/local/bin/(caddy|svc-worker) #\1/bin/true #' "$unit" >"$copy"
	complaints=$(systemd-analyze verify --man=no --recursive-errors=no "$copy" 2>&1) || failed=1
	if [ -n "$complaints" ]; then
		failed=1
		printf '%s\n' "${complaints//$copies/packaging/systemd}" >&2
	fi
	if ! verdict=$(systemd-analyze security --no-pager --offline=yes --threshold="$most_exposed" "$copy" 2>&1); then
		failed=1
		printf '%s: more exposed than %s tenths\n%s\n' "$unit" "$most_exposed" "$verdict" >&2
	fi
done
[ -z "$failed" ]
