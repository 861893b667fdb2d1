package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// backlogDelivery is how many customers' messages are stored in one transaction when a queue is filled, and backlogWriters how
	// many deliveries are under way.
	backlogDelivery = 250
	backlogWriters  = 4
	// backlogWarm is how many answers a worker gives before it is measured.
	backlogWarm = 100
	// backlogChannels is how many bots all organizations have: a worker keeps each bot's pace.
	backlogChannels = 1_000
	// backlogConnections are those of the row's measure, `respond`.
	backlogConnections = 32

	answered variant = "worker"
)

// backlogCaddyfile is a product whose worker asks a model in its own process, which costs money, and whose platform is the bench.
const backlogCaddyfile = `{
	admin %[4]s
	persist_config off
	log {
		level ERROR
	}
	svc {
		base_url http://127.0.0.1
		%[3]s
		master_key {env.BENCH_MASTER_KEY}
		plan bench {
		}
		plan counted {
		}
		plan budgeted {
		}
		provider echo {
			protocol echo
		}
		provider bench {
			protocol openai
			base_url http://%[2]s/v1
			api_key none
		}
		model echo/m {
			context_window 128000
			max_output_tokens 4096
			price_input 150000
			price_output 600000
		}
		platform bot {
			api_base http://%[2]s
		}
		platform social {
			app_secret {env.BENCH_APP_SECRET}
			verify_token {env.BENCH_APP_SECRET}
		}
	}
}
http://%[1]s {
	bind 127.0.0.1
	handle /respond {
		respond "{\"ok\":true,\"queued\":1}"
	}
	handle /webhooks/bot/* {
		svc_webhook bot
	}
	handle /live {
		svc_health live
	}
}
`

// backlogRow is a queue with so many customers waiting, of so many organizations.
type backlogRow struct {
	engine                 store.Engine
	waiting, organizations int
}

func (r backlogRow) name() string {
	organizations := "1 organization"
	if r.organizations > 1 {
		organizations = "1,000 organizations"
	}
	return fmt.Sprintf("backlog, %s, %s, %s waiting", r.engine, organizations, backlogSizes[r.waiting])
}

var backlogSizes = map[int]string{1_000: "1 k", 100_000: "100 k", 1_000_000: "1 M"}

// backlogRows are the rows whose name contains only, by their product. A queue of a million takes too long to be measured unless it is
// asked for by its size.
func backlogRows(only string) (all [][]backlogRow) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		for _, organizations := range []int{1, 1_000} {
			var rows []backlogRow
			for _, waiting := range []int{1_000, 100_000, 1_000_000} {
				r := backlogRow{engine, waiting, organizations}
				asked := waiting < 1_000_000 || strings.Contains(only, backlogSizes[waiting])
				if asked && strings.Contains(r.name(), only) {
					rows = append(rows, r)
				}
			}
			if len(rows) > 0 {
				all = append(all, rows)
			}
		}
	}
	return all
}

// bars are what an answer may cost the worker in milliseconds of processor time, and how many a second it must give.
func (r backlogRow) bars() (cpu, rate bar) {
	if r.engine == store.Postgres {
		return bar{0.8, 0.5}, bar{}
	}
	return bar{1.0, 0.6}, bar{1000, 2000}
}

// runBacklog measures what an answer costs a worker, and how many a second it gives, beside queues of any length.
func (b *bench) runBacklog(ctx context.Context, all [][]backlogRow) error {
	for _, rows := range all {
		place := house{engine: rows[0].engine}
		if absent := place.absent(); absent != "" {
			fmt.Printf("\nthe rows of backlog on %s are left out: %s is not set (scripts/services.sh sets it)\n", place.engine, absent)
			continue
		}
		if err := b.runBacklogs(ctx, rows); err != nil {
			return fmt.Errorf("%s: %w", rows[0].name(), err)
		}
	}
	return nil
}

