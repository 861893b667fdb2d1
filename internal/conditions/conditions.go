// Package conditions keeps the list of all conditions that need the operator: a failing vendor, an old queue, a finding of the doctor. Status, the
// operator's API, the console, metrics, alerts and the operator's events show this list.
//
// # Invariants
//
//   - A condition is a row from when the first process observes it until none does. So its beginning survives restarts, and each change is one
//     event over all processes, written in the transaction of the change.
//   - Conditions of the whole service are found by one process at a time. Those of a process carry its name and end with it.
//   - A condition that comes and goes between two rounds is ignored: two rounds in a row must agree on each change. A condition that another
//     process has observed begins in the first round, so that its beginning outlives the restart of the only process with it.
//
// The package also runs the doctor, with one run at a time over all processes. Which conditions there are is up to its callers.
package conditions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// Interval is the time between two rounds of a process.
	Interval = 30 * time.Second
	// agreeing is how many rounds in a row must see a condition before it begins, or miss it before it ends.
	agreeing = 2
	// duty is the time after which another process watches the whole service if the last one is silent.
	duty = 4 * Interval
	// Most limits the conditions of the whole service, and of each process.
	Most = 1000
)

// Kind is a sort of condition.
type Kind string

// All kinds.
const (
	VendorFailing   Kind = "vendor_failing"
	OtherModel      Kind = "other_model"
	ModelEnds       Kind = "model_ends"
	PriceChanges    Kind = "price_changes"
	WalletEnds      Kind = "wallet_ends"
	QueueWaits      Kind = "queue_waits"
	TurnsStalled    Kind = "turns_stalled"
	TurnsDead       Kind = "turns_dead"
	ChannelPending  Kind = "channel_pending"
	ChannelReauth   Kind = "channel_needs_reauth"
	ChannelExpiring Kind = "channel_expiring"
	PaymentsWait    Kind = "payments_wait"
	DoctorFindings  Kind = "doctor_findings"
	StoreSlow       Kind = "store_slow"
	BackupOld       Kind = "backup_old"
	CertificateEnds Kind = "certificate_ends"
	// PartDown and Setup are seen by `caddy svc status` alone.
	PartDown Kind = "part_down"
	Setup    Kind = "setup"
)

// kinds has the severity of each kind and what to do about it. The alerts have the same severities.
var kinds = map[Kind]struct{ severity, action string }{
	VendorFailing:   {"warning", "Read `caddy svc vendors` and the vendor's status page. Give the model another endpoint."},
	OtherModel:      {"warning", "Compare the answering model's quality and price. Change upstream_model, or ask the vendor."},
	ModelEnds:       {"warning", "Offer another model and announce the change to customers."},
	PriceChanges:    {"info", "Announce the price to customers."},
	WalletEnds:      {"info", "Ask the organization to pay. Its calls and answers stop when the wallet is empty."},
	QueueWaits:      {"critical", "Run more workers, or any, and read their log."},
	TurnsStalled:    {"info", "The conversation's code says what is missing, such as credits or an assistant."},
	TurnsDead:       {"critical", "`caddy svc queue dead` shows why, and `caddy svc queue retry` tries again."},
	ChannelPending:  {"info", "Check that the account is the organization's, then `caddy svc channel approve`."},
	ChannelReauth:   {"warning", "The organization gives the channel new credentials. It receives, and can't send."},
	ChannelExpiring: {"warning", "The organization gives the channel new credentials before its token ends."},
	PaymentsWait:    {"warning", "`caddy svc payment list --state waiting` shows them. Match each to its organization, or ignore it."},
	DoctorFindings:  {"critical", "Run `caddy svc doctor`. Its findings say where to look."},
	StoreSlow:       {"warning", "Look at the store's disk and load. Calls are refused when it gets slower."},
	BackupOld:       {"warning", "Look at the job that runs `caddy svc backup`."},
	CertificateEnds: {"warning", "Caddy's log says why the renewal fails: mostly DNS, or port 80 or 443."},
	PartDown:        {"critical", "Start it, or correct its address in the configuration."},
	Setup:           {"info", "Complete the installation."},
}

// Kinds returns the kinds that a running service finds, sorted.
func Kinds() (all []Kind) {
	for kind := range kinds {
		if kind != PartDown && kind != Setup {
			all = append(all, kind)
		}
	}
	slices.Sort(all)
	return all
}

