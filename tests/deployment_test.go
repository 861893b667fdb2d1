package tests

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// The models of every deployment. Prices are in micros per million tokens.
const (
	modelStd    = "acme/std"   // 1,000,000 in, 2,000,000 out, 500,000 cached: 1, 2 and 0.5 micros a token
	modelFree   = "acme/free"  // price 0
	modelSmall  = "acme/small" // a window of 1,000 tokens, at most 100 out
	modelDeep   = "acme/deep"  // reasons, reserves its 4,096 tokens for every answer, and is closed to test keys
	modelKeyed  = "own/std"    // its provider has no key of the operator's: BYOK only
	modelDead   = "dead/std"   // nobody listens at its provider's address
	modelEcho   = "echo/echo"  // answers by itself
	stdMaxOut   = 4096         // max_output_tokens of modelStd
	stdWindow   = 128_000      // context_window of modelStd
	operatorKey = "sk-house-of-acme-0123456789"
	planDefault = "open"  // without limits
	planTight   = "tight" // 5 requests a minute, one channel
)

// deployment is what a test wants of a product: one Caddyfile and its environment.
type deployment struct {
	// Binary is the build of the server; empty is the usual one.
	Binary string
	// Upstream is the address of the providers.
	Upstream string
	// StoreLine is the store's line in the Caddyfile.
	StoreLine string
	// Redis is the URL of the Redis with the windows, empty for none; RedisNodes is its option nodes, 0 for the default.
	Redis      string
	RedisNodes int
	// PublicURL is base_url; empty is the address of the product itself.
	PublicURL string
	// Global, App, Routes and Sites are added to the global options, the svc block, the service's sites and the sites.
	Global, App, Routes, Sites string
	// Whole: the service's sites have svc_server, which serves the whole interface, instead of single directives and Routes.
	Whole bool
	// Grace is grace_period.
	Grace string
	// First, Idle and Response are the providers' timeouts, Longest is max_duration.
	First, Idle, Response, Longest string
	// Traces is the address of an OTLP receiver, which gets the traces of server and worker; empty for none.
	Traces string
	// TLS adds a site with TLS, for HTTP/2.
	TLS bool
	// HoldTTL, Sweep, Lease and Early (early_status) are timing's; an empty one of the last two is the default.
	HoldTTL, Sweep, Lease, Early string

	// Platform plays the messaging platforms, if the deployment receives their webhooks.
	Platform *platformfake.Server

	// Filled in by startProduct.
	Dir                     string
	Port, TLSPort, SidePort int

	location  store.Location
	masterKey string
	env       []string
}

// deploy is the usual deployment on a fresh store, with its models behind up.
func deploy(t testing.TB, engine store.Engine, up *upstream) *deployment {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	d := &deployment{
		Upstream: up.URL, Grace: "20s",
		First: "90s", Idle: "90s", Response: "90s", Longest: "120s", HoldTTL: "30s", Sweep: "1s",
		location: storetest.Location(t, engine), masterKey: base64.StdEncoding.EncodeToString(key),
	}
	d.StoreLine = "store sqlite " + d.location.DSN
	if engine == store.Postgres {
		d.StoreLine = "store postgres {env.SVC_POSTGRES}"
	}
	d.env = []string{
		"SVC_MASTER_KEY=" + d.masterKey, "ACME_KEY=" + operatorKey, "SVC_POSTGRES=" + d.location.DSN,
	}
	return d
}