// runBacklogs measures the rows of one product, whose queue grows.
func (b *bench) runBacklogs(ctx context.Context, rows []backlogRow) (err error) {
	l, err := openBacklog(ctx, b.binary, rows[0])
	if err != nil {
		return err
	}
	defer func() { err = l.end(ctx, err) }()
	shortest := 0.0
	for _, r := range rows {
		results := map[variant][]figures{}
		for round := range b.rounds + 1 { // the first one warms up
			measure, err := l.respond.load(ctx, webhookRow{connections: backlogConnections}, responded, b.slice)
			if err != nil {
				return err
			}
			f, err := l.answer(ctx, r.waiting, b.slice)
			if err != nil {
				return err
			}
			if round > 0 {
				results[responded] = append(results[responded], measure)
				results[answered] = append(results[answered], f)
			}
		}
		cpu := r.report(results, shortest, b.sheet)
		if shortest == 0 {
			shortest = cpu
		}
	}
	return l.check(ctx)
}

// report prints a row and returns the milliseconds of processor time of an answer; shortest is that of the shortest queue, or 0.
func (r backlogRow) report(results map[variant][]figures, shortest float64, to *sheet) float64 {
	name := r.name()
	reportHead(name, "worker")
	reportFigures(responded, results[responded])
	base, rounds := results[responded], results[answered]
	ratios := make([]float64, len(rounds))
	for i := range rounds {
		ratios[i] = rounds[i].rate() / base[i].rate()
	}
	cpu := median(each(rounds, figures.cpuPerAnswer)) / 1000
	forCPU, forRate := r.bars()
	fmt.Printf("\n  %-20s %10.0f %10.0f %10.0f %10s %10s   cpu ms %s  answers/s %s  to respond %s", answered, 1000*cpu,
		median(each(rounds, figures.serversPerAnswer)), median(each(rounds, figures.rate)), "", "",
		to.judge(name, answered, "CPU ms per answer", cpu, forCPU, true),
		to.judge(name, answered, "answers/s", median(each(rounds, figures.rate)), forRate, false),
		to.judge(name, answered, "answers/s to respond", median(ratios), bar{}, false))
	if shortest > 0 {
		fmt.Printf("  cpu to the shortest queue %s", to.judge(name, answered, "CPU to the shortest queue", cpu/shortest, bar{1.2, 1.1}, true))
	}
	fmt.Println()
	return cpu
}

// backlog is a product whose organizations' customers wait for a worker. Each customer writes once.
type backlog struct {
	product *product
	servers *servers
	respond *webhooks
	db      *store.DB
	queue   *inbox.Queue
	routes  []store.Route
	made    int // customers
}

func openBacklog(ctx context.Context, binary string, r backlogRow) (l *backlog, err error) {
	at, err := newPlace(ctx, r.engine, "")
	if err != nil {
		return nil, err
	}
	p, err := startProductWith(ctx, binary, at, backlogCaddyfile)
	if err != nil {
		return nil, err
	}
	l = &backlog{product: p}
	defer func() {
		if err != nil {
			l, err = nil, l.end(ctx, err)
		}
	}()
	if l.servers, err = serversOf(ctx, at); err != nil {
		return l, err
	}
	l.respond = &webhooks{product: p, servers: l.servers}
	if l.db, err = store.Open(ctx, at.location, store.Options{Kinds: []store.Kind{inbox.Kind, billing.Ledger}}); err != nil {
		return l, fmt.Errorf("opening the database: %w", err)
	}
	ring, err := vault.ParseRing(p.masterKey)
	if err != nil {
		return l, fmt.Errorf("reading the master key: %w", err)
	}
	l.queue = inbox.New(l.db, ring)
	l.routes = make([]store.Route, backlogChannels)
	each := backlogChannels / r.organizations
	return l, inParallel(backlogWriters*4, r.organizations, func(i int) error {
		return l.organization(ctx, ring, i, l.routes[i*each:(i+1)*each])
	})
}

