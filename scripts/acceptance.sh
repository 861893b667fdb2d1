#!/usr/bin/env bash
# Runs a black-box acceptance kit, which is not part of this repository, against the built product:
#
#     scripts/acceptance.sh KIT [BINARY]     or     SVC_ACCEPTANCE=KIT scripts/acceptance.sh
#
# KIT is the folder with clients/run.sh and webhooks/replay.py; BINARY is dist/caddy unless given. The product gets a
# folder of its own with everything the kit's provision.env and channels.json ask for; the kit serves the model provider
# itself, and nobody sends what it queues. FAST=1, ONLY=…, EXCEPT=… and DEBUG=1 go to the kit's clients. The exit status
# is the number of the clients' failed checks; 1 if only the webhooks or the doctor find faults.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/go.sh"

kit=${1:-${SVC_ACCEPTANCE:-}}
[ -n "$kit" ] || { echo "usage: scripts/acceptance.sh KIT [BINARY]" >&2; exit 2; }
[ -x "$kit/clients/run.sh" ] || { echo "there is no $kit/clients/run.sh" >&2; exit 2; }
[ -f "$kit/webhooks/replay.py" ] || { echo "there is no $kit/webhooks/replay.py" >&2; exit 2; }
kit=$(cd "$kit" && pwd)
command -v python3 >/dev/null || { echo "python3 is missing" >&2; exit 2; }
command -v node >/dev/null || { echo "node is missing (20 or newer)" >&2; exit 2; }
caddy=${2:-}
if [ -z "$caddy" ]; then
	"$root/xcaddy.sh"
	caddy=$root/dist/caddy
fi
caddy=$(realpath "$caddy")

free_port() { node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })'; }
# of KIT/webhooks/channels.json: the value at a path of names
of_webhooks() { node -p 'process.argv.slice(2).reduce((at, name) => at[name], JSON.parse(require("fs").readFileSync(process.argv[1])))' "$kit/webhooks/channels.json" "$@"; }
field() { node -e 'let t = ""; process.stdin.on("data", (d) => (t += d)).on("end", () => console.log(JSON.parse(t)[process.argv[1]]))' "$1"; }

dir=$(mktemp -d "${TMPDIR:-/tmp}/svc-acceptance.XXXXXXXX")
server=''
finish() {
	[ -z "$server" ] || { kill -TERM "$server" 2>/dev/null && wait "$server"; } || true
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

port=$(free_port) upstream=$(free_port)
export SVC_MASTER_KEY VENDOR_KEY=sk-house-acceptance
export SOCIAL_APP_SECRET SOCIAL_VERIFY_TOKEN LOCALCHAT_APP_SECRET MARKET_A_PARTNER_KEY MARKET_B_APP_SECRET
SOCIAL_APP_SECRET=$(of_webhooks secrets social_app_secret)
SOCIAL_VERIFY_TOKEN=$(of_webhooks secrets social_verify_token)
LOCALCHAT_APP_SECRET=$(of_webhooks secrets localchat_app_secret)
MARKET_A_PARTNER_KEY=$(of_webhooks secrets market_a_partner_key)
MARKET_B_APP_SECRET=$(of_webhooks secrets market_b_app_secret)
SVC_MASTER_KEY=$(head -c 32 /dev/urandom | base64)
export HOME=$dir XDG_DATA_HOME=$dir XDG_CONFIG_HOME=$dir
cat >"$dir/Caddyfile" <<CADDYFILE
{
	admin off
	persist_config off
	log {
		level ERROR
	}
	svc {
		base_url $(of_webhooks base_url)
		store sqlite $dir/svc.db
		master_key {env.SVC_MASTER_KEY}
		plan full {
		}
		provider kit {
			protocol openai
			base_url http://127.0.0.1:$upstream/v1
			api_key {env.VENDOR_KEY}
			first_byte_timeout 3s
			idle_timeout 3s
			response_timeout 3s
		}
		model kit/standard {
			upstream_model upstream-model-x
			context_window 128000
			max_output_tokens 16384
			price_input 150000
			price_output 600000
		}
		model kit/other {
			context_window 128000
			max_output_tokens 16384
			price_input 150000
			price_output 600000
		}
		platform social {
			app_secret {env.SOCIAL_APP_SECRET}
			verify_token {env.SOCIAL_VERIFY_TOKEN}
		}
		platform localchat {
			app_id $(of_webhooks secrets localchat_app_id)
			app_secret {env.LOCALCHAT_APP_SECRET}
		}
		platform market_a {
			partner_id 1
			partner_key {env.MARKET_A_PARTNER_KEY}
		}
		platform market_b {
			app_key $(of_webhooks secrets market_b_app_key)
			app_secret {env.MARKET_B_APP_SECRET}
		}
	}
}
http://:$port {
	bind 127.0.0.1
	svc_server
}
CADDYFILE

