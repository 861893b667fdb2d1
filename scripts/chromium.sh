#!/usr/bin/env bash
# Prints the path of the Chromium that the browser tests drive:
#
#     SVC_CHROMIUM=$(scripts/chromium.sh) go test ./tests -run TestBrowser
#
# It is SVC_CHROMIUM if that is set, else the one on this machine, else Debian's package, which is installed when we are
# root; otherwise it is named. chromium-headless-shell has no windows, which cost a third of a run's processor time. Letters come from DejaVu, so that screenshots look the same everywhere.
set -euo pipefail

say() { printf 'chromium: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

program() {
	if [ -n "${SVC_CHROMIUM:-}" ]; then
		command -v "$SVC_CHROMIUM" || true
	else
		command -v chromium-headless-shell || command -v chromium || true
	fi
}
font=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf

missing() { # prints the Debian packages that are wanted and not there
	if [ -z "$(program)" ]; then echo chromium-headless-shell; fi
	if [ ! -e $font ]; then echo fonts-dejavu-core; fi
}

[ -z "${SVC_CHROMIUM:-}" ] || [ -n "$(program)" ] || die "SVC_CHROMIUM is $SVC_CHROMIUM, which is no program."

# shellcheck source=scripts/packages.sh
. "$(dirname "$0")/packages.sh"
install_missing
[ -n "$(program)" ] ||
	die "no Chromium on this machine. Install one (Debian: apt-get install chromium-headless-shell), or set SVC_CHROMIUM to the program."
program