// organization makes one with credits, and an assistant on as many bots as routes.
func (l *backlog) organization(ctx context.Context, ring *vault.Ring, i int, routes []store.Route) error {
	org, agent := store.NewID("org"), store.NewID("agt")
	const actor = "bench"
	err := l.db.Organizations.Create(ctx, actor, store.Organization{ID: org, Name: "bench " + strconv.Itoa(i), Plan: "bench"})
	if err != nil {
		return fmt.Errorf("making an organization: %w", err)
	}
	_, err = billing.NewBook(l.db).Credit(ctx, actor, billing.WalletID{OrgID: org, Env: store.Live}, 1_000_000_000_000, "bench")
	if err != nil {
		return fmt.Errorf("crediting: %w", err)
	}
	err = l.db.Agents.Create(ctx, actor, store.Agent{
		ID: agent, OrgID: org, Name: "Mai", Model: "echo/m", Instructions: "You are Mai.", MaxTokens: 200, DebounceMS: 1, DebounceMaxMS: 1,
	})
	if err != nil {
		return fmt.Errorf("making an assistant: %w", err)
	}
	for n := range routes {
		if routes[n], err = l.bot(ctx, ring, org, agent, strconv.Itoa(i*len(routes)+n+1)); err != nil {
			return err
		}
	}
	return nil
}

// bot makes a channel with the number as its bot's.
func (l *backlog) bot(ctx context.Context, ring *vault.Ring, org, agent, number string) (route store.Route, err error) {
	channel := store.NewID("chn")
	credentials, err := json.Marshal(map[string]string{"botToken": number + ":bench", "secretToken": backlogSecret})
	if err != nil {
		return route, fmt.Errorf("writing credentials: %w", err)
	}
	err = l.db.Channels.Create(ctx, "bench", store.Channel{
		ID: channel, OrgID: org, Type: "bot", Name: "bot " + number, ExternalID: number, AgentID: agent, State: store.ChannelActive,
		Credentials: ring.Seal(credentials, vault.ChannelCredentials(org, channel)),
	}, 0)
	if err != nil {
		return route, fmt.Errorf("making a channel: %w", err)
	}
	route, _, err = l.db.Routes.ByID(ctx, channel)
	return route, err
}

// inParallel calls do for 0 to n-1, so many at a time, and returns the first errors.
func inParallel(workers, n int, do func(i int) error) error {
	errs := make([]error, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// fill lets customers write until so many wait.
func (l *backlog) fill(ctx context.Context, waiting int) error {
	first := l.made
	missing := waiting - (l.made - l.product.upstream.sent.count())
	l.made += missing
	return inParallel(backlogWriters, (missing+backlogDelivery-1)/backlogDelivery, func(delivery int) error {
		var arrivals []inbox.Arrival
		for i := delivery * backlogDelivery; i < min((delivery+1)*backlogDelivery, missing); i++ {
			customer := strconv.Itoa(first + i + 1)
			arrivals = append(arrivals, inbox.Arrival{Route: l.routes[(first+i)%len(l.routes)], Items: []inbox.Item{{
				Kind: platforms.Text, CustomerRef: customer, Address: customer, MessageID: customer,
				Text: "Hello, do you have this in size M? I would take two of them.",
			}}})
		}
		return l.queue.Enqueue(ctx, arrivals)
	})
}

// answer runs a worker beside a queue of so many customers, for a slice or until half of them have been answered.
func (l *backlog) answer(ctx context.Context, waiting int, slice time.Duration) (f figures, err error) {
	if err := l.fill(ctx, waiting); err != nil {
		return f, fmt.Errorf("filling the queue: %w", err)
	}
	worker, err := l.product.startWorker()
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, worker.stop()) }()
	sent := &l.product.upstream.sent
	select {
	case <-sent.reaches(sent.count() + min(backlogWarm, waiting/10)):
	case <-time.After(workerPatience):
		return f, errors.New("the worker answers nobody")
	case <-ctx.Done():
		return f, context.Cause(ctx)
	}
	servers, err := l.servers.cpu(ctx)
	if err != nil {
		return f, err
	}
	before, err := worker.cpu()
	if err != nil {
		return f, err
	}
	began, first := time.Now(), sent.count()
	select {
	case <-sent.reaches(first + waiting/2):
	case <-time.After(slice):
	case <-ctx.Done():
		return f, context.Cause(ctx)
	}
	f.answers, f.elapsed = sent.count()-first, time.Since(began)
	if f.cpu, err = worker.cpu(); err != nil {
		return f, err
	}
	f.cpu -= before
	f.servers, err = l.servers.cpu(ctx)
	f.servers -= servers
	return f, err
}

