package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// transact runs a batch in one transaction. It waits for a committing transaction unless both consist of kinds that lock rows.
func (w *Writer) transact(batch []*PendingWrite) (o outcome) {
	o.overlaps = w.inFlight > 1 && !slices.ContainsFunc(batch, w.ordered)
	if !o.overlaps {
		w.committing.Wait()
	}
	start := time.Now()
	groups := w.group(w.inTime(&o, batch, start))
	if len(groups) == 0 {
		return o
	}
	defer func() { o.batch.Transaction = since(start) }()
	ctx := context.Background()
	if w.life > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, start.Add(w.life), driver.ErrWriteSlow)
		defer cancel()
	}
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		w.logger.Warn("a write transaction could not begin", "error", err)
		o.lost = true
		for _, group := range groups {
			o.end(err, group.writes...)
		}
		return o
	}
	var kept []*PendingWrite // applied and released, not committed yet
	until, mayCut := w.limits(start)
	for i, group := range groups {
		if i > 0 && mayCut && time.Now().After(until) {
			w.putBack(&o, groups[i:])
			break
		}
		failed, lost := w.apply(tx, &o, group, i == len(groups)-1)
		if lost != nil {
			w.logger.Warn("a write transaction was lost", "error", lost)
			o.lost = true
			tx.Rollback()
			kept = append(kept, group.writes...)
			undo(lost, kept)
			o.end(lost, kept...)
			w.putBack(&o, groups[i+1:])
			return o
		}
		if failed == nil {
			kept = append(kept, group.writes...)
			continue
		}
		undo(nil, group.writes)
		w.fail(&o, group, failed)
	}
	if len(kept) == 0 {
		tx.Rollback()
		return o
	}
	if err = w.commit(tx, &o); err != nil {
		o.lost = true
		undo(err, kept)
	}
	o.end(err, kept...)
	return o
}

// undo undoes writes that were applied in vain, unless the fault leaves open whether they were.
func undo(fault error, writes []*PendingWrite) {
	if errors.Is(fault, driver.ErrCommitUnknown) {
		return
	}
	for _, write := range writes {
		if op, ok := write.op.(Undoer); ok {
			op.Undo()
		}
	}
}

// limits returns until when a transaction may work, and whether the writes that are left at that time may be put back.
func (w *Writer) limits(start time.Time) (until time.Time, mayCut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until = start.Add(max(batchTime, min(time.Duration(w.commits)/4, mostBatchTime)))
	return until, len(w.back) == 0 // else what waits there would grow
}

// ordered reports whether a write needs all transactions before its own to have ended.
func (w *Writer) ordered(write *PendingWrite) bool {
	if write.kind < 0 {
		return write.kind != pingWrite
	}
	_, locks := w.kinds[write.kind].(RowLocking)
	return !locks
}

// endedWrite is a write that has ended while its caller still waits.
type endedWrite struct {
	write *PendingWrite
	err   error
}

// outcome gathers how a batch ended.
type outcome struct {
	ended []endedWrite
	batch Batch
	lost  bool // the transaction failed as a whole

	overlaps, overlapped bool      // the next transaction may begin, or has begun, while this one commits
	committing           time.Time // when the transaction began to commit
}

func (o *outcome) end(err error, writes ...*PendingWrite) {
	for _, write := range writes {
		o.ended = append(o.ended, endedWrite{write, err})
		o.batch.Operations++
		if err != nil {
			o.batch.Failed++
		}
	}
}

// commit ends the transaction and measures the duration of COMMIT, which may have been sent before.
func (w *Writer) commit(tx driver.Transaction, o *outcome) error {
	if o.committing.IsZero() {
		o.committing = time.Now()
	}
	err := tx.Commit(tx.Context())
	if err != nil {
		w.logger.Warn("a write transaction could not commit", "error", err)
	}
	w.mu.Lock()
	w.commits.add(time.Since(o.committing))
	w.mu.Unlock()
	return err
}

// inTime finishes pings, ends the operations that have waited too long, and returns the others.
func (w *Writer) inTime(o *outcome, batch []*PendingWrite, now time.Time) (left []*PendingWrite) {
	left = batch[:0]
	for _, write := range batch {
		switch {
		case write.kind == pingWrite:
			write.finish(nil)
		case w.late(write, now):
			o.ended = append(o.ended, endedWrite{write, errWaited})
			o.batch.Refused++
		default:
			left = append(left, write)
		}
	}
	return left
}

// late reports whether an operation has waited too long and should end.
func (w *Writer) late(write *PendingWrite, now time.Time) bool {
	waited := now.Sub(write.asked)
	switch write.class {
	case ordinary:
		return waited > w.patience
	case urgent:
		return waited > 2*w.patience
	default:
		return false
	}
}

