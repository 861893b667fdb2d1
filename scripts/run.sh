#!/usr/bin/env bash
# Builds what changed, prepares a demo organization on the first start (an owner, an assistant, a bot channel, a site with
# the web widget), and runs Caddy and the worker on Caddyfile.example until Ctrl-C. All state stays in data/ (git-ignored);
# remove that folder to begin anew. With the key of a vendor in the environment, such as OPENAI_API_KEY, the vendor's models
# are served beside echo: the configuration is then data/Caddyfile, written at each start.
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

scripts/vendors.sh "$config" >data/Caddyfile
if cmp -s "$config" data/Caddyfile; then
	rm data/Caddyfile
else
	config=data/Caddyfile
	step "run: serving the models of the vendors whose key is in the environment, too"
fi

svc() { dist/caddy svc "$@" --config "$config" --json; }
field() { sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p" | head -n 1; } # of one JSON object

svc migrate >/dev/null || die "the store in data/ can't be used (see above); removing data/ begins anew"

# Each step leaves its mark, so that a first start that was cut short goes on where it stood.
if [ ! -s data/demo.org ]; then
	step "run: first start, making the demo organization"
	organization=$(svc org create --name demo | field id)
	[ -n "$organization" ] || die "could not create the demo organization (see above); removing data/ begins anew"
	echo "$organization" >data/demo.org
fi
organization=$(cat data/demo.org)
if [ ! -s data/demo.bot ]; then
	svc wallet credit --org "$organization" --micros 10000000 --ref first-start >/dev/null
	agent=$(svc agent list --org "$organization" | field id)
	[ -n "$agent" ] || agent=$(svc agent create --org "$organization" --name demo --model echo/echo-1 --instructions 'You are the assistant of a tea shop.' | field id)
	[ -n "$agent" ] || die "could not create the demo assistant (see above)"
	head -c 24 /dev/urandom | base64 | tr '+/' '-_' >data/demo.bot.secret
	bot=$(printf '{"secretToken":"%s","botToken":"1:demo"}' "$(cat data/demo.bot.secret)" |
		svc channel create --org "$organization" --type bot --name "demo $(date +%s)" --agent "$agent" --credentials-file - | field id)
	[ -n "$bot" ] || die "could not create the demo channel (see above)"
	key=$(svc key create --org "$organization" --name "demo $(date +%s)" \
		--scopes models:read,chat:write,wallet:read,agents:read,agents:write,channels:read,channels:write,conversations:read,conversations:write | field key)
	[ -n "$key" ] || die "could not create the demo key (see above)"
	echo "$key" >data/demo.key
	echo "$bot" >data/demo.bot
fi
owner=owner@example.com
if [ ! -s data/demo.login ]; then
	# The reset is for a start that was cut short between the two lines.
	login=$({ svc user invite --org "$organization" --email $owner --role owner 2>/dev/null ||
		svc user reset --org "$organization" --email $owner; } | field link)
	[ -n "$login" ] || die "could not invite the demo organization's owner (see above)"
	echo "$login" >data/demo.login
fi
key=$(cat data/demo.key) bot=$(cat data/demo.bot) secret=$(cat data/demo.bot.secret) login=$(cat data/demo.login)

set -m # groups of their own: Ctrl-C reaches each once, from us
dist/caddy run --config "$config" --adapter caddyfile <&0 &
caddy=$!
dist/svc-worker --config "$config" --adapter caddyfile </dev/null &
worker=$!
set +m
stopping='' interrupted=''
stop() {
	interrupted=1
	[ -n "$stopping" ] || printf '\nrun: stopping (running calls may finish)\n' >&2
	stopping=1
	kill -TERM "$caddy" "$worker" 2>/dev/null || true
}
trap stop INT TERM HUP

running() { kill -0 "$caddy" 2>/dev/null && kill -0 "$worker" 2>/dev/null; }

reap() { # PID: waits for its end, whatever signals come meanwhile, and gives its status
	local status
	while :; do
		interrupted='' status=0
		wait "$1" || status=$?
		[ -n "$interrupted" ] || return "$status" # else a signal ended the wait
	done
}

ended() { # waits until one has ended, ends the other one, and ends the script as they did
	local status=0
	while running; do sleep 0.2 || true; done
	if [ -z "$stopping" ]; then
		kill -0 "$caddy" 2>/dev/null || printf 'run: Caddy has ended (see above); stopping the worker\n' >&2
		kill -0 "$worker" 2>/dev/null || printf 'run: the worker has ended (see above); stopping Caddy\n' >&2
		stopping=1
		stop
	fi
	reap "$caddy" || status=$?
	reap "$worker" || status=$?
	exit "$status"
}

ask() { curl --silent --fail --max-time 6 --header "Authorization: Bearer $key" "$@"; }

# await WHAT COMMAND…: until it succeeds, for 30 s, as long as both run.
await() {
	local what=$1
	shift
	for _ in $(seq 300); do
		if ! running || [ -n "$stopping" ]; then ended; fi
		"$@" && return
		sleep 0.1 || true
	done
	stop
	reap "$caddy" || true
	reap "$worker" || true
	die "$what within 30 s"
}

list_models() { models=$(ask "$base/v1/models" 2>/dev/null); }
await "Caddy runs, but $base/v1/models did not answer" list_models
model=$(printf '%s' "$models" | tr ',' '\n' | field id)

# A site with the web widget, at the private listener.
site=http://localhost:8081
if [ ! -s data/demo.widget ]; then
	agent=$(ask "$base/agents?limit=1" | field id) || true
	widget=$(ask "$base/channels" --data "{\"type\":\"widget\",\"name\":\"demo site $(date +%s)\",\"agentId\":\"$agent\",\"origins\":[\"$site\"]}" | field id) || true
	[ -n "$widget" ] || { stop; die "could not create the demo widget"; }
	mkdir -p data/demo-site
	cat >data/demo-site/index.html <<END
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Tea shop</title><link rel="icon" href="data:,"></head>
<body>
<h1>Tea shop</h1>
<p>Nothing of this page is special but its last line, which puts the chat into the corner.</p>
<script src="$base/widget/$widget/widget.js" async></script>
</body>
</html>
END
	echo "$widget" >data/demo.widget
fi

# A customer of the demo bot writes, as the platform would deliver it.
now=$(date +%s)
update() { # TEXT
	printf '{"update_id":%s,"message":{"message_id":%s,"date":%s,"chat":{"id":4711,"type":"private"},"from":{"id":4711,"is_bot":false,"first_name":"Mai"},"text":"%s"}}' "$now" "$now" "$now" "$1"
}
question="Do you have green tea? ($(date +%T))"
curl --silent --fail --max-time 6 "$base/webhooks/bot/$bot" --header "X-Bot-Api-Secret-Token: $secret" --data "$(update "$question")" >/dev/null ||
	{ stop; die "the sample delivery was refused"; }

replied() { # the conversation's last page has the reply to the question
	local page cursor=''
	[ -n "${conversation:-}" ] || conversation=$(ask "$base/conversations?channelId=$bot" | field id)
	[ -n "$conversation" ] || return 1
	while :; do
		page=$(ask "$base/conversations/$conversation/messages?limit=100${cursor:+&cursor=$cursor}") || return 1
		cursor=$(printf '%s' "$page" | field nextCursor)
		[ -n "$cursor" ] || break
	done
	reply=$(printf '%s' "$page" | sed 's/},{/\n/g' | grep '"author":"assistant"' | grep '"state":"sent"' | grep -F "$question" | field text)
	[ -n "$reply" ]
}
await "the sample delivery got no reply" replied

cat <<END

Ready. What follows works as it stands (the organization "demo" has credits; stop with Ctrl-C).

Look around in the dashboard: $base/dashboard

  $login

The link sets the password of $owner, once. Another one:

  dist/caddy svc user reset --org $organization --email $owner --config $config

A site whose visitors can chat with the assistant: $site/demo-site/

The interface description: $base/docs

Ask a model:

  curl $base/v1/chat/completions -H 'Authorization: Bearer $key' -H 'Content-Type: application/json' -d '{"model":"$model","messages":[{"role":"user","content":"Hello!"}]}'

A customer writes to the demo bot, as its platform delivers it:

  curl $base/webhooks/bot/$bot -H 'X-Bot-Api-Secret-Token: $secret' -d '{"update_id":1,"message":{"message_id":'\$(date +%s)',"date":'\$(date +%s)',"chat":{"id":4711,"type":"private"},"from":{"id":4711,"is_bot":false,"first_name":"Mai"},"text":"Do you have green tea?"}}'

and the conversation with the assistant's replies:

  curl $base/conversations/$conversation/messages -H 'Authorization: Bearer $key'

One was delivered just now: "$question"
The reply that came out:    "$reply"

END
ended
