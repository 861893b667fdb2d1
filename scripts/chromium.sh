#!/usr/bin/env bash
# Prints the path of the Chromium that the browser tests drive:
#
#     SVC_CHROMIUM=$(scripts/chromium.sh) go test ./tests -run TestBrowser
#
# It is SVC_CHROMIUM if that is set, else the one on this machine, else Debian's package, which is installed when we are
# root; otherwise it is named. Letters come from DejaVu, so that screenshots look the same everywhere.
set -euo pipefail

say() { printf 'chromium: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

program() { command -v "${SVC_CHROMIUM:-chromium}" || true; }
font=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf

missing() { # prints the Debian packages that are wanted and not there
	if [ -z "$(program)" ]; then echo chromium; fi
	if [ ! -e $font ]; then echo fonts-dejavu-core; fi
}

[ -z "${SVC_CHROMIUM:-}" ] || [ -n "$(program)" ] || die "SVC_CHROMIUM is $SVC_CHROMIUM, which is no program."

# shellcheck source=scripts/packages.sh
. "$(dirname "$0")/packages.sh"
install_missing
[ -n "$(program)" ] ||
	die "no Chromium on this machine. Install one (Debian: apt-get install chromium), or set SVC_CHROMIUM to the program."
program