// group sorts a batch by kind, in the order the kinds were registered, and by arrival within a kind; see [Joint]. Hand-written
// writes come last, each alone in its group.
func (w *Writer) group(batch []*PendingWrite) (groups []writeGroup) {
	byKind := make([][]*PendingWrite, len(w.kinds))
	var execs []writeGroup
	for _, write := range batch {
		if write.kind == execWrite {
			execs = append(execs, writeGroup{writes: []*PendingWrite{write}})
			continue
		}
		byKind[write.kind] = append(byKind[write.kind], write)
	}
	for i, writes := range byKind {
		if j := w.joined(writes); j >= 0 {
			byKind[i], byKind[j] = append(byKind[j], writes...), nil
		}
	}
	for i, writes := range byKind {
		if len(writes) > 0 {
			groups = append(groups, writeGroup{kind: w.kinds[i], writes: writes})
		}
	}
	return append(groups, execs...)
}

// joined returns the index of the kind of which some of the writes carry an operation, or -1.
func (w *Writer) joined(writes []*PendingWrite) int {
	for _, write := range writes {
		joint, ok := write.op.(Joint)
		if !ok || joint.Joins() == nil {
			continue
		}
		if i, known := w.indexes[joint.Joins().Name()]; known {
			return i
		}
	}
	return -1
}

// writeGroup is the group of operations that share a savepoint: operations of one kind with the kind that they join, or one hand-written write
// (kind nil).
type writeGroup struct {
	kind   Kind
	writes []*PendingWrite
}

func (w *Writer) putBack(o *outcome, groups []writeGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, group := range groups {
		w.back = append(w.back, group.writes...)
		o.batch.PutBack += len(group.writes)
	}
}

// apply runs a group in a savepoint. failed holds one error for each operation, none of them nil, when the group was
// rolled back; lost is set when the whole transaction can't go on.
func (w *Writer) apply(tx driver.Transaction, o *outcome, group writeGroup, last bool) (failed []error, lost error) {
	if err := tx.Savepoint(); err != nil {
		return nil, err
	}
	ctx := tx.Context()
	failed = w.call(ctx, tx, group)
	if failed == nil {
		if last {
			o.committing = time.Now() // release may send COMMIT
			if o.overlaps {
				// The next transaction begins while this one commits.
				o.overlapped = true
				w.committing.Add(1)
				<-w.next
				w.queue.overlap(len(group.writes))
			}
		}
		err := tx.Release(ctx, last)
		if err == nil {
			return nil, nil
		}
		failed = slices.Repeat([]error{err}, len(group.writes))
	}
	if err := tx.RollbackTo(ctx); err != nil {
		if cause := cmp.Or(failed...); !errors.Is(cause, err) {
			err = errors.Join(cause, err)
		}
		return nil, err
	}
	return failed, nil
}

// call runs the group's code and turns a panic into its error.
func (w *Writer) call(ctx context.Context, tx driver.Tx, group writeGroup) (failed []error) {
	defer func() {
		if cause := recover(); cause != nil {
			w.logger.Error("a write panicked", "kind", group.name(), "panic", cause, "stack", string(debug.Stack()))
			failed = slices.Repeat([]error{fmt.Errorf("store: %s panicked", group.name())}, len(group.writes))
		}
	}()
	if group.kind == nil {
		if err := group.writes[0].run(ctx, tx); err != nil {
			return []error{err}
		}
		return nil
	}
	ops := make([]Op, len(group.writes))
	for i, write := range group.writes {
		ops[i] = write.op
	}
	return checkErrors(group, group.kind.Apply(ctx, tx, ops))
}

// checkErrors returns nil when every operation was decided, else an error for each: its own, or its group's.
func checkErrors(group writeGroup, errs []error) []error {
	if len(errs) != 0 && len(errs) != len(group.writes) {
		err := fmt.Errorf("store: %s answered %d errors for %d operations", group.name(), len(errs), len(group.writes))
		return slices.Repeat([]error{err}, len(group.writes))
	}
	first := cmp.Or(errs...)
	if first == nil {
		return nil
	}
	for i, err := range errs {
		if err == nil {
			errs[i] = first
		}
	}
	return errs
}

// fail ends an operation that ran alone, and lets the others run again in smaller groups. An operation that the server chose to end a deadlock
// also runs again, in a transaction without the operations that lock its rows.
func (w *Writer) fail(o *outcome, group writeGroup, failed []error) {
	now := time.Now()
	again := make([]*PendingWrite, 0, len(group.writes))
	for i, write := range group.writes {
		ended := len(group.writes) == 1
		if ended && driver.IsDeadlock(failed[i]) {
			write.deadlocks++
			ended = write.deadlocks > mostDeadlocks
		}
		if ended || w.late(write, now) {
			o.end(failed[i], write)
			continue
		}
		again = append(again, write)
	}
	o.batch.Retried += len(again)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = slices.AppendSeq(w.again, slices.Chunk(again, max(1, (len(again)+retryPieces-1)/retryPieces)))
}

func (g writeGroup) name() string {
	if g.kind == nil {
		return "a hand-written write"
	}
	return "kind " + g.kind.Name()
}
