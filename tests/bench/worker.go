package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	workerRowName = "worker beside 128 clients on one SQLite file"
	workerClients = 128
	// workerPatience bounds how long the second process may take to come up, and to end.
	workerPatience = 30 * time.Second

	workerAlone  variant = "worker alone"
	clientsAlone variant = "clients alone"
	together     variant = "together"
)

// workerBar is what one write of the worker may take beside saturated clients, p99 in milliseconds.
var workerBar = bar{must: 100, goal: 20}

// workerFigures are what one slice showed.
type workerFigures struct {
	clients figures
	writes  []time.Duration
}

// runWorker measures what a worker's writes wait for while clients saturate /v1 with strict money on the same SQLite
// file. It has a product of its own: the worker leases whatever is due in the whole database.
func (b *bench) runWorker(ctx context.Context) (err error) {
	at, err := newPlace(ctx, store.SQLite, "")
	if err != nil {
		return err
	}
	product, err := startProduct(ctx, b.binary, at)
	if err != nil {
		return err
	}
	defer func() { err = product.end(err) }()
	start, err := product.balance(ctx)
	if err != nil {
		return err
	}
	served := &books{startMicros: start}
	writes := 0
	variants := []variant{workerAlone, clientsAlone, together}
	results := map[variant][]workerFigures{}
	for round := range b.rounds + 1 { // the first one warms up
		for _, v := range variants {
			f, err := loadWorker(ctx, product, v, b.slice)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", workerRowName, v, err)
			}
			served.add(paid, f.clients)
			writes += len(f.writes)
			if round > 0 {
				results[v] = append(results[v], f)
			}
		}
	}
	reportWorker(variants, results, b.sheet)
	if err := served.check(ctx, product); err != nil {
		return err
	}
	served.report()
	fmt.Printf("worker: %d writes of its turns, none refused; the doctor's look at the queue is clean\n", writes)
	return nil
}

// loadWorker runs the clients, the worker, or both for a slice.
func loadWorker(ctx context.Context, p *product, v variant, slice time.Duration) (f workerFigures, err error) {
	var second *secondProcess
	if v != clientsAlone {
		if second, err = startSecondProcess(ctx, p); err != nil {
			return f, err
		}
		defer second.kill()
	}
	if v == workerAlone {
		<-time.After(slice)
	} else {
		f.clients, err = load(ctx, p, new(servers), row{connections: workerClients}, paid, slice)
		if err != nil {
			return f, err
		}
	}
	if second != nil {
		f.writes, err = second.finish()
	}
	return f, err
}

// secondProcess is this program, started again as the worker of a product.
type secondProcess struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	stdin  io.WriteCloser
	stdout *json.Decoder
	stderr bytes.Buffer
}

// startSecondProcess returns once the process has the database open and begins to write.
func startSecondProcess(ctx context.Context, p *product) (*secondProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*workerPatience)
	s := &secondProcess{cancel: cancel}
	s.cmd = exec.CommandContext(ctx, self, "-writer") //nolint:gosec // ourselves
	s.cmd.Env = p.env
	s.cmd.Stderr = &s.stderr
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		cancel()
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	s.stdout = json.NewDecoder(stdout)
	if err := s.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("starting the second process: %w", err)
	}
	order := writerOrder{Database: p.place.location.DSN, OrgID: p.org, ChannelID: p.channel}
	var ready bool
	err = errors.Join(json.NewEncoder(s.stdin).Encode(order), s.stdout.Decode(&ready))
	if err != nil {
		s.kill()
		return nil, fmt.Errorf("the second process did not come up: %w\n%s", err, s.stderr.String())
	}
	return s, nil
}

// finish ends the process and returns how long each of its writes took.
func (s *secondProcess) finish() ([]time.Duration, error) {
	var writes []time.Duration
	err := errors.Join(s.stdin.Close(), s.stdout.Decode(&writes))
	if waited := s.cmd.Wait(); waited != nil || err != nil {
		return nil, fmt.Errorf("the second process failed: %w\n%s", errors.Join(err, waited), s.stderr.String())
	}
	if len(writes) == 0 {
		return nil, errors.New("the second process wrote nothing")
	}
	return writes, nil
}

// kill ends what finish has not.
func (s *secondProcess) kill() {
	s.cancel()
	_ = s.cmd.Wait()
}

