package sqlite

import (
	"os"
	"sync"
	"time"
)

// commitPause is the shortest time between two notices of a [commitWatch]. It is also how often the watch looks for commits where the
// system reports none.
const commitPause = 100 * time.Millisecond

// commitWatch notices the commits of all processes of the database. It sleeps while nothing is committed, and otherwise wakes up no more than once
// in each commitPause.
type commitWatch struct {
	generations *generations

	mu      sync.Mutex
	noticed chan struct{} // closed by the next notice
	reads   *os.File      // of the generation file; nil where the system reports none
	stop    chan struct{} // nil before the watch runs
	done    chan struct{}
}

// next returns a channel that is closed after the next commit, immediately or when commitPause has passed since the last notice. The
// first call starts the watch.
func (w *commitWatch) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop == nil {
		w.stop, w.done = make(chan struct{}), make(chan struct{})
		w.reads = reportReads(w.generations.file)
		go w.run(w.generations.commits())
	}
	return w.noticed
}

// run notices commits after the known one until the watch is closed.
func (w *commitWatch) run(known uint64) {
	defer close(w.done)
	for w.await() {
		if commits := w.generations.commits(); commits != known {
			known = commits
			w.notice()
		}
		select {
		case <-time.After(commitPause):
		case <-w.stop:
			return
		}
	}
}

// await waits until something may have been committed. It returns false if the watch was closed.
func (w *commitWatch) await() bool {
	if w.reads == nil {
		return true
	}
	var reports [4096]byte
	_, err := w.reads.Read(reports[:])
	return err == nil
}

func (w *commitWatch) notice() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.noticed)
	w.noticed = make(chan struct{})
}

// close ends the watch. Its channels stay open.
func (w *commitWatch) close() error {
	w.mu.Lock()
	running := w.stop != nil
	if !running {
		w.stop = make(chan struct{}) // next starts nothing
	}
	w.mu.Unlock()
	if !running {
		return nil
	}
	var err error
	close(w.stop)
	if w.reads != nil {
		err = w.reads.Close()
	}
	<-w.done
	return err
}
