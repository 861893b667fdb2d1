#!/usr/bin/env bash
# Runs a black-box acceptance kit, which is not part of this repository, against the built product:
#
#     scripts/acceptance.sh KIT [BINARY]     or     SVC_ACCEPTANCE=KIT scripts/acceptance.sh
#
# KIT is the folder with clients/run.sh; BINARY is dist/caddy unless given. The product gets a folder of its own with
# everything the kit's provision.env asks for; the kit serves the model provider itself. FAST=1, ONLY=…, EXCEPT=… and
# DEBUG=1 go to the kit. The exit status is the kit's: the number of failed checks.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/go.sh"

kit=${1:-${SVC_ACCEPTANCE:-}}
[ -n "$kit" ] || { echo "usage: scripts/acceptance.sh KIT [BINARY]" >&2; exit 2; }
[ -x "$kit/clients/run.sh" ] || { echo "there is no $kit/clients/run.sh" >&2; exit 2; }
kit=$(cd "$kit" && pwd)
command -v node >/dev/null || { echo "node is missing (20 or newer)" >&2; exit 2; }
caddy=${2:-}
if [ -z "$caddy" ]; then
	"$root/xcaddy.sh"
	caddy=$root/dist/caddy
fi
caddy=$(realpath "$caddy")

free_port() { node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })'; }
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
		base_url http://127.0.0.1:$port
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
	}
}
http://:$port {
	bind 127.0.0.1
	handle_errors {
		svc_error
	}
	handle /v1/models* {
		svc_auth models:read
		svc_rate_limit
		svc_models
	}
	handle /v1/chat/completions {
		svc_auth chat:write
		svc_rate_limit
		svc_chat
	}
	handle /wallet* {
		svc_api
	}
	handle {
		svc_error
	}
}
CADDYFILE

svc() { (cd "$dir" && "$caddy" svc "$@" --config "$dir/Caddyfile" --json); }
org() { svc org create --name "$1" | field id; }
credit() { svc wallet credit --org "$1" --micros 100000000 "${@:2}" >/dev/null; }
key() { svc key create --org "$1" --scopes "${SCOPES:-models:read,chat:write,wallet:read}" "${@:2}"; }

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
svc org suspend "$suspended" >/dev/null
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

(cd "$dir" && exec "$caddy" run --config "$dir/Caddyfile") &
server=$!
for _ in $(seq 300); do
	kill -0 "$server" 2>/dev/null || { echo "the product ended" >&2; exit 1; }
	node -e 'require("net").connect(+process.argv[1], "127.0.0.1").on("connect", () => process.exit(0)).on("error", () => process.exit(1))' "$port" && break
	sleep 0.1
done

status=0
PROVISION=$dir/provision.env "$kit/clients/run.sh" || status=$?
svc doctor >/dev/null || { echo "doctor has findings" >&2; [ "$status" != 0 ] || status=1; }
exit "$status"
