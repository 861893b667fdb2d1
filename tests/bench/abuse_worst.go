package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/markup/markuptest"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	worstRowName = "abuse, answers that are hard to render"
	// worstAccount is the account that customers write to: of the platform's types the one with the shortest messages.
	worstAccount = "951000001"
	// worstPatience bounds how long an answer may take until all of it is sent.
	worstPatience = time.Minute
)

// The processor time of a worker for one answer, in milliseconds, the most memory that it takes, in MiB, and the messages of an answer.
var (
	worstCPU      = bar{must: 1000, goal: 200}
	worstMemory   = bar{must: 400, goal: 200}
	worstMessages = bar{must: 20, goal: 20}
)

// runWorst has a worker give the worst answers, one after the other, each to another customer.
func (b *bench) runWorst(ctx context.Context) (err error) {
	t, err := startTenants(ctx, b.binary)
	if err != nil {
		return err
	}
	defer func() { err = t.product.end(err) }()
	if err := t.openAccount(ctx); err != nil {
		return err
	}
	db, err := store.Open(ctx, t.product.place.location, store.Options{})
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close(ctx) //nolint:errcheck // it was only read
	worker, err := t.product.startWorker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.stop()) }()
	if _, _, err := t.measureAnswer(ctx, db, worker, "1", "hello"); err != nil { // warms up
		return err
	}
	fmt.Printf("\n%s\n", worstRowName)
	felt := false
	for i, kind := range slices.Sorted(maps.Keys(markuptest.Worst(worstAnswer))) {
		cpu, messages, err := t.measureAnswer(ctx, db, worker, fmt.Sprint(i+2), worstPrompt+kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		felt = felt || cpu > worstCPU.must || messages > worstMessages.must
		fmt.Printf("  %-10s CPU ms %s  messages %s\n", kind, b.sheet.judge(worstRowName, variant(kind), "CPU ms", cpu, worstCPU, true),
			b.sheet.judge(worstRowName, variant(kind), "messages", messages, worstMessages, true))
	}
	most, err := memoryOf(worker.cmd.Process.Pid, "VmHWM")
	if err != nil {
		return err
	}
	fmt.Printf("  MiB at most %s\n", b.sheet.judge(worstRowName, answered, "MiB", float64(most)/1024, worstMemory, true))
	if felt || float64(most)/1024 > worstMemory.must {
		return errFelt
	}
	return t.product.doctor(ctx)
}

// openAccount connects the account with an assistant.
func (t *tenants) openAccount(ctx context.Context) error {
	var made struct{ ID string }
	bearer := http.Header{"Authorization": {"Bearer " + t.target.Key}}
	agent := map[string]any{"name": "Lan", "model": "bench/m", "instructions": "You are Lan.", "debounceSeconds": 0}
	if _, err := t.post(ctx, "/agents", bearer, agent, &made); err != nil {
		return err
	}
	_, err := t.channel(ctx, "photo_dm", `{"accessToken":"bench"}`, "--external-id", worstAccount, "--agent", made.ID)
	return err
}

// measureAnswer lets a customer write, waits until the answer is sent, and returns what it cost the worker in milliseconds of processor
// time, and its messages.
func (t *tenants) measureAnswer(ctx context.Context, db *store.DB, worker *workerProcess, customer, text string) (cpu, messages float64, err error) {
	before, err := worker.cpu()
	if err != nil {
		return 0, 0, err
	}
	first := t.product.upstream.sent.count()
	now := time.Now().UnixMilli()
	body := map[string]any{"object": "instagram", "entry": []any{map[string]any{"id": worstAccount, "time": now, "messaging": []any{map[string]any{
		"sender": map[string]string{"id": customer}, "recipient": map[string]string{"id": worstAccount}, "timestamp": now,
		"message": map[string]string{"mid": "p_" + customer, "text": text},
	}}}}}
	signed, err := json.Marshal(body)
	if err != nil {
		return 0, 0, fmt.Errorf("writing a delivery: %w", err)
	}
	if _, err := t.post(ctx, "/webhooks/social", http.Header{"X-Hub-Signature-256": {signSocial(signed)}}, body, nil); err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, worstPatience)
	defer cancel()
	for {
		var stored, left int
		err := db.Reader().QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE state <> 'sent') FROM outbound_messages`).Scan(&stored, &left)
		if err != nil {
			return 0, 0, fmt.Errorf("waiting for the answer: %w", err)
		}
		if stored > first && left == 0 {
			break
		}
		<-time.After(memoryLooks)
	}
	after, err := worker.cpu()
	return float64((after - before).Milliseconds()), float64(t.product.upstream.sent.count() - first), err
}
