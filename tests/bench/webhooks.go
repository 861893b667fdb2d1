package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	webhookSecret = "bench-app-secret"
	webhookPage   = "1234567890"
	// webhookCustomers write in turns.
	webhookCustomers = 10_000
	// webhookPace is the rate of the row that holds a latency, in deliveries per second.
	webhookPace = 2000
	pacedConns  = 64

	responded variant = "respond"
	queued    variant = "webhook"
)

// webhookRow is one line of the webhooks' figures.
type webhookRow struct {
	name        string
	connections int
	// rate is the figure to hold: accepted per second to what `respond` answers per second.
	rate bar
	// p99 in milliseconds, for a row at a pace of deliveries per second.
	pace int
	p99  bar
}

func webhookRows() []webhookRow {
	return []webhookRow{
		{name: "webhook, C=32", connections: 32, rate: bar{0.22, 0.35}},
		{name: "webhook, C=256", connections: 256, rate: bar{0.42, 0.55}},
		{name: "webhook at 2,000/s", connections: pacedConns, pace: webhookPace, p99: bar{50, 10}},
	}
}

// webhooks is the platform of the bench: it delivers messages that differ, and counts what was acknowledged.
type webhooks struct {
	product  *product
	servers  *servers
	made     atomic.Int64
	accepted int
}

