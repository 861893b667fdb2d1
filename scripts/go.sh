# Sourced by the scripts that call Go: one set of flags for all of them, so that vet, lint, tests and xcaddy's builds
# share the compiled packages. The tags are xcaddy's own (they leave out databases of Caddy's that we don't use).
# shellcheck shell=bash

# need TOOL…: every tool that isn't on this machine is named at once, and the script ends.
need() {
	local tool absent=()
	for tool in "$@"; do
		case $tool in
		go) [[ "$(go env GOVERSION 2>/dev/null)" =~ ^go1\.(2[6-9]|[3-9][0-9]) ]] || absent+=("Go 1.26 or newer (https://go.dev/dl)") ;;
		node) [[ "$(node --version 2>/dev/null)" =~ ^v([2-9][0-9]|[1-9][0-9][0-9])\. ]] || absent+=("Node.js 20 or newer (https://nodejs.org)") ;;
		*) command -v "$tool" >/dev/null || absent+=("$tool") ;;
		esac
	done
	[ ${#absent[@]} -eq 0 ] && return
	printf 'needed, and not on this machine:\n' >&2
	printf '  - %s\n' "${absent[@]}" >&2
	exit 1
}

# step TEXT: what happens next, with the seconds since the script began.
step() { printf '== %s (%ds)\n' "$*" "$SECONDS" >&2; }

export GOTOOLCHAIN=local
TAGS=-tags=nobadger,nomysql,nopgx
GOFLAGS="-buildvcs=false $TAGS"
# The race detector leaves the engine of SQLite alone: three packages of C, translated to Go, which keep their data in
# memory of their own. The detector doesn't watch that memory, but calling it for every access takes most of the time of
# all tests. The driver above them, modernc.org/sqlite, is watched as our own code is. Nothing here reads debugger's data
# (DWARF; traces of panics don't need it), which is an eighth of the compiler's time.
GOFLAGS="$GOFLAGS -gcflags=all=-dwarf=false"
for package in modernc.org/sqlite/lib modernc.org/libc modernc.org/memory; do
	GOFLAGS="$GOFLAGS '-gcflags=$package=-dwarf=false -race=false'"
done
export GOFLAGS
# UNWATCHED are flags beside -race, and only there, so that what is built without it is compiled once. The detector doesn't watch packages
# that only compute what their callers give them: passwords' hashes, expressions, JSON, Caddy's colours of code, and the tests' client of
# OpenAI. They share memory through package sync alone, which is watched. They are compiled without inlining: an inlined copy of a generic
# function of sync, such as a method of sync.Map, would use atomics that the detector doesn't see, and the linker could keep it for all.
UNWATCHED=()
for package in golang.org/x/crypto/argon2 golang.org/x/crypto/blake2b unicode/utf8 encoding/base64 regexp regexp/syntax encoding/xml \
	github.com/go-json-experiment/json github.com/go-json-experiment/json/jsontext github.com/go-json-experiment/json/internal/jsonwire \
	github.com/openai/openai-go/... github.com/alecthomas/chroma/v2 github.com/alecthomas/chroma/v2/lexers github.com/alecthomas/chroma/v2/styles; do
	UNWATCHED+=("-gcflags=$package=-dwarf=false -race=false -l")
done
unset package

# fast CMD…: for compilers, linkers and analyzers. They end soon, and collecting garbage less often saves a sixth of their time.
# What tests and measurements run has Go's own default, so this is never exported.
fast() { GOGC=400 "$@"; }
