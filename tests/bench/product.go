package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
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

// product is the built binary, its upstream, and three organizations that have credits and a key each: one without limits,
// one whose requests are counted, and one with budgets.
type product struct {
	binary   string
	dir      string
	place    *place
	upstream *upstream
	address  string
	key      string
	org      string
	// countedKey and countedOrg are those of the organization under a limit that no run can reach.
	countedKey, countedOrg string
	// budgetedKey and budgetedOrg are those of the organization with budgets that no run can reach.
	budgetedKey, budgetedOrg string
	channel                  string // of the social platform
	masterKey                string
	env                      []string
	server                   *exec.Cmd
	log                      bytes.Buffer
	// stock is stock Caddy before the same upstream, nil unless rows are measured against it.
	stock *product
}

// stockCaddyfile has as little as a site with a reverse_proxy can have.
const stockCaddyfile = `{
	admin %[3]s
	persist_config off
	log {
		level ERROR
	}
}
http://%[1]s {
	bind 127.0.0.1
	handle /live {
		respond ""
	}
	handle {
		reverse_proxy %[2]s
	}
}
`

// startStock runs stock Caddy in a process of its own: a reverse_proxy in the product's process has the product's heap collected, as
// often as gc_floor lets it.
func (p *product) startStock(ctx context.Context, binary string) (err error) {
	s := &product{place: &place{drop: func() error { return nil }}, key: p.key, env: os.Environ()}
	defer func() {
		if err != nil {
			err = s.end(fmt.Errorf("starting stock Caddy: %w", err))
		}
	}()
	if s.binary, err = filepath.Abs(binary); err != nil {
		return fmt.Errorf("finding the binary: %w", err)
	}
	if s.dir, err = os.MkdirTemp("", "svc-bench-"); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if s.address, err = freeAddress(); err != nil {
		return err
	}
	text := fmt.Sprintf(stockCaddyfile, s.address, p.upstream.address, "unix/"+s.adminSocket())
	if err := os.WriteFile(filepath.Join(s.dir, "Caddyfile"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the Caddyfile: %w", err)
	}
	p.stock = s
	return s.start(ctx)
}

// gcFloor is the gc_floor of the rows' products: the default, unless BENCH_GC_FLOOR has another.
func gcFloor() string { return cmp.Or(os.Getenv("BENCH_GC_FLOOR"), "32MiB") }

const caddyfile = `{
	admin %[4]s
	persist_config off
	log {
		level ERROR
	}
	svc {
		base_url http://127.0.0.1
		%[3]s
		memory {
			gc_floor {$BENCH_GC_FLOOR}
		}
		master_key {env.BENCH_MASTER_KEY}
		limits {
			calls 1000000
		}
		plan bench {
		}
		plan grown {
		}
		plan budgeted {
		}
		plan counted {
			requests_per_minute 1000000000
		}
		provider bench {
			protocol openai
			base_url http://%[2]s/v1
			api_key none
			max_calls 1000000
		}
		model bench/m {
			context_window 128000
			max_output_tokens 4096
			price_input 150000
			price_output 600000
		}
		provider anthropic {
			protocol anthropic
			base_url http://%[2]s
			api_key none
			max_calls 1000000
		}
		model anthropic/m {
			context_window 128000
			max_output_tokens 4096
			price_input 150000
			price_output 600000
		}
		provider gemini {
			protocol gemini
			base_url http://%[2]s/v1beta
			api_key none
			max_calls 1000000
		}
		model gemini/m {
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
	handle /keyed {
		svc_auth chat:write
		reverse_proxy %[2]s
	}
	handle /counted {
		svc_auth chat:write
		svc_rate_limit
		reverse_proxy %[2]s
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
	handle_errors {
		svc_error
	}
}
`

// startProduct runs the binary with its state at a place, which it takes over: stop drops it.
func startProduct(ctx context.Context, binary string, at *place) (*product, error) {
	return startProductWith(ctx, binary, at, caddyfile)
}

// startProductWith is startProduct with another Caddyfile, a format of the same arguments.
func startProductWith(ctx context.Context, binary string, at *place, format string) (p *product, err error) {
	p = &product{place: at}
	defer func() {
		if err != nil {
			p, err = nil, p.end(fmt.Errorf("starting the product: %w", err))
		}
	}()
	if p.binary, err = filepath.Abs(binary); err != nil {
		return p, fmt.Errorf("finding the binary: %w", err)
	}
	if p.upstream, err = startUpstream(); err != nil {
		return p, fmt.Errorf("starting the upstream: %w", err)
	}
	if p.dir, err = os.MkdirTemp("", "svc-bench-"); err != nil {
		return p, fmt.Errorf("making a folder: %w", err)
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	p.masterKey = base64.StdEncoding.EncodeToString(secret)
	p.env = append(os.Environ(), masterKeyVariable+"="+p.masterKey, "HOME="+p.dir, "BENCH_GC_FLOOR="+gcFloor(),
		"BENCH_APP_SECRET="+webhookSecret, "BENCH_DSN="+at.location.DSN, "BENCH_REDIS="+at.redis)
	if p.address, err = freeAddress(); err != nil {
		return p, err
	}
	text := fmt.Sprintf(format, p.address, p.upstream.address, at.options(), "unix/"+p.adminSocket())
	if err := os.WriteFile(filepath.Join(p.dir, "Caddyfile"), []byte(text), 0o600); err != nil {
		return p, fmt.Errorf("writing the Caddyfile: %w", err)
	}
	if err := p.provision(ctx); err != nil {
		return p, err
	}
	return p, p.start(ctx)
}

// freeAddress asks the kernel for a port. Another process may take it meanwhile; the start then fails visibly.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// provision makes the organizations, their credits and keys, and a channel.
func (p *product) provision(ctx context.Context) (err error) {
	if err := p.command(ctx, nil, "migrate"); err != nil {
		return err
	}
	if p.org, p.key, err = p.organization(ctx, "bench"); err != nil {
		return err
	}
	if p.countedOrg, p.countedKey, err = p.organization(ctx, "counted"); err != nil {
		return err
	}
	if p.budgetedOrg, p.budgetedKey, err = p.budgeted(ctx); err != nil {
		return err
	}
	file := filepath.Join(p.dir, "vendor.key")
	if err := os.WriteFile(file, []byte("sk-bench"), 0o600); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	if err := p.command(ctx, nil, "provider-key", "set", "--org", p.org, "--provider", "bench", "--key-file", file); err != nil {
		return err
	}
	file = filepath.Join(p.dir, "page.json")
	if err := os.WriteFile(file, []byte(`{"accessToken":"bench"}`), 0o600); err != nil {
		return fmt.Errorf("writing a token: %w", err)
	}
	var channel struct{ ID string }
	err = p.command(ctx, &channel, "channel", "create", "--org", p.org, "--type", "social_messenger", "--name", "bench",
		"--external-id", webhookPage, "--credentials-file", file)
	p.channel = channel.ID
	return err
}

// organization makes one on a plan of the same name, with credits.
func (p *product) organization(ctx context.Context, plan string) (id, key string, err error) {
	var org struct{ ID string }
	var made struct{ Key string }
	if err := p.command(ctx, &org, "org", "create", "--name", plan, "--plan", plan); err != nil {
		return "", "", err
	}
	if err := p.command(ctx, nil, "wallet", "credit", "--org", org.ID, "--micros", "1000000000000", "--ref", "bench"); err != nil {
		return "", "", err
	}
	err = p.command(ctx, &made, "key", "create", "--org", org.ID)
	return org.ID, made.Key, err
}

// budgeted makes an organization with three budgets that count each call.
func (p *product) budgeted(ctx context.Context) (id, key string, err error) {
	if id, key, err = p.organization(ctx, "budgeted"); err != nil {
		return "", "", err
	}
	var keys struct{ Data []struct{ ID string } }
	if err := p.command(ctx, &keys, "key", "list", "--org", id); err != nil {
		return "", "", err
	}
	for period, owner := range map[string][]string{"day": nil, "month": nil, "total": {"--key-id", keys.Data[0].ID}} {
		err := p.command(ctx, nil, append([]string{
			"budget", "create", "--org", id, "--name", period, "--period", period, "--limit-micros", "1000000000000",
		}, owner...)...)
		if err != nil {
			return "", "", err
		}
	}
	return id, key, nil
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
			return fmt.Errorf("caddy did not come up: %w", err)
		}
	}
}

