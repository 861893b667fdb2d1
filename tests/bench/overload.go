package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

const (
	// overloadLasts is how many slices each load lasts: 20 s of the usual ones.
	overloadLasts = 40. / 3
	// overloadCommits is how many commits a load lasts at least, so that each half has several whole ones.
	overloadCommits = 8
	// overloadWarms is how many commits a load lasts before it is measured: the line that its beginning leaves must have gone, and tranches
	// must have grown to what its calls use.
	overloadWarms = 25
	// overloadProbers are the connections of the closed loop that finds out what the product can do.
	overloadProbers = 768
	// recoveryBound is how long the product may need until all is as before, once commits are quick again.
	recoveryBound = 5 * time.Second
)

// overloadBar is the goodput of the worse half of a load, to the best goodput of any load under the same slowness. Both
// are counted in whole commits, see [offered.goodput].
var overloadBar = bar{must: 0.9, goal: 0.95}

// overloadTimes are the loads, as parts of what the product can do.
var overloadTimes = []float64{1, 2, 4}

// brake slows the commits of a product's store down.
type brake interface {
	set(by time.Duration) error
	release() error
}

// wireBrake is a proxy before PostgreSQL.
type wireBrake struct{ wire *storetest.Wire }

func (b wireBrake) set(by time.Duration) error {
	b.wire.SlowCommits(by)
	return nil
}

func (b wireBrake) release() error {
	b.wire.Close()
	return nil
}

// fileBrake is the file that a crash build looks at before each COMMIT.
type fileBrake struct{ dir string }

func (b fileBrake) path() string { return filepath.Join(b.dir, "slow") }

