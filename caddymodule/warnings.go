package caddymodule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/egress"
	"github.com/caddy-svc/caddy-svc/internal/events"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// weakSecretLength is the number of bytes below which a secret could be guessed: 16 random characters have 80 bits or more.
const weakSecretLength = 16

// otherReaders is the permission by which any account of the machine reads a file.
const otherReaders = 0o004

// namedSecret is a reference of the configuration and its path.
type namedSecret struct {
	path      string
	reference config.Secret
	// location: it is an address with a password, so its length says nothing.
	location bool
}

// secrets returns all references to secrets in the configuration, even empty ones.
func (a *App) secrets() []namedSecret {
	all := []namedSecret{{path: "svc.master_key", reference: a.MasterKey}}
	if a.Store != nil {
		all = append(all, namedSecret{"svc.store.dsn", a.Store.DSN, true}, namedSecret{"svc.store.direct", a.Store.Direct, true})
	}
	if a.Redis != nil {
		all = append(all, namedSecret{"svc.redis.url", a.Redis.URL, true}, namedSecret{path: "svc.redis.password", reference: a.Redis.Password},
			namedSecret{path: "svc.redis.sentinel_password", reference: a.Redis.SentinelPassword})
	}
	for _, provider := range a.Providers {
		all = append(all, provider.secrets()...)
	}
	for _, endpoint := range a.OperatorEndpoints {
		all = append(all, namedSecret{path: endpoint.path() + ".secret", reference: endpoint.Secret})
	}
	return slices.Concat(all, a.Platforms.secrets(), a.Payments.secrets())
}

// secretWarnings returns a warning for each secret that is easy to find out: it is short, or is in a file that every account
// of the machine can read. It never quotes a secret. A secret that can't be read is a fault, not a warning.
func (a *App) secretWarnings(repl *caddy.Replacer) (warnings []string) {
	for _, secret := range a.secrets() {
		value, err := secret.reference.Resolve(repl)
		if err != nil { // also without a reference
			continue
		}
		if len(value) < weakSecretLength && !secret.location {
			warnings = append(warnings, fmt.Sprintf("%s: what %s holds is shorter than %d characters and could be guessed",
				secret.path, string(secret.reference), weakSecretLength))
		}
		path, isFile := strings.CutPrefix(strings.TrimSuffix(string(secret.reference), "}"), "{file.")
		if !isFile || goruntime.GOOS == "windows" { // where permissions say nothing
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&otherReaders != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: every account of this machine can read the file behind %s; chmod it to 0600",
				secret.path, string(secret.reference)))
		}
	}
	return warnings
}

// MissingSecrets returns a sentence for each secret that repl can't read, without which a server doesn't start.
func (a *App) MissingSecrets(repl *caddy.Replacer) (missing []string) {
	for _, secret := range a.secrets() {
		if !secret.reference.IsReference() { // none, or no secret at all
			continue
		}
		if _, err := secret.reference.Resolve(repl); err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", secret.path, err))
		}
	}
	return missing
}

// leastBufferedBytes is the buffered_bytes below which a unit was most likely forgotten.
const leastBufferedBytes = 1 << 20

// oddities returns a warning for each value of the configuration that can be intended, but is most likely a mistake.
func (a *App) oddities() (warnings []string) {
	if len(a.Models) == 0 {
		warnings = append(warnings, "svc.model: there is no model, so every call ends with unsupported_model")
	}
	if bytes := *a.Limits.BufferedBytes; bytes < leastBufferedBytes {
		warnings = append(warnings, fmt.Sprintf("svc.limits.buffered_bytes: %d bytes hold hardly a request; give a unit, e.g. 256MiB", bytes))
	}
	for _, p := range a.Providers {
		if p.APIKey != "" && p.APIKey != NoKey && PublicHTTP(p.BaseURL) {
			warnings = append(warnings, config.Element("provider", p.Name)+
				".base_url: the key and all prompts go to a public host without TLS; use https")
		}
	}
	return warnings
}

const (
	// shutdownWarning and shutdownError are the times before the end of a model from which a start logs a warning and an error.
	shutdownWarning = 90 * 24 * time.Hour
	shutdownError   = 7 * 24 * time.Hour
)

// endingModels returns a sentence for each model that its vendor ends soon, as an error from shutdownError before its end.
func (a *App) endingModels(now time.Time) (warnings, faults []string) {
	for _, m := range a.Models {
		day, err := m.shutdown()
		if err != nil || day.IsZero() || day.Sub(now) > shutdownWarning {
			continue
		}
		ends := config.Element("model", m.Name) + ".shutdown_date: the vendor ends the model on " + m.ShutdownDate + "; offer another one"
		if day.Sub(now) > shutdownError {
			warnings = append(warnings, ends)
		} else {
			faults = append(faults, ends)
		}
	}
	return warnings, faults
}

// PublicHTTP reports whether an address is plain http to a host that is neither this machine's nor of a private network. A name without
// a dot, and one below local, internal or localhost, is private.
func PublicHTTP(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast()
	}
	dot := strings.LastIndexByte(host, '.')
	return dot >= 0 && !slices.Contains([]string{"local", "internal", "localhost"}, host[dot+1:])
}