// Condition is a condition that holds.
type Condition struct {
	Kind Kind
	// Subject names a thing, such as a model or the id of an organization. It may be empty.
	Subject string
	// Node is the name of the process that has observed the condition. Empty means the whole service.
	Node string
	// Since is when the first process saw it, in epoch milliseconds. 0 means that it isn't stored.
	Since int64
	Text  string
}

// Object is the public form of a condition.
type Object struct {
	Kind     string `json:"kind"`
	Subject  string `json:"subject" doc:"What the condition is about, such as a model or the id of an organization; may be empty"`
	Node     string `json:"node" doc:"The process that sees the condition; empty: it is of the whole service"`
	Severity string `json:"severity" enum:"critical,warning,info"`
	Since    string `json:"since" format:"date-time"`
	Text     string `json:"text"`
	Action   string `json:"action" doc:"What to do"`
}

// Show returns c's public form. Since is now if c isn't stored. A kind of another version of the program is a warning.
func (c *Condition) Show() Object {
	kind, known := kinds[c.Kind]
	if !known {
		kind.severity = "warning"
	}
	since := cmp.Or(c.Since, time.Now().UnixMilli())
	return Object{string(c.Kind), c.Subject, c.Node, kind.severity, store.EventTime(since), c.Text, kind.action}
}

// place is a condition's place in the list: its key in the table.
type place struct {
	kind          Kind
	subject, node string
}

func (c *Condition) place() place { return place{c.Kind, c.Subject, c.Node} }

// Sorted returns conditions by severity, kind, subject and node.
func Sorted(all []Condition) []Condition {
	slices.SortFunc(all, func(a, b Condition) int { return strings.Compare(sortKey(&a), sortKey(&b)) })
	return all
}

func sortKey(c *Condition) string {
	rank := strings.Index("critical warning info", kinds[c.Kind].severity)
	return fmt.Sprintf("%02d\x00%s\x00%s\x00%s", rank, c.Kind, c.Subject, c.Node)
}

// List reads the conditions that hold, sorted. There are up to [Most] of the whole service and of each process.
func List(ctx context.Context, db *store.DB) ([]Condition, error) {
	all, err := store.ReadRows(ctx, db, "list conditions", store.ScanFields[Condition](), `SELECT kind, subject, node, since, text FROM conditions`)
	return Sorted(all), err
}

// Merge returns conditions that were found now, with the beginnings of the stored ones, and the stored conditions of processes.
func Merge(found, stored []Condition) []Condition {
	for i := range stored {
		is := func(c Condition) bool { return c.place() == stored[i].place() }
		if at := slices.IndexFunc(found, is); at >= 0 {
			found[at].Since = stored[i].Since
		} else if stored[i].Node != "" {
			found = append(found, stored[i])
		}
	}
	return Sorted(found)
}

// Watch finds conditions in rounds, for one process. It is for one goroutine.
type Watch struct {
	DB *store.DB
	// Node is the name of the process, see [store.Process].
	Node string
	// Endpoints are the ids of the operator's own endpoints, which get an event of each change.
	Endpoints []string
	// Own returns the conditions of this process, and Service the conditions of the whole service. After an error of Service its conditions stay.
	Own     func() []Condition
	Service func(ctx context.Context) ([]Condition, error)
	// Lead is called in each round of the process that has the duty of the whole service. Nil means no more duties.
	Lead   func(ctx context.Context) error
	Logger *slog.Logger

	// rounds counts the rounds in a row that saw a condition which isn't stored, or missed a stored one.
	rounds map[place]int
}

// Round compares the conditions that hold with the stored ones and stores the changes.
func (w *Watch) Round(ctx context.Context) {
	if err := w.round(ctx); err != nil && ctx.Err() == nil {
		w.Logger.WarnContext(ctx, "conditions were not stored", "error", err)
	}
}

func (w *Watch) round(ctx context.Context) error {
	own := w.Own()
	for i := range own {
		own[i].Node = w.Node
	}
	leads, err := store.Write(ctx, w.DB, func(ctx context.Context, tx store.Tx) (bool, error) {
		return take(ctx, tx, "conditions", w.Node, duty, true)
	})
	if err != nil {
		return err
	}
	stored, err := List(ctx, w.DB)
	if err != nil {
		return err
	}
	seen, others := own, []string{}
	if leads {
		var service []Condition
		if service, err = w.Service(ctx); err == nil {
			seen = append(own, service[:min(len(service), Most)]...)
			others, err = w.ended(ctx, stored)
		}
		if w.Lead != nil {
			err = errors.Join(err, w.Lead(ctx))
		}
	}
	mine := func(c *Condition) bool { return c.Node == w.Node || slices.Contains(others, c.Node) }
	for _, c := range w.changes(seen, stored, mine) {
		if failed := w.DB.Exec(ctx, func(ctx context.Context, tx store.Tx) error { return w.write(ctx, tx, c) }); failed != nil {
			return errors.Join(err, failed)
		}
	}
	return err
}

