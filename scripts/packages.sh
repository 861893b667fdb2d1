# Sourced by the scripts that need programs of Debian's packages. They define `missing`, which prints the packages that are
# wanted and not there, `say` and `die`.

# install_missing installs what is missing when we are root on Debian, and dies when it can't; otherwise it does nothing.
install_missing() {
	local packages log lock
	[ -n "$(missing)" ] || return 0
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then return 0; fi
	exec {lock}>/var/lock/caddy-svc-install
	flock "$lock" # another run may be installing the same
	packages=$(missing | xargs)
	if [ -n "$packages" ]; then
		say "installing $packages (Debian packages; a minute or so)"
		log=$(mktemp)
		apt() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q "$@" </dev/null >>"$log" 2>&1; }
		# shellcheck disable=SC2086 # a list of names
		if ! { apt update && apt install -y --no-install-recommends $packages; }; then
			tail -n 20 "$log" >&2
			rm -f "$log"
			die "could not install $packages"
		fi
		rm -f "$log"
	fi
	exec {lock}>&-
}
