package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// product is the built binary with one organization that has credits and a key.
type product struct {
	binary  string
	dir     string
	address string
	key     string
	org     string
	env     []string
	server  *exec.Cmd
	log     bytes.Buffer
}

const caddyfile = `{
	admin off
	persist_config off
	log {
		level ERROR
	}
	svc {
		base_url http://127.0.0.1
		store sqlite ./svc.db
		master_key {env.BENCH_MASTER_KEY}
		plan bench {
		}
		provider bench {
			protocol openai
			base_url http://%[2]s/v1
			api_key none
		}
		model bench/m {
			context_window 128000
			max_output_tokens 4096
			price_input 150000
			price_output 600000
		}
		platform social {
			app_secret {env.BENCH_APP_SECRET}
			verify_token {env.BENCH_APP_SECRET}
		}
	}
}
http://%[1]s {
	bind 127.0.0.1
	handle /v1/chat/completions {
		svc_auth chat:write
		svc_rate_limit
		svc_chat
	}
	handle /webhooks/social {
		svc_webhook social
	}
	handle /respond {
		respond "{\"ok\":true,\"queued\":1}"
	}
	handle /live {
		svc_health live
	}
	handle {
		reverse_proxy %[2]s
	}
}
`

func startProduct(ctx context.Context, binary, upstream string) (*product, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, fmt.Errorf("finding the binary: %w", err)
	}
	dir, err := os.MkdirTemp("", "svc-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	p := &product{
		binary: binary, dir: dir,
		env: append(os.Environ(), "BENCH_MASTER_KEY="+base64.StdEncoding.EncodeToString(secret), "HOME="+dir,
			"BENCH_APP_SECRET="+webhookSecret),
	}
	if p.address, err = freeAddress(); err != nil {
		return nil, err
	}
	text := fmt.Sprintf(caddyfile, p.address, upstream)
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing the Caddyfile: %w", err)
	}
	if err := p.provision(ctx); err != nil {
		return nil, err
	}
	return p, p.start(ctx)
}

// freeAddress asks the kernel for a port. Somebody else may take it meanwhile; the start then fails visibly.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// provision makes the organization, its credits, its keys and its channel.
func (p *product) provision(ctx context.Context) error {
	var org struct{ ID string }
	var key struct{ Key string }
	if err := p.command(ctx, &org, "org", "create", "--name", "bench"); err != nil {
		return err
	}
	p.org = org.ID
	if err := p.command(ctx, nil, "wallet", "credit", "--org", org.ID, "--micros", "1000000000000"); err != nil {
		return err
	}
	if err := p.command(ctx, &key, "key", "create", "--org", org.ID); err != nil {
		return err
	}
	p.key = key.Key
	file := filepath.Join(p.dir, "vendor.key")
	if err := os.WriteFile(file, []byte("sk-bench"), 0o600); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	if err := p.command(ctx, nil, "provider-key", "set", "--org", org.ID, "--provider", "bench", "--key-file", file); err != nil {
		return err
	}
	file = filepath.Join(p.dir, "page.json")
	if err := os.WriteFile(file, []byte(`{"accessToken":"bench"}`), 0o600); err != nil {
		return fmt.Errorf("writing a token: %w", err)
	}
	return p.command(ctx, nil, "channel", "create", "--org", org.ID, "--type", "social_messenger", "--name", "bench",
		"--external-id", webhookPage, "--credentials-file", file)
}

// command runs `caddy svc …` and decodes its object into out.
func (p *product) command(ctx context.Context, out any, args ...string) error {
	c := exec.CommandContext(ctx, p.binary, append(append([]string{"svc"}, args...), "--json")...) //nolint:gosec // our own binary
	c.Dir, c.Env = p.dir, p.env
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("caddy svc %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(stdout.Bytes(), out); err != nil {
		return fmt.Errorf("caddy svc %s printed no object: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (p *product) start(ctx context.Context) error {
	p.server = exec.Command(p.binary, "run") //nolint:gosec,noctx // our own binary; stop ends it
	p.server.Dir, p.server.Env = p.dir, p.env
	p.server.Stdout, p.server.Stderr = &p.log, &p.log
	if err := p.server.Start(); err != nil {
		return fmt.Errorf("running caddy: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/live", http.NoBody)
		if err != nil {
			return fmt.Errorf("asking for life: %w", err)
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			p.stop()
			return fmt.Errorf("caddy did not come up: %w\n%s", err, p.log.String())
		}
	}
}

func (p *product) stop() {
	if p.server != nil && p.server.Process != nil {
		_ = p.server.Process.Signal(syscall.SIGTERM)
		_ = p.server.Wait()
		p.server = nil
	}
	_ = os.RemoveAll(p.dir)
}

func (*product) path(v variant) string {
	if v == proxied {
		return "/proxied"
	}
	return "/v1/chat/completions"
}

func (p *product) balance(ctx context.Context) (int64, error) {
	var wallet struct{ BalanceMicros string }
	if err := p.command(ctx, &wallet, "wallet", "show", "--org", p.org); err != nil {
		return 0, err
	}
	return strconv.ParseInt(wallet.BalanceMicros, 10, 64) //nolint:wrapcheck // the text says enough
}

func (p *product) doctor(ctx context.Context) error { return p.command(ctx, nil, "doctor") }

// ticksPerSecond is the unit of /proc/PID/stat, fixed by the kernel's interface on Linux.
const ticksPerSecond = 100

// cpu is the processor time that the product has taken so far, from /proc.
func (p *product) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.server.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time: %w", err)
	}
	// The second field is the command in parentheses and may hold spaces.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the user time: %w", err)
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the system time: %w", err)
	}
	return time.Duration(user+system) * time.Second / ticksPerSecond, nil
}