// ended returns the nodes of conditions that aren't living processes: the whole service, and processes that have ended.
func (w *Watch) ended(ctx context.Context, stored []Condition) ([]string, error) {
	living, err := w.DB.Processes.Living(ctx)
	if err != nil {
		return nil, err
	}
	nodes := []string{""}
	for i := range stored {
		if !slices.ContainsFunc(living, func(p store.Process) bool { return p.Name == stored[i].Node }) {
			nodes = append(nodes, stored[i].Node)
		}
	}
	return nodes, nil
}

// take gives a process a duty, for a time, unless another living process has it. again lets a process renew its own duty.
func take(ctx context.Context, tx store.Tx, name, node string, life time.Duration, again bool) (bool, error) {
	return store.Changed(ctx, tx, `INSERT INTO marks (name, node, at) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET node = excluded.node, at = excluded.at
		WHERE marks.at <= $4 OR marks.node = excluded.node AND $5 OR NOT EXISTS (SELECT 1 FROM processes p WHERE p.name = marks.node)
		RETURNING name`, name, node, tx.Now()+life.Milliseconds(), tx.Now(), again)
}

// change is a change of the stored conditions. kind is begin, end or rename.
type change struct {
	kind string
	Condition
}

// changes compares the observed conditions with the stored ones. mine reports whether this process may end a stored condition.
func (w *Watch) changes(seen, stored []Condition, mine func(*Condition) bool) (found []change) {
	rounds := map[place]int{}
	agree := func(at place) bool {
		rounds[at] = w.rounds[at] + 1
		return rounds[at] >= agreeing
	}
	held, known := map[place]*Condition{}, map[place]bool{}
	for i := range stored {
		known[place{stored[i].Kind, stored[i].Subject, ""}] = true
		if mine(&stored[i]) {
			held[stored[i].place()] = &stored[i]
		}
	}
	for i := range seen {
		at := seen[i].place()
		switch was, is := held[at]; {
		case is && was.Text != seen[i].Text:
			found = append(found, change{"rename", seen[i]})
		case !is && (agree(at) || known[place{at.kind, at.subject, ""}]):
			found = append(found, change{"begin", seen[i]})
		}
		delete(held, at)
	}
	for at, c := range held {
		if agree(at) {
			found = append(found, change{"end", *c})
		}
	}
	w.rounds = rounds
	return found
}

// The types of the operator's events.
const (
	EventBegan store.EventType = "condition.began"
	EventEnded store.EventType = "condition.ended"
)

// write writes a change. Another process with the same condition waits at the lock, and so only the first and the last make events.
func (w *Watch) write(ctx context.Context, tx store.Tx, c change) error {
	lock := `SELECT name FROM marks WHERE name = 'conditions'` + tx.LockRows() // the round has made the row
	if _, err := store.QueryValues[string](ctx, tx, lock); err != nil {
		return err
	}
	if c.kind == "rename" {
		tx.Queue(store.AnyRows, `UPDATE conditions SET text = $4 WHERE kind = $1 AND subject = $2 AND node = $3`,
			string(c.Kind), c.Subject, c.Node, c.Text)
		return nil
	}
	others, err := store.QueryValues[int64](ctx, tx, `SELECT since FROM conditions WHERE kind = $1 AND subject = $2 AND node <> $3`,
		string(c.Kind), c.Subject, c.Node)
	if err != nil {
		return err
	}
	event, text, arguments := EventEnded, `DELETE FROM conditions WHERE kind = $1 AND subject = $2 AND node = $3 RETURNING since`,
		[]any{string(c.Kind), c.Subject, c.Node}
	if c.kind == "begin" {
		c.Since = slices.Min(append(others, tx.Now()))
		event, text = EventBegan, `INSERT INTO conditions (kind, subject, node, since, text) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (kind, subject, node) DO NOTHING RETURNING since`
		arguments = append(arguments, c.Since, c.Text)
	}
	changed, err := store.Changed(ctx, tx, text, arguments...)
	if err == nil && changed && len(others) == 0 {
		store.QueueOperatorEvent(tx, w.Endpoints, event, c.Show())
	}
	return err
}
