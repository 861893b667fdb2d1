package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

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

// runPaced measures the processor time of an answer of a bot whose customers write one after the other, so that nothing is shared with another
// answer: the delivery, the model's call and the sending.
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