// measure runs the rows in interleaved rounds and prints them.
func (w *webhooks) measure(ctx context.Context, b *bench, rows []webhookRow) error {
	for _, r := range rows {
		variants := []variant{responded, queued}
		if r.pace > 0 {
			variants = variants[1:]
		}
		results := map[variant][]figures{}
		for round := range b.rounds + 1 { // the first one warms up
			for _, v := range variants {
				f, err := w.load(ctx, r, v, b.slice)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", r.name, v, err)
				}
				if v == queued {
					w.accepted += f.answers
				}
				if round > 0 {
					results[v] = append(results[v], f)
				}
			}
		}
		r.report(variants, results, b.sheet)
		err := b.profile(ctx, w.product, r.name, queued, func() error {
			f, err := w.load(ctx, r, queued, b.slice)
			w.accepted += f.answers
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *webhooks) load(ctx context.Context, r webhookRow, v variant, slice time.Duration) (total figures, err error) {
	conns := make([]*deliverer, r.connections)
	for i := range conns {
		if conns[i], err = w.dial(v); err != nil {
			return total, err
		}
		defer conns[i].conn.Close() //nolint:revive // all of them are needed until the end
	}
	if ctx.Err() != nil {
		return total, context.Cause(ctx)
	}
	used, err := startMeter(ctx, w.product, w.servers)
	if err != nil {
		return total, err
	}
	began := time.Now()
	parts := make([]figures, len(conns))
	var group sync.WaitGroup
	for i, d := range conns {
		group.Go(func() { parts[i] = d.loop(began, slice, i, r) })
	}
	group.Wait()
	total.elapsed = time.Since(began)
	if total.cpu, total.servers, err = used.read(ctx); err != nil {
		return total, err
	}
	for _, part := range parts {
		total.answers += part.answers
		total.latency = append(total.latency, part.latency...)
		total.failures = append(total.failures, part.failures...)
	}
	if len(total.failures) > 0 {
		return total, fmt.Errorf("%d deliveries failed, the first with: %s", len(total.failures), total.failures[0])
	}
	return total, nil
}

// deliverer is one connection of the platform. As the bench's other clients it speaks raw HTTP/1.1.
type deliverer struct {
	*webhooks

	conn    net.Conn
	reader  *bufio.Reader
	variant variant
	body    bytes.Buffer
}

func (w *webhooks) dial(v variant) (*deliverer, error) {
	conn, err := net.Dial("tcp", w.product.address)
	if err != nil {
		return nil, fmt.Errorf("dialling: %w", err)
	}
	return &deliverer{webhooks: w, conn: conn, reader: bufio.NewReaderSize(conn, 32<<10), variant: v}, nil
}

// loop delivers until the slice is over: as fast as answers come, or at the row's pace. Then a delivery's latency counts
// from when it was due, so that a late one is not forgotten because those before it were slow.
func (d *deliverer) loop(began time.Time, slice time.Duration, index int, r webhookRow) (f figures) {
	interval := time.Duration(0)
	if r.pace > 0 {
		interval = time.Duration(r.connections) * time.Second / time.Duration(r.pace)
	}
	due := began.Add(interval * time.Duration(index) / time.Duration(r.connections))
	for time.Since(began) < slice {
		if r.pace == 0 {
			due = time.Now()
		} else if wait := time.Until(due); wait > 0 {
			<-time.After(wait)
		}
		if err := d.deliver(); err != nil {
			f.failures = append(f.failures, err.Error())
			return f
		}
		f.latency = append(f.latency, time.Since(due))
		f.answers++
		due = due.Add(interval)
	}
	return f
}

var acknowledgement = []byte(`{"ok":true,"queued":1}`)

func (d *deliverer) deliver() error {
	if err := d.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := d.conn.Write(d.request()); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	response, err := http.ReadResponse(d.reader, nil)
	if err != nil {
		return fmt.Errorf("reading the head: %w", err)
	}
	d.body.Reset()
	_, err = io.Copy(&d.body, response.Body)
	_ = response.Body.Close()
	switch {
	case err != nil:
		return fmt.Errorf("reading the body: %w", err)
	case response.StatusCode != http.StatusOK || !bytes.Equal(bytes.TrimSpace(d.body.Bytes()), acknowledgement):
		return fmt.Errorf("status %d: %.200s", response.StatusCode, d.body.Bytes())
	}
	return nil
}

// request is a delivery of a new message, signed as docs/contract.md#signatures says.
func (d *deliverer) request() []byte {
	n := d.made.Add(1)
	now := time.Now().UnixMilli()
	body := fmt.Appendf(nil, `{"object":"page","entry":[{"id":"%s","time":%d,"messaging":[{"sender":{"id":"%d"},"recipient":{"id":"%s"},`+
		`"timestamp":%d,"message":{"mid":"m_bench%d","text":"Hello, do you have this in size M? I would take two of them."}}]}]}`,
		webhookPage, now, 5_000_000+n%webhookCustomers, webhookPage, now, n)
	path := "/webhooks/social"
	if d.variant == responded {
		path = "/respond"
	}
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nX-Hub-Signature-256: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		path, d.product.address, signSocial(body), len(body))
	return append(request, body...)
}

// signSocial is the signature of a delivery of the social platform.
func signSocial(body []byte) string {
	mac := hmac.New(sha256.New, []byte(webhookSecret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func (r webhookRow) report(variants []variant, results map[variant][]figures, to *sheet) {
	reportHead(r.name, "ratio to respond")
	for _, v := range variants {
		rounds := results[v]
		reportFigures(v, rounds)
		switch base := results[responded]; {
		case v == responded:
			fmt.Println()
		case r.pace > 0:
			fmt.Printf("   p99 ms %s\n", to.judge(r.name, v, "p99 ms", percentile(rounds, .99), r.p99, true))
		default:
			ratios := make([]float64, len(rounds))
			for i := range rounds {
				ratios[i] = rounds[i].rate() / base[i].rate()
			}
			fmt.Printf("   rate %s\n", to.judge(r.name, v, "answers/s", median(ratios), r.rate, false))
		}
	}
}

// check requires that every acknowledged message is a row of the database, in one of the customers' conversations.
func (w *webhooks) check(ctx context.Context) error {
	db, err := store.Open(ctx, w.product.place.location, store.Options{})
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close(ctx) //nolint:errcheck // it was only read
	var messages, conversations, waiting int
	err = db.Reader().QueryRowContext(ctx, `SELECT (SELECT count(*) FROM messages WHERE turn_id IS NULL AND NOT handled),
		(SELECT count(*) FROM conversations), (SELECT count(*) FROM conversations WHERE run_at IS NOT NULL)`).Scan(&messages, &conversations, &waiting)
	if err != nil {
		return fmt.Errorf("counting messages: %w", err)
	}
	if messages != w.accepted || conversations > webhookCustomers || waiting != conversations {
		return fmt.Errorf("%d deliveries were acknowledged; the database has %d messages in %d conversations, of which %d are due",
			w.accepted, messages, conversations, waiting)
	}
	return nil
}

// report says what check has found to be true.
func (w *webhooks) report() {
	fmt.Printf("queue: %d deliveries acknowledged, as many messages in the database, all their conversations due\n", w.accepted)
}
