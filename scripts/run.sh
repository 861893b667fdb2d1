#!/usr/bin/env bash
# Builds what changed, prepares a demo organization on the first start, and runs Caddy on Caddyfile.example until
# Ctrl-C. All state stays in data/ (git-ignored); remove that folder to begin anew.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
need go curl

config=Caddyfile.example
base=$(sed -n 's/^[[:space:]]*base_url[[:space:]]\{1,\}\(http[^[:space:]]*localhost[^[:space:]]*\).*/\1/p' $config | head -n 1)
address=${base#*://}
host=${address%%:*} port=${address##*:}

die() { printf 'run: %s\n' "$*" >&2; exit 1; }

if (: <"/dev/tcp/$host/$port") 2>/dev/null; then
	die "port $port is in use. Stop what listens there (another make run?), or change the site's address and base_url in $config."
fi

./xcaddy.sh

umask 077 # the folder holds the master key, the demo key and the database
mkdir -p data
if [ ! -s data/master.key ]; then
	head -c 32 /dev/urandom | base64 >data/master.key.new
	mv data/master.key.new data/master.key
	step "run: made data/master.key (keep it with your backups: provider keys are sealed with it)"
fi

svc() { dist/caddy svc "$@" --config "$config" --json; }
field() { sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p" | head -n 1; } # of one JSON object

# Each step leaves its mark, so that a first start that was cut short goes on where it stood.
if [ ! -s data/demo.key ]; then
	step "run: first start, making the demo organization"
	if [ ! -s data/demo.org ]; then
		organization=$(svc org create --name demo | field id)
		[ -n "$organization" ] || die "could not create the demo organization (see above); removing data/ begins anew"
		echo "$organization" >data/demo.org
	fi
	organization=$(cat data/demo.org)
	svc wallet credit --org "$organization" --micros 10000000 --ref first-start >/dev/null
	key=$(svc key create --org "$organization" --name demo --scopes models:read,chat:write,wallet:read | field key)
	[ -n "$key" ] || die "could not create the demo key (see above)"
	echo "$key" >data/demo.key
fi
key=$(cat data/demo.key)

set -m # a group of its own: Ctrl-C reaches Caddy once, from us
dist/caddy run --config "$config" --adapter caddyfile <&0 &
caddy=$!
set +m
stopping='' interrupted=''
stop() {
	interrupted=1
	[ -n "$stopping" ] || printf '\nrun: stopping (running calls may finish)\n' >&2
	stopping=1
	kill -TERM "$caddy" 2>/dev/null || true
}
trap stop INT TERM HUP

ended() { # waits for Caddy's end and ends the script as it ended
	local status
	while :; do
		interrupted='' status=0
		wait "$caddy" || status=$?
		[ -n "$interrupted" ] || break # else the signal ended the wait, not Caddy
	done
	exit "$status"
}

ask() { curl --silent --fail --max-time 6 --header "Authorization: Bearer $key" "$@"; }
for _ in $(seq 300); do
	kill -0 "$caddy" 2>/dev/null || ended
	[ -z "$stopping" ] || ended
	models=$(ask "$base/v1/models" 2>/dev/null) && break
	sleep 0.1
done
[ -n "${models:-}" ] || { stop; die "Caddy runs, but $base/v1/models did not answer within 30 s"; }
model=$(printf '%s' "$models" | tr ',' '\n' | field id)

cat <<END

Ready. This line works as it stands (the organization "demo" has credits; stop with Ctrl-C):

  curl $base/v1/chat/completions -H 'Authorization: Bearer $key' -H 'Content-Type: application/json' -d '{"model":"$model","messages":[{"role":"user","content":"Hello!"}]}'

END
ended