svc() { (cd "$dir" && "$caddy" svc "$@" --config "$dir/Caddyfile" --json); }
org() { svc org create --name "$1" </dev/null | field id; }
credit() { svc wallet credit --org "$1" --micros 100000000 --ref acceptance "${@:2}" >/dev/null; }
key() { svc key create --org "$1" --scopes "${SCOPES:-models:read,chat:write,wallet:read}" "${@:2}"; }

svc migrate >/dev/null
main=$(org main)
credit "$main"
credit "$main" --env test
svc model disable --org "$main" kit/other >/dev/null
revoked=$(key "$main")
svc key revoke "$(field id <<<"$revoked")" >/dev/null
later=$(key "$main")
poor=$(org poor) suspended=$(org suspended) byok=$(org byok)
credit "$byok"
printf 'sk-own-acceptance' | svc provider-key set --org "$byok" --provider kit --key-file - >/dev/null
credit "$suspended"
suspended_key=$(key "$suspended" | field key)
svc org suspend "$suspended" --reason unpaid >/dev/null
cat >"$dir/provision.env" <<PROVISION
BASE_URL=http://127.0.0.1:$port
UPSTREAM_LISTEN=127.0.0.1:$upstream
UPSTREAM_KEY=$VENDOR_KEY
UPSTREAM_TIMEOUT_S=3
API_KEY=$(key "$main" | field key)
TEST_KEY=$(key "$main" --env test | field key)
REVOKED_KEY=$(field key <<<"$revoked")
EXPIRED_KEY=$(key "$main" --expires-at 2020-01-01T00:00:00Z | field key)
NOSCOPE_KEY=$(SCOPES=models:read key "$main" | field key)
POOR_KEY=$(key "$poor" | field key)
SUSPENDED_KEY=$suspended_key
BYOK_KEY=$(key "$byok" | field key)
REVOKE_ME_KEY=$(field key <<<"$later")
REVOKE_CMD=$caddy svc key revoke $(field id <<<"$later") --config $dir/Caddyfile
MODEL=kit/standard
DISABLED_MODEL=kit/other
WALLET_PATH=/wallet
WALLET_FIELD=balanceMicros
PROVISION

# The channels of channels.json. Nothing is sent, so the platforms' tokens can be any.
declare -A owners=()
map=()
while IFS=$'\t' read -r id type owner external; do
	[ -n "${owners[$owner]:-}" ] || owners[$owner]=$(org "webhooks of $owner")
	credentials='{"accessToken":"any"}' options=(--external-id "$external")
	case $type in
	bot) credentials="{\"secretToken\":\"$(of_webhooks secrets bot "$id")\",\"botToken\":\"1:any\"}" options=() ;;
	localchat | market_a | market_b) credentials='{"accessToken":"any","refreshToken":"any"}' ;;
	esac
	made=$(printf '%s' "$credentials" |
		svc channel create --org "${owners[$owner]}" --type "$type" --name "$id" --credentials-file - "${options[@]}" | field id)
	[ -n "$made" ] || { echo "channel $id could not be created" >&2; exit 1; }
	[ "$type" != bot ] || map+=(--map "$id=$made")
done < <(node -e 'for (const c of JSON.parse(require("fs").readFileSync(process.argv[1])).channels) console.log([c.id, c.type, c.org, c.external_id ?? "-"].join("\t"))' "$kit/webhooks/channels.json")

(cd "$dir" && exec "$caddy" run --config "$dir/Caddyfile") &
server=$!
for _ in $(seq 300); do
	kill -0 "$server" 2>/dev/null || { echo "the product ended" >&2; exit 1; }
	node -e 'require("net").connect(+process.argv[1], "127.0.0.1").on("connect", () => process.exit(0)).on("error", () => process.exit(1))' "$port" && break
	sleep 0.1
done

status=0
PROVISION=$dir/provision.env "$kit/clients/run.sh" || status=$?
echo "webhooks:"
python3 "$kit/webhooks/replay.py" --url "http://127.0.0.1:$port" "${map[@]}" || { [ "$status" != 0 ] || status=1; }
svc doctor >/dev/null || { echo "doctor has findings" >&2; [ "$status" != 0 ] || status=1; }
exit "$status"