// workerProcess is a worker of the product.
type workerProcess struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

func (p *product) startWorker() (*workerProcess, error) {
	w := &workerProcess{cmd: exec.Command(p.binary, "svc-worker", "--config", filepath.Join(p.dir, "Caddyfile"))} //nolint:gosec,noctx // our own binary; stop ends it
	w.cmd.Dir, w.cmd.Env = p.dir, p.env
	w.cmd.Stdout, w.cmd.Stderr = &w.log, &w.log
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	return w, nil
}

// cpu is the processor time that the worker has taken so far.
func (w *workerProcess) cpu() (time.Duration, error) {
	stat, err := readStat(w.cmd.Process.Pid)
	return stat.own, err
}

// stop lets the worker finish what it has begun.
func (w *workerProcess) stop() error {
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(workerPatience, func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("the worker: %w\nits log ends with:\n%s", err, w.log.Bytes()[max(0, w.log.Len()-logTail):])
	}
	return nil
}

// check requires that every customer who was answered got one answer, which was charged, and that the others still wait. Calls refused
// with provider_busy are made again.
func (l *backlog) check(ctx context.Context) error {
	sent := &l.product.upstream.sent
	answers, twice := sent.count(), sent.repeated()
	var stored, calls, free, waiting int
	err := l.db.Reader().QueryRowContext(ctx, `SELECT (SELECT count(*) FROM outbound_messages WHERE state = 'sent'),
		(SELECT count(*) FROM calls WHERE outcome <> 'provider_busy'),
		(SELECT count(*) FROM calls WHERE outcome <> 'provider_busy' AND charged_micros <= 0),
		(SELECT count(*) FROM messages WHERE NOT handled AND
			(turn_id IS NULL OR turn_id NOT IN (SELECT turn_id FROM outbound_messages WHERE turn_id IS NOT NULL)))`).Scan(&stored, &calls, &free, &waiting)
	if err != nil {
		return fmt.Errorf("counting answers: %w", err)
	}
	if twice > 0 || stored != answers || calls != answers || free > 0 || waiting != l.made-answers {
		return fmt.Errorf("%d customers wrote and %d got an answer, %d of them more than one; the database has %d sent answers and %d calls, "+
			"%d of them without a charge, and %d messages that wait", l.made, answers, twice, stored, calls, free, waiting)
	}
	if err := l.product.doctor(ctx); err != nil {
		return err
	}
	fmt.Printf("queue: %d customers answered once each, as many calls charged; %d still wait; doctor clean\n", answers, waiting)
	return nil
}

// end closes what was opened; a fault of the run is returned with what the product's log says of it.
func (l *backlog) end(ctx context.Context, fault error) error {
	if l.db != nil {
		fault = errors.Join(fault, l.db.Close(context.WithoutCancel(ctx)))
	}
	if l.servers != nil {
		fault = errors.Join(fault, l.servers.close())
	}
	return l.product.end(fault)
}

// sendings are the messages that the bench's platform got, by customer.
type sendings struct {
	mu    sync.Mutex
	to    map[string]int
	n     int
	goals []sendingsGoal
}

// sendingsGoal is closed when so many messages have come.
type sendingsGoal struct {
	n       int
	reached chan struct{}
}

// add notes a message and returns its number.
func (s *sendings) add(customer string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == nil {
		s.to = map[string]int{}
	}
	s.to[customer]++
	s.n++
	s.goals = slices.DeleteFunc(s.goals, func(g sendingsGoal) bool {
		if s.n >= g.n {
			close(g.reached)
		}
		return s.n >= g.n
	})
	return s.n
}

func (s *sendings) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// repeated is how many customers got more than one message.
func (s *sendings) repeated() (customers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n - len(s.to)
}

// reaches is closed when n messages have come.
func (s *sendings) reaches(n int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	goal := sendingsGoal{n: n, reached: make(chan struct{})}
	if s.n >= n {
		close(goal.reached)
		return goal.reached
	}
	s.goals = append(s.goals, goal)
	return goal.reached
}
