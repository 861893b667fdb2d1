package command

import (
	"cmp"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// vendorFiles has a file for each vendor of init, and of `make run`: a provider and its model for the svc block.
//
//go:embed vendors/*.caddyfile
var vendorFiles embed.FS

// longestSocket is the longest path of a Unix socket that every system accepts.
const longestSocket = 100

var caddyfileOfInit = template.Must(template.New("Caddyfile").Parse(`{
	# The admin interface can read and replace the configuration: a socket that only this user can open.
	admin {{.Admin}}
	persist_config off
	# How long a stop or a reload waits for running answers.
	grace_period 60s
	log {
		# No headers and no query, in which clients send keys, and no part of a path that is as long as a key.
		format filter {
			request>headers delete
			resp_headers delete
			request>uri regexp "[\w.~-]{41,}" REDACTED
			request>uri regexp "(?s)^([\w./~-]{0,200}).*" $1
		}
	}
{{- if .Email}}
	# For the certificate authority.
	email {{.Email}}
{{- end}}

	svc {
		# Where clients reach the service from outside.
		base_url {{.BaseURL}}
		store {{.Store}}
{{- if .Redis}}
		redis {env.SVC_REDIS}
{{- end}}
		master_key "{file.{{.MasterKey}}}"

		plan standard {
			requests_per_minute 60
		}

		worker {
			# The worker's probes and metrics.
			listen {{.Probe}}
		}

{{.Vendor}}
	}
}

{{.Site}} {
	svc_server
}

# For the operator only. An address like http://127.0.0.1:8081 would listen on all interfaces; bind doesn't.
http://:{{.Private}} {
	bind 127.0.0.1
	handle /metrics {
		metrics
	}
	handle /health/* {
		svc_health
	}
	# The interface of the operator. caddy svc operator key create makes a key.
	handle /operator* {
		svc_operator
	}
	handle {
		svc_error
	}
}
`))

// caddyfile returns the text of the Caddyfile.
func (s *setup) caddyfile() (string, error) {
	port := int(cmp.Or(s.port, defaultPort))
	values := struct{ Admin, Email, BaseURL, Store, Redis, MasterKey, Vendor, Site, Private, Probe string }{
		Admin: "off", BaseURL: fmt.Sprintf("http://localhost:%d", port), Store: `sqlite "` + s.database() + `"`, Redis: s.redis,
		MasterKey: s.masterKey(), Site: fmt.Sprintf(":%d", port), Private: strconv.Itoa(port + 1),
		Probe: fmt.Sprintf("127.0.0.1:%d", port+2), Vendor: "\t\t" + strings.Join(slices.Collect(strings.Lines(s.block)), "\t\t"),
	}
	if socket := filepath.Join(s.dir, "data", "admin.sock"); len(socket) <= longestSocket {
		values.Admin = `"unix/` + socket + `"`
	}
	if s.domain != "" {
		values.BaseURL, values.Site, values.Email = "https://"+s.domain, s.domain, s.email
	}
	if s.postgres != "" {
		values.Store = "postgres {env.SVC_POSTGRES}"
	}
	var text strings.Builder
	if err := caddyfileOfInit.Execute(&text, values); err != nil {
		return "", fmt.Errorf("making the Caddyfile: %w", err)
	}
	return text.String(), nil
}

// write writes the files. It returns the written files, also with an error. An existing file is an error.
func (s *setup) write() (written []string, err error) {
	caddyfile, err := s.caddyfile()
	if err != nil {
		return nil, err
	}
	var env strings.Builder
	env.WriteString("# The secrets of the Caddyfile beside it, for --envfile. Keep this file to yourself.\n")
	for _, secret := range s.secrets {
		env.WriteString(secret[0] + "=" + secret[1] + "\n")
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	if err := os.MkdirAll(filepath.Join(s.dir, "data"), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the data: %w", err)
	}
	for _, file := range []struct {
		path, text string
		mode       os.FileMode
	}{
		{s.config(), caddyfile, 0o644},
		{s.envFile(), env.String(), 0o600},
		{s.masterKey(), base64.StdEncoding.EncodeToString(key) + "\n", 0o600},
	} {
		err := createFile(file.path, "writing", file.mode, func(w io.Writer) error {
			_, err := io.WriteString(w, file.text)
			return err
		})
		if err != nil {
			return written, err
		}
		written = append(written, file.path)
	}
	return written, nil
}