// logTail is how much of the product's log is shown when something fails.
const logTail = 2000

// end stops the product; a fault of the run is returned with what the log says of it.
func (p *product) end(fault error) error {
	err := errors.Join(fault, p.stop())
	if text := p.log.Bytes(); err != nil && len(text) > 0 {
		return fmt.Errorf("%w\nthe product's log ends with:\n%s", err, text[max(0, len(text)-logTail):])
	}
	return err
}

// stop ends what was started, and drops the place.
func (p *product) stop() error {
	var stock error
	if p.stock != nil {
		stock = p.stock.stop()
	}
	if p.server != nil && p.server.Process != nil {
		_ = p.server.Process.Signal(syscall.SIGTERM)
		_ = p.server.Wait()
	}
	if p.upstream != nil {
		p.upstream.stop()
	}
	return errors.Join(stock, p.place.drop(), os.RemoveAll(p.dir))
}

// adminSocket is where the product can be asked for profiles.
func (p *product) adminSocket() string { return filepath.Join(p.dir, "admin.sock") }

// request is what variant v of a row sends again and again.
func (p *product) request(v variant, r row) []byte {
	path, key := "/v1/chat/completions", p.key
	switch v {
	case stock, proxied:
		path = "/proxied"
	case keyed:
		path = "/keyed"
	case counted:
		path, key = "/counted", p.countedKey
	case paidCounted:
		key = p.countedKey
	case paidBudgeted:
		key = p.budgetedKey
	default:
	}
	text := prompt
	if r.long {
		text = longPrompt
	}
	b := request(p.address, path, key, text, v, r.stream)
	if v == paidOnce {
		head, rest, _ := bytes.Cut(b, []byte("\r\n"))
		b = fmt.Appendf(nil, "%s\r\nIdempotency-Key: %s\r\n%s", head, idempotencyMark, rest)
	}
	return b
}

// balance is what the organizations have together, in micros.
func (p *product) balance(ctx context.Context) (total int64, err error) {
	for _, org := range []string{p.org, p.countedOrg, p.budgetedOrg} {
		var wallet struct{ BalanceMicros string }
		if err := p.command(ctx, &wallet, "wallet", "show", "--org", org); err != nil {
			return 0, err
		}
		micros, err := strconv.ParseInt(wallet.BalanceMicros, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the balance: %w", err)
		}
		total += micros
	}
	return total, nil
}

func (p *product) doctor(ctx context.Context) error { return p.command(ctx, nil, "doctor") }

// cpu is the processor time that the product has taken so far.
func (p *product) cpu() (time.Duration, error) {
	stat, err := readStat(p.server.Process.Pid)
	return stat.own, err
}