var caddyfileTemplate = template.Must(template.New("Caddyfile").Parse(`{
	admin unix/{{.Dir}}/admin.sock
	persist_config off
	grace_period {{.Grace}}
	auto_https disable_redirects
	skip_install_trust
	storage file_system {{.Dir}}/caddy
	log {
		format json
		level DEBUG
	}
	{{.Global}}
	svc {
		base_url {{or .PublicURL (printf "http://127.0.0.1:%d" .Port)}}
		{{.StoreLine}}
		{{if .Redis}}redis {env.SVC_REDIS} {
			{{if .RedisNodes}}nodes {{.RedisNodes}}{{end}}
		}{{end}}
		master_key {env.SVC_MASTER_KEY}
		plan open {
		}
		plan tight {
			requests_per_minute 5
			channels 1
		}
		provider acme {
			protocol openai
			base_url {{.Upstream}}/v1
			api_key {env.ACME_KEY}
			first_byte_timeout {{.First}}
			idle_timeout {{.Idle}}
			response_timeout {{.Response}}
			max_duration {{.Longest}}
			{{if .Traces}}send_traceparent{{end}}
		}
		provider own {
			protocol openai
			base_url {{.Upstream}}/v1
			max_duration {{.Longest}}
		}
		provider dead {
			protocol openai
			base_url http://127.0.0.1:1/v1
			api_key none
			connect_timeout 2s
			max_duration {{.Longest}}
		}
		provider echo {
			protocol echo
			max_duration {{.Longest}}
		}
		model acme/std {
			upstream_model acme-standard-1
			display_name "Acme Standard"
			friendly_name Standard
			vn_hosted true
			context_window 128000
			max_output_tokens 4096
			price_input 1000000
			price_output 2000000
			price_cached_input 500000
		}
		model acme/free {
			context_window 128000
			max_output_tokens 4096
			price_input 0
			price_output 0
		}
		model acme/small {
			context_window 1000
			max_output_tokens 100
			price_input 1000000
			price_output 2000000
		}
		model acme/deep {
			context_window 128000
			max_output_tokens 4096
			reasoning
			reserve_max_output
			live_only
			price_input 1000000
			price_output 2000000
		}
		model own/std {
			context_window 128000
			max_output_tokens 4096
			price_input 1000000
			price_output 2000000
		}
		model dead/std {
			context_window 128000
			max_output_tokens 4096
			price_input 1000000
			price_output 2000000
		}
		model echo/echo {
			context_window 128000
			max_output_tokens 4096
			price_input 1000000
			price_output 2000000
		}
		timing {
			hold_ttl {{.HoldTTL}}
			sweep_interval {{.Sweep}}
			{{if .Lease}}lease {{.Lease}}{{end}}
			{{if .Early}}early_status {{.Early}}{{end}}
		}
		{{.App}}
	}
}
(service) {
	{{if .Traces}}tracing{{end}}
	{{if .Whole}}svc_server{{else}}handle_errors {
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
	{{.Routes}}
	handle {
		svc_error
	}
	{{end}}
}
http://:{{.Port}} {
	bind 127.0.0.1
	log {
		output file {{.Dir}}/access.log
	}
	import service
}
{{if .TLS}}https://localhost:{{.TLSPort}} {
	bind 127.0.0.1
	tls internal
	import service
}
{{end}}http://:{{.SidePort}} {
	bind 127.0.0.1
	handle /metrics {
		metrics
	}
	handle /live {
		svc_health live
	}
	handle /ready {
		svc_health ready
	}
	handle /operator* {
		svc_operator
	}
	handle /console* {
		svc_console
	}
	handle_errors {
		svc_error
	}
}
{{.Sites}}
`))

// caddyfile is the deployment's Caddyfile.
func (d *deployment) caddyfile(t testing.TB) string {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, caddyfileTemplate.Execute(&text, d))
	return text.String()
}

// relative spells the SQLite file in another way: relative to the product's folder, with detours.
func (d *deployment) relative(t testing.TB) string {
	t.Helper()
	path, err := filepath.Rel(d.Dir, d.location.DSN)
	require.NoError(t, err)
	return "./" + strings.Replace(path, "../", ".././", 1)
}

// testRedis is the URL of the Redis that all tests share. What it keeps is named by an organization's id, so they don't
// meet there.
func testRedis(t testing.TB) string {
	t.Helper()
	url := os.Getenv("SVC_TEST_REDIS")
	require.NotEmpty(t, url, "SVC_TEST_REDIS is not set: run the tests through scripts/services.sh, which starts a Redis for them")
	return url
}