// OperatorEndpoint is an address of the operator that gets an event when a condition begins, and one when it ends.
type OperatorEndpoint struct {
	// The address, https, or http on this machine. Required, unique.
	URL string `json:"url,omitempty"`

	// The secret that signs the events, as events of organizations are signed: exactly one `{env.NAME}` or `{file.PATH}` that holds
	// `whsec_` and the base64 of 32 random bytes. Required.
	Secret config.Secret `json:"secret,omitempty"`
}

// Named returns the place of the address.
func (e *OperatorEndpoint) Named() *string { return &e.URL }

// Rules are the options of an operator's endpoint.
func (e *OperatorEndpoint) Rules() []caddyfile.Rule {
	return []caddyfile.Rule{caddyfile.Secret("secret", &e.Secret)}
}

func (e *OperatorEndpoint) path() string { return config.Element("operator_endpoint", e.URL) }

func (e *OperatorEndpoint) faults(fs *config.Faults, path string) {
	if _, err := operatorPolicy.Check(e.URL); err != nil {
		fs.Addf(path, "%v", err)
	}
	if e.Secret == "" {
		fs.Addf(path+".secret", "missing; give %s that holds whsec_ and the base64 of 32 random bytes", config.ReferenceForms)
	}
}

// operatorPolicy allows the operator's own networks.
var operatorPolicy = egress.Policy{AllowPrivate: true}

// read returns the endpoints by id, with their secrets.
func readOperatorEndpoints(all []*OperatorEndpoint, repl *caddy.Replacer, fs *config.Faults) map[string]events.OperatorEndpoint {
	found := make(map[string]events.OperatorEndpoint, len(all))
	for _, e := range all {
		secret, err := e.Secret.Resolve(repl)
		if err == nil {
			_, err = events.Signature(secret, "", 0, nil)
		}
		if err != nil {
			fs.Addf(e.path()+".secret", "%v", err)
		}
		id := sha256.Sum256([]byte(e.URL))
		found["op_"+hex.EncodeToString(id[:8])] = events.OperatorEndpoint{URL: e.URL, Secret: secret}
	}
	return found
}

// startWatch finds conditions and delivers their events until stop is called, for a process that serves or works.
func (a *App) startWatch(rt *runtime) (stop func() error) {
	if !a.attached.Load() {
		return func() error { return nil }
	}
	node := a.processName()
	watch := conditions.Watch{
		DB: rt.shared.db, Node: node, Logger: a.log,
		Own: func() []conditions.Condition { return a.ownConditions(rt) },
		Service: func(ctx context.Context) ([]conditions.Condition, error) {
			return a.ServiceConditions(ctx, rt.shared.db)
		},
		Lead: func(ctx context.Context) error {
			return rt.shared.doctor.StartDue(ctx, node, a.doctorCheck(rt.shared, rt.platforms.Catalog, false))
		},
	}
	for id := range a.settings.operatorEndpoints {
		watch.Endpoints = append(watch.Endpoints, id)
	}
	tasks := []*repeat.Task{repeat.Start(conditions.Interval, watch.Round), rt.payments.Payments.StartComparing(rt.shared.db, node)}
	if len(watch.Endpoints) > 0 {
		tasks = append(tasks, repeat.Start(time.Hour, events.New(events.Config{
			DB: rt.shared.db, Policy: operatorPolicy, Operator: a.settings.operatorEndpoints, Lease: time.Duration(a.Timing.Lease), Logger: a.log,
		}).Run))
	}
	return func() error {
		for _, task := range tasks {
			task.Stop()
		}
		return nil
	}
}

// doctorCheck returns the doctor's check of recent rows, or of all.
func (a *App) doctorCheck(shared *sharedStore, catalog *messaging.Catalog, all bool) conditions.Check {
	check := conditions.Check{DB: shared.db, Catalog: catalog, Ring: shared.ring, SweepInterval: a.SweepInterval(), Recent: conditions.Recent}
	if all {
		check.Recent = 0
	}
	return check
}

const (
	// slowTransaction is the expected duration of a transaction from which the store counts as slow.
	slowTransaction = 500 * time.Millisecond
	// longQueue is how long a conversation waits for a worker before that is a condition.
	longQueue = time.Minute
	// longPayment is how long a payment waits for a person before that is a condition.
	longPayment = time.Hour
	// oldBackup is the age of the last backup that is a condition: a daily job may take an hour.
	oldBackup = 25 * time.Hour
	// walletsInterval is the time between two reads of the spending of all wallets.
	walletsInterval = 10 * time.Minute
	// endingDays is the number of days for which a wallet that is no warning lasts at its present spending.
	endingDays = 2
	// certificateShare is the part of a certificate's life that is left when its renewal has failed for long: Caddy renews at a third.
	certificateShare = 6
)