func reportWorker(variants []variant, results map[variant][]workerFigures, to *sheet) {
	fmt.Printf("\n%s\n  %-18s %10s %10s %10s %10s %10s   %s\n", workerRowName,
		"variant", "answers/s", "writes/s", "p50 ms", "p99 ms", "max ms", "one write of the worker")
	for _, v := range variants {
		var all []time.Duration
		var clients []figures
		var lasted time.Duration
		for _, f := range results[v] {
			all = append(all, f.writes...)
			clients = append(clients, f.clients)
			lasted += f.clients.elapsed
		}
		slices.Sort(all)
		fmt.Printf("  %-18s", v)
		if v == workerAlone {
			fmt.Printf(" %10s", "")
		} else {
			fmt.Printf(" %10.0f", median(each(clients, figures.rate)))
		}
		if v == clientsAlone {
			fmt.Println()
			continue
		}
		rate := ""
		if lasted > 0 {
			rate = fmt.Sprintf("%.0f", float64(len(all))/lasted.Seconds())
		}
		p99 := at(all, .99)
		fmt.Printf(" %10s %10.2f %10.2f %10.2f", rate, at(all, .5), p99, at(all, 1))
		if v == together {
			ratios := make([]float64, len(clients))
			for i := range clients {
				ratios[i] = clients[i].rate() / results[clientsAlone][i].clients.rate()
			}
			fmt.Printf("   p99 ms %s  answers/s to clients alone %.2f", to.judge(workerRowName, v, "p99 ms", p99, workerBar, true), median(ratios))
		}
		fmt.Println()
	}
}

// at is the value of sorted durations at a share of them, in milliseconds.
func at(sorted []time.Duration, share float64) float64 {
	return float64(sorted[int(share*float64(len(sorted)-1))].Microseconds()) / 1000
}

const (
	pacedRowName = "bot answers, one at a time"
	// pacedEvery is the time between two customers' messages, and pacedAnswers the number of messages in a round.
	pacedEvery   = 250 * time.Millisecond
	pacedAnswers = 40
	pacedRounds  = 3
	// backlogSecret is in the deliveries of a bot's platform.
	backlogSecret = "bench-0123456789abcdef"

	delivered variant = "product and worker"
)

// pacedBar limits the processor time of both processes for an answer, in milliseconds.
var pacedBar = bar{2, 1.5}

// runPaced measures the processor time of an answer of a bot: the delivery, the model's call and the sending. Customers write one after the
// other, so no answer shares a commit.
func (b *bench) runPaced(ctx context.Context) (err error) {
	l, err := openBacklog(ctx, b.binary, backlogRow{engine: store.SQLite, organizations: 1})
	if err != nil {
		return err
	}
	defer func() { err = l.end(ctx, err) }()
	worker, err := l.product.startWorker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.stop()) }()
	results := make([]figures, 0, pacedRounds)
	for round := range pacedRounds + 1 { // the first one warms up
		f, err := l.paced(ctx, worker)
		if err != nil {
			return err
		}
		if round > 0 {
			results = append(results, f)
		}
	}
	reportHead(pacedRowName, "both processes")
	reportFigures(delivered, results)
	cpu := median(each(results, figures.cpuPerAnswer)) / 1000
	fmt.Printf("   cpu ms %s\n", b.sheet.judge(pacedRowName, delivered, "CPU ms per answer", cpu, pacedBar, true))
	return l.check(ctx)
}

// paced delivers messages, each from another customer, and waits for the answer to each.
func (l *backlog) paced(ctx context.Context, worker *workerProcess) (f figures, err error) {
	before, err := l.bothCPU(worker)
	if err != nil {
		return f, err
	}
	began := time.Now()
	pace := time.NewTicker(pacedEvery)
	defer pace.Stop()
	for range pacedAnswers {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return f, context.Cause(ctx)
		}
		l.made++
		wrote := time.Now()
		if err := l.deliver(ctx, l.made); err != nil {
			return f, err
		}
		select {
		case <-l.product.upstream.sent.reaches(l.made):
		case <-time.After(workerPatience):
			return f, errors.New("the worker answers nobody")
		case <-ctx.Done():
			return f, context.Cause(ctx)
		}
		f.latency = append(f.latency, time.Since(wrote))
	}
	f.answers, f.elapsed = pacedAnswers, time.Since(began)
	f.cpu, err = l.bothCPU(worker)
	f.cpu -= before
	return f, err
}

// bothCPU returns the processor time that the product and its worker have taken so far.
func (l *backlog) bothCPU(worker *workerProcess) (time.Duration, error) {
	product, err := l.product.cpu()
	if err != nil {
		return 0, err
	}
	beside, err := worker.cpu()
	return product + beside, err
}

// deliver is a bot platform's request with a text of the customer.
func (l *backlog) deliver(ctx context.Context, customer int) error {
	body := fmt.Sprintf(`{"update_id":%[1]d,"message":{"message_id":%[1]d,"from":{"id":%[1]d,"is_bot":false,"first_name":"Lan"},`+
		`"chat":{"id":%[1]d,"type":"private","first_name":"Lan"},"date":%[2]d,"text":"Do you have this in size M?"}}`, customer, time.Now().Unix())
	address := "http://" + l.product.address + "/webhooks/bot/" + l.routes[0].ChannelID
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("making a delivery: %w", err)
	}
	r.Header.Set("X-Bot-Api-Secret-Token", backlogSecret)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("delivering: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("delivering %s: status %d, %s (%w)", strconv.Itoa(customer), answer.StatusCode, text, err)
	}
	return nil
}