func (b fileBrake) set(by time.Duration) error {
	if by == 0 {
		return os.Remove(b.path())
	}
	half := b.path() + ".half"
	if err := os.WriteFile(half, []byte(by.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(half, b.path())
}

func (b fileBrake) release() error { return os.RemoveAll(b.dir) }

// runOverload measures what the product does when more is asked of it than its store can do: both engines, commits of
// 0.2 s and 1.2 s, and loads of 1, 2 and 4 times what it can do. Then commits are quick again under the largest load.
func (b *bench) runOverload(ctx context.Context, rows []*overload) error {
	for _, o := range rows {
		used := b.crash
		if o.engine == store.Postgres {
			used = b.binary
			if os.Getenv(postgresVariable) == "" {
				fmt.Printf("\nthe row %s is left out: %s is not set (scripts/services.sh sets it)\n", o.name(), postgresVariable)
				continue
			}
		}
		o.lasts = max(time.Duration(float64(b.slice)*overloadLasts), overloadCommits*o.commit)
		if err := o.run(ctx, used, b.sheet); err != nil {
			return fmt.Errorf("%s: %w", o.name(), err)
		}
	}
	return nil
}

// overloadRows are the rows whose name contains only. They are measured when they are asked for, as [abuseRows] are.
func overloadRows(only string) (rows []*overload) {
	if !strings.Contains(only, "overload") {
		return nil
	}
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		for _, commit := range []time.Duration{200 * time.Millisecond, 1200 * time.Millisecond} {
			if o := (&overload{engine: engine, commit: commit}); strings.Contains(o.name(), only) {
				rows = append(rows, o)
			}
		}
	}
	return rows
}

// overload is one store with one slowness.
type overload struct {
	engine store.Engine
	commit time.Duration
	lasts  time.Duration

	product *product
	brake   brake
	start   int64 // what the wallets have, in micros
	charged int64 // what the answers say
}

func (o *overload) name() string {
	return fmt.Sprintf("overload, %s, commits of %s", o.engine, o.commit)
}

func (o *overload) run(ctx context.Context, binary string, to *sheet) (err error) {
	if err := o.open(ctx, binary); err != nil {
		return err
	}
	defer func() { err = o.product.end(errors.Join(err, o.brake.release())) }()
	if o.start, err = o.product.balance(ctx); err != nil {
		return err
	}
	if err := o.brake.set(o.commit); err != nil {
		return err
	}
	warm := max(o.lasts/4, overloadWarms*o.commit)
	probe, err := o.offer(ctx, 0, o.lasts/2, warm)
	if err != nil {
		return err
	}
	can := probe.goodput(0, o.lasts/2, o.commit)
	loads := make([]*offered, len(overloadTimes))
	best := can
	for i, times := range overloadTimes {
		if loads[i], err = o.offer(ctx, times*can, o.lasts, warm); err != nil {
			return err
		}
		best = max(best, loads[i].goodput(0, o.lasts, o.commit))
	}
	fmt.Printf("\n%s: %.0f calls/s in a closed loop\n  %4s %10s %10s %12s %12s %14s   worse half to the best\n", o.name(), can, "load", "offered/s", "answers/s", "answer p50 s", "answer p99 s", "refusal p99 ms")
	for i, load := range loads {
		worse := min(load.goodput(0, o.lasts/2, o.commit), load.goodput(o.lasts/2, o.lasts, o.commit))
		fmt.Printf("  %3gx %10.0f %10.0f %12.2f %12.2f %14.1f   %s\n", overloadTimes[i], overloadTimes[i]*can, load.goodput(0, o.lasts, o.commit),
			load.quantile(false, .5).Seconds(), load.quantile(false, .99).Seconds(), 1000*load.quantile(true, .99).Seconds(),
			to.judge(o.name(), variant(fmt.Sprintf("%gx", overloadTimes[i])), "worse half to the best", worse/best, overloadBar, false))
		if load.dropped > 0 {
			fmt.Printf("        %d calls were not offered: %d waited already\n", load.dropped, overloadConns)
		}
	}
	if err := o.recover(ctx, overloadTimes[len(overloadTimes)-1]*can); err != nil {
		return err
	}
	return o.check(ctx)
}

// open starts a product whose store can be slowed down.
func (o *overload) open(ctx context.Context, binary string) error {
	at, err := newPlace(ctx, o.engine, "")
	if err != nil {
		return err
	}
	if o.engine == store.Postgres {
		wire, err := storetest.NewWire(at.location)
		if err != nil {
			return errors.Join(err, at.drop())
		}
		o.brake, at.location = wireBrake{wire}, wire.Location
	} else {
		dir, err := os.MkdirTemp("", "svc-bench-slow-")
		if err != nil {
			return errors.Join(err, at.drop())
		}
		o.brake = fileBrake{dir}
		if err := os.Setenv(failpoint.SlowVariable, o.brake.(fileBrake).path()); err != nil { //nolint:forcetypeassert // see above
			return errors.Join(err, at.drop())
		}
	}
	o.product, err = startProduct(ctx, binary, at)
	if err != nil {
		return errors.Join(err, o.brake.release())
	}
	return nil
}

// recover goes on with a load while commits become quick, and requires that soon nothing is refused any more.
func (o *overload) recover(ctx context.Context, rate float64) error {
	released := make(chan error, 1)
	go func() {
		<-time.After(6 * o.commit)
		released <- o.brake.set(0)
	}()
	load, err := o.offer(ctx, rate, 2*recoveryBound, 6*o.commit) // the release comes when the warming up is over
	if err = errors.Join(err, <-released); err != nil {
		return err
	}
	took := time.Duration(0)
	for _, one := range load.ended {
		if one.refused {
			took = max(took, one.asked)
		}
		if one.at-one.asked > time.Second {
			took = max(took, one.at)
		}
	}
	fmt.Printf("  all is well %.2f s after the cause is gone, at %.0f calls/s\n", max(0, took.Seconds()), rate)
	if took > recoveryBound {
		return fmt.Errorf("calls were still refused or slow %s after commits were quick again", took)
	}
	return nil
}

// check requires that the wallets lost what the answers charged. Calls that were reported as failed may be voided late.
func (o *overload) check(ctx context.Context) error {
	deadline := time.Now().Add(time.Minute)
	for {
		end, err := o.product.balance(ctx)
		if err != nil {
			return err
		}
		if o.start-end == o.charged {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the wallets lost %d micros, the answers charged %d", o.start-end, o.charged)
		}
		<-time.After(100 * time.Millisecond)
	}
	return o.product.doctor(ctx)
}

// attempt is how one call ended; times are since the warming up was over.
type attempt struct {
	asked, at time.Duration
	refused   bool
}

// offered is what became of a load.
type offered struct {
	ended   []attempt
	dropped int // calls for which no connection was left
}

// goodput is the answers per second in a part of the load, in whole commits: from the end of the last commit before the
// part to the end of the last commit in it. Calls of one commit are answered together, so a fixed time would count one
// commit more or less depending on when it begins: 10 s hold 8 or 9 commits of 1.2 s, which makes equal halves differ by
// an eighth. A pause of more than a commit and a half counts in full, for then no commit ends where one had to.
func (o *offered) goodput(from, to, commit time.Duration) float64 {
	var answers []time.Duration
	for _, one := range o.ended {
		if !one.refused {
			answers = append(answers, one.at)
		}
	}
	slices.Sort(answers)
	from, to = commitBefore(answers, from, commit), commitBefore(answers, to, commit)
	n := 0
	for _, at := range answers {
		if at > from && at <= to {
			n++
		}
	}
	return float64(n) / (to - from).Seconds()
}

// commitBefore is when the last commit before a moment ended: at the answer with the longest pause behind it, of those
// that came within the last one and a half commits. Without any it is the moment itself. The answers are sorted.
func commitBefore(answers []time.Duration, moment, commit time.Duration) time.Duration {
	end, longest := moment, time.Duration(0)
	for i, at := range answers {
		if at > moment || at <= moment-commit*3/2 {
			continue
		}
		pause := commit // behind the last answer of all
		if i+1 < len(answers) {
			pause = answers[i+1] - at
		}
		if pause >= longest {
			end, longest = at, pause
		}
	}
	return end
}

// quantile is how long answers took, or refusals, of calls after the warming up.
func (o *offered) quantile(refused bool, p float64) time.Duration {
	var took []time.Duration
	for _, one := range o.ended {
		if one.refused == refused && one.asked >= 0 {
			took = append(took, one.at-one.asked)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[int(p*float64(len(took)-1))]
}