// ownConditions are the conditions that this process has observed.
func (a *App) ownConditions(rt *runtime) (found []conditions.Condition) {
	add := func(kind conditions.Kind, subject, format string, args ...any) {
		found = append(found, conditions.Condition{Kind: kind, Subject: subject, Text: fmt.Sprintf(format, args...)})
	}
	for _, e := range rt.calls.Endpoints() {
		name := e.Provider + "/" + e.Upstream
		if e.Failing {
			add(conditions.VendorFailing, name, "The endpoint %s fails (%s) and is asked less often.", name, e.Failure)
		}
		if e.Other != "" {
			add(conditions.OtherModel, name, "The endpoint %s answers with another model: %s.", name, e.Other)
		}
	}
	if expected := time.Duration(writerExpected.Load()); expected >= slowTransaction {
		add(conditions.StoreSlow, "", "The store's transactions take half a second or longer.")
	}
	if host, end := a.certificate(time.Now()); !end.IsZero() {
		add(conditions.CertificateEnds, host, "The certificate of %s ends on %s.", host, end.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return found
}

// certificate returns the host of base_url and the end of its certificate, if this process has one and it should have been renewed.
func (a *App) certificate(now time.Time) (host string, end time.Time) {
	defer func() { _ = recover() }() //nolint:errcheck // Caddy has no certificates before its TLS app starts and after that stops
	base, err := url.Parse(a.BaseURL)
	if err != nil {
		return "", end
	}
	due := false
	for _, c := range caddytls.AllMatchingCertificates(base.Hostname()) {
		if c.Leaf != nil && c.Leaf.NotAfter.After(end) {
			end = c.Leaf.NotAfter
			due = end.Sub(now) < end.Sub(c.Leaf.NotBefore)/certificateShare
		}
	}
	if !due {
		end = time.Time{}
	}
	return base.Hostname(), end
}

// ServiceConditions returns the conditions of the whole service, by the store and the configuration. The defaults must be filled in. It is for one
// goroutine.
func (a *App) ServiceConditions(ctx context.Context, db *store.DB) (found []conditions.Condition, err error) {
	add := func(holds bool, kind conditions.Kind, subject, format string, args ...any) {
		if holds {
			found = append(found, conditions.Condition{Kind: kind, Subject: subject, Text: fmt.Sprintf(format, args...)})
		}
	}
	depth, err := inbox.New(db, nil).Depth(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the queue: %w", err)
	}
	add(depth.OldestDue >= longQueue, conditions.QueueWaits, "", "The first of %d conversations has waited for a worker for %s.",
		depth.Due, depth.OldestDue.Truncate(time.Second))
	add(depth.Attention > 0, conditions.TurnsStalled, "", "Answers that wait for a change: %d.", depth.Attention)
	add(depth.Dead > 0, conditions.TurnsDead, "", "Answers that were given up: %d.", depth.Dead)
	now, err := db.Now(ctx)
	if err != nil {
		return nil, err
	}
	channels, err := db.Channels.Troubles(ctx, now, conditions.Most/2)
	if err != nil {
		return nil, err
	}
	for _, c := range channels {
		of := fmt.Sprintf("The channel %s (%s) of organization %s ", c.ID, c.Type, c.OrgID)
		add(c.State == store.ChannelPending, conditions.ChannelPending, c.ID, "%swaits for approval.", of)
		add(c.State == store.ChannelNeedsReauth, conditions.ChannelReauth, c.ID, "%sneeds new credentials.", of)
		add(c.State == store.ChannelActive, conditions.ChannelExpiring, c.ID, "%shas a token that ends on %s.", of, store.EventTime(c.ExpiresAt))
	}
	if now-a.walletsRead >= walletsInterval.Milliseconds() {
		if a.endingWallets, err = billing.NewBook(db).EndingWallets(ctx, now, endingDays, conditions.Most/4); err != nil {
			return nil, err
		}
		a.walletsRead = now
	}
	for _, w := range a.endingWallets {
		add(true, conditions.WalletEnds, w.OrgID, "The wallet of organization %s lasts for less than two days at its present spending.", w.OrgID)
	}
	payments, err := billing.NewBook(db).WaitingPayments(ctx, now-longPayment.Milliseconds())
	if err != nil {
		return nil, err
	}
	add(payments > 0, conditions.PaymentsWait, "", "Payments that have waited for a decision for longer than %s: %d.", longPayment, payments)
	backup, err := db.LastBackup(ctx)
	if err != nil {
		return nil, err
	}
	add(backup > 0 && now-backup > oldBackup.Milliseconds(), conditions.BackupOld, "", "The last backup was made on %s.", store.EventTime(backup))
	ending, ended := a.endingModels(time.UnixMilli(now))
	for _, sentence := range slices.Concat(ending, ended) {
		subject, text, _ := strings.Cut(sentence, ": ")
		add(true, conditions.ModelEnds, subject, "%s: %s.", subject, text)
	}
	for _, sentence := range a.ComingPrices(time.UnixMilli(now)) {
		subject, text, _ := strings.Cut(sentence, ": ")
		add(true, conditions.PriceChanges, subject, "%s: %s.", subject, text)
	}
	findings, err := conditions.DoctorConditions(ctx, db)
	return append(found, findings...), err
}
