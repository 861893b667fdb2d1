package caddymodule

import (
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

const workerTestApp = `"svc": {"base_url": "http://localhost", "store": {"engine": "sqlite", "path": "svc.db"},
	"master_key": "{env.SVC_TEST_NEVER_SET}", "worker": {"listen": "127.0.0.1:8082"}}`

// TestWorkerConfig guarantees what a worker takes of the server's configuration: the app, the grace period and the
// logging, and neither its sites nor its certificates nor its log files.
func TestWorkerConfig(t *testing.T) {
	t.Parallel()
	made, err := workerConfig([]byte(`{
		"@id": "meta",
		"admin": {"listen": "localhost:2019"},
		"storage": {"module": "file_system", "root": "/srv"},
		"logging": {
			"sink": {"writer": {"output": "stderr"}},
			"logs": {
				"default": {"level": "DEBUG", "writer": {"output": "file", "filename": "svc.log"}, "exclude": ["http.log.access.log0"]},
				"log0": {"writer": {"output": "file", "filename": "access.log"}, "include": ["http.log.access.log0"]},
				"audit": {"writer": {"output": "stdout"}, "include": ["svc"]},
				"plain": {"level": "WARN"}
			}
		},
		"apps": {
			"http": {"grace_period": "20s", "servers": {"srv0": {"listen": [":443"]}}},
			"tls": {"automation": {}},
			`+workerTestApp+`
		}
	}`), "Caddyfile")
	require.NoError(t, err)
	require.JSONEq(t, `{
		"admin": {"disabled": true, "config": {"persist": false}},
		"logging": {
			"sink": {"writer": {"output": "stderr"}},
			"logs": {
				"default": {"level": "DEBUG", "exclude": ["http.log.access.log0"]},
				"audit": {"writer": {"output": "stdout"}, "include": ["svc"]},
				"plain": {"level": "WARN"}
			}
		},
		"apps": {
			`+workerTestApp+`,
			"svc_worker": {"grace_period": 20000000000},
			"tls": {"disable_storage_clean": true},
			"http": {"grace_period": "5s", "servers": {"worker": {
				"listen": ["127.0.0.1:8082"],
				"automatic_https": {"disable": true},
				"protocols": ["h1"],
				"routes": [
					{"match": [{"path": ["/metrics"]}], "handle": [{"handler": "metrics"}], "terminal": true},
					{"match": [{"path": ["/health/*"]}], "handle": [{"handler": "svc_health"}], "terminal": true},
					{"handle": [{"handler": "svc_error"}]}
				],
				"errors": {"routes": [{"handle": [{"handler": "svc_error"}]}]}
			}}}
		}
	}`, string(made))
	var config caddy.Config
	require.NoError(t, caddy.StrictUnmarshalJSON(made, &config), "Caddy knows all of it")
}

// TestWorkerConfigWithoutListener guarantees that a worker opens no port unless its configuration has a listener.
func TestWorkerConfigWithoutListener(t *testing.T) {
	t.Parallel()
	made, err := workerConfig([]byte(`{"apps": {"svc": {"base_url": "http://localhost", "master_key": "{env.K}",
		"store": {"engine": "sqlite", "path": "svc.db"}}}}`), "Caddyfile")
	require.NoError(t, err)
	var config struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	require.NoError(t, json.Unmarshal(made, &config))
	require.Len(t, config.Apps, 2)
	require.JSONEq(t, `{}`, string(config.Apps[workerAppName]), "the default grace period")
}

func TestWorkerConfigRefuses(t *testing.T) {
	t.Parallel()
	for want, server := range map[string]string{
		"is no Caddy configuration":           `[]`,
		"Caddyfile has no svc block":          `{"apps": {"http": {}}}`,
		"svc.base_url: missing":               `{"apps": {"svc": {}}}`,
		"unknown field":                       `{"apps": {"svc": {"workers": 1}}}`,
		"the grace_period of the http app":    `{"apps": {"http": {"grace_period": "soon"}, ` + workerTestApp + `}}`,
		"Caddyfile: the logs":                 `{"logging": {"logs": []}, "apps": {` + workerTestApp + `}}`,
		"Caddyfile: the writer of the log a:": `{"logging": {"logs": {"a": {"writer": 1}}}, "apps": {` + workerTestApp + `}}`,
	} {
		_, err := workerConfig([]byte(server), "Caddyfile")
		require.ErrorContains(t, err, want)
	}
}
