package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// part is a part of the database that the hot look-ups remember.
type part int

const (
	identityPart part = iota // keys, organizations, their models and provider keys
	routePart                // channels with their agents
	allParts
)

// parts is a set of them.
type parts [allParts]bool

// changing finds the tables of the hot look-ups that a statement changes. No trigger and no foreign key changes them on behalf of another table.
var changing = regexp.MustCompile(`(?i)\b(?:INTO|UPDATE(?:\s+OR\s+\w+)?|DELETE\s+FROM)\s+(?:main\s*\.\s*)?["\[` + "`" + `]?` +
	`(?:(api_keys|organizations|org_models|provider_keys)|channels|agents)\b`)

// partsChanged returns the parts that a statement changes.
func partsChanged(text string) (changed parts) {
	for _, found := range changing.FindAllStringSubmatch(text, -1) {
		if found[1] != "" {
			changed[identityPart] = true
		} else {
			changed[routePart] = true
		}
	}
	return changed
}

// generations are two numbers in a file beside the database, one for each part, in memory that all processes of the database share. A number is
// even while the part is unchanged since the number was set. A process makes it odd in the transaction that changes the part, before COMMIT, and
// even again after it, and never repeats a number. The same even number read twice proves that nothing was committed in between.
//
// A process that dies in between, or can't be sure of its COMMIT, leaves the number odd. The next writer makes it even, or the next process that
// is alone.
//
// Like SQLite's own index of the write-ahead log, the file works only between processes of one machine, and must not be deleted, changed or
// truncated: a process that opens a new file doesn't read the announcements of others in the old one. A process that notices this no longer
// remembers anything.
type generations struct {
	mapped *generationFile
	// file is locked for as long as this process is connected: shared, or at first exclusively.
	file     *os.File
	logger   *slog.Logger
	replaced atomic.Bool // another file has its name
}

// generationFile is the content of the file. A later version may append to it.
type generationFile struct {
	numbers [allParts]atomic.Uint64
	// commits counts the transactions of all processes, for processes that wait for one.
	commits atomic.Uint64
}

// generationFileSize is a page of the smallest size that can be mapped everywhere.
const generationFileSize = 4096

// openGenerations opens the file before the process connects to the database. ctx bounds the wait for another process that is
// just opening it.
func openGenerations(ctx context.Context, path string, logger *slog.Logger) (g *generations, err error) {
	file, err := os.OpenFile(path+".generation", os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // it stands beside the database
	if err != nil {
		return nil, fmt.Errorf("open the generation file of the database: %w", err)
	}
	g = &generations{file: file, logger: logger}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if err := allocate(file); err != nil {
		return nil, err
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, generationFileSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the generation file of the database: %w", err)
	}
	g.mapped = (*generationFile)(unsafe.Pointer(&mapped[0])) //nolint:gosec // a page is aligned for everything
	// A look-up that is still under way when the database is closed may read the numbers.
	runtime.AddCleanup(g, func(mapped []byte) { unix.Munmap(mapped) }, mapped) //nolint:errcheck // nothing refers to it
	if tryLock(file) {
		if err := g.beginAlone(path); err != nil {
			return nil, err
		}
	}
	return g, shareLock(ctx, file)
}

// allocate gives the file its size. It writes the bytes, because a full disk would end the process at its first write to mapped memory without a
// place on the disk. It leaves existing bytes alone, because another process may be using them.
func allocate(file *os.File) error {
	about, err := file.Stat()
	if err != nil {
		return fmt.Errorf("look at the generation file of the database: %w", err)
	}
	begin := max(about.Size(), int64(unsafe.Sizeof(generationFile{})))
	if begin >= generationFileSize {
		return nil
	}
	if _, err := file.WriteAt(make([]byte, generationFileSize-begin), begin); err != nil {
		return fmt.Errorf("size the generation file of the database: %w", err)
	}
	return nil
}

// beginAlone prepares the file when no other process has it open: unless another program is connected to the database, such as a shell of
// SQLite, it makes the numbers even that dead processes left odd.
func (g *generations) beginAlone(path string) error {
	connected, err := isConnected(path)
	if err != nil || connected {
		return err
	}
	for i := range g.mapped.numbers {
		if number := g.mapped.numbers[i].Load(); number%2 != 0 {
			g.mapped.numbers[i].Store(number + 1)
		}
	}
	return nil
}

// isConnected reports whether any process is connected to the database: each has a shared lock on a byte of the index of the write-ahead log. Only
// a process without a connection may call it, because closing the file releases the locks that the whole process has on it.
func isConnected(path string) (bool, error) {
	const connected = 128                                // see "DMS" in SQLite's os_unix.c
	index, err := os.OpenFile(path+"-shm", os.O_RDWR, 0) //nolint:gosec // it stands beside the database
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find other processes of the database: %w", err)
	}
	defer index.Close() //nolint:errcheck // it was only asked for a lock
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: connected, Len: 1}
	if err := unix.FcntlFlock(index.Fd(), unix.F_GETLK, &lock); err != nil {
		return false, fmt.Errorf("find other processes of the database: %w", err)
	}
	return lock.Type != unix.F_UNLCK, nil
}

// shareLock makes an exclusive lock of the file a shared one, or waits for a shared one.
func shareLock(ctx context.Context, file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock the generation file of the database: %w", err)
		case ctx.Err() != nil:
			return fmt.Errorf("lock the generation file of the database, which another process is opening: %w", context.Cause(ctx))
		}
		preciseSleep(turnPollSlow)
	}
}

// settled returns the number of a part, and false while the part may be changing.
func (g *generations) settled(of part) (number uint64, ok bool) {
	number = g.mapped.numbers[of].Load()
	runtime.KeepAlive(g)
	return number, number%2 == 0 && !g.replaced.Load()
}

// look notices that another file has the name of this one, such as after a restored backup.
func (g *generations) look() {
	if g.replaced.Load() {
		return
	}
	own, err := g.file.Stat()
	if err != nil {
		return // it is closed
	}
	if named, err := os.Stat(g.file.Name()); (err == nil && os.SameFile(own, named)) || !g.replaced.CompareAndSwap(false, true) {
		return
	}
	g.logger.Error("the generation file of the database was deleted or replaced: what other processes change is now read with each request; "+
		"restart all processes of the database", "file", g.file.Name())
}

// committed counts a transaction, and reads the file after that: unlike a write to mapped memory, a read is reported to the
// [commitWatch] of each process, and unlike a write to the file it leaves nothing for the disk.
func (g *generations) committed() {
	g.mapped.commits.Add(1)
	runtime.KeepAlive(g)
	readByte(g.file)
}

// readByte reads a byte of a file, whatever it is.
func readByte(file *os.File) {
	var first [1]byte
	file.ReadAt(first[:], 0) //nolint:errcheck // it is read to be noticed
}

// commits returns how many transactions were counted.
func (g *generations) commits() uint64 {
	commits := g.mapped.commits.Load()
	runtime.KeepAlive(g)
	return commits
}

// announcement is the odd number of each part that changes or was left odd. 0 means neither.
type announcement [allParts]uint64

// announce makes the numbers of the parts odd. Only a process that has SQLite's write lock may call it, before it commits. A process that left
// another number odd has therefore committed, or never will.
func (g *generations) announce(changed parts) (odd announcement) {
	for i := range g.mapped.numbers {
		number := &g.mapped.numbers[i]
		if was := number.Load(); !changed[i] && was%2 != 0 {
			odd[i] = was
		}
		for changed[i] {
			was := number.Load()
			odd[i] = (was + 1) | 1
			if number.CompareAndSwap(was, odd[i]) {
				break
			}
		}
	}
	runtime.KeepAlive(g)
	return odd
}

// settle makes the numbers of an announcement even after its COMMIT, unless a later change was announced since.
func (g *generations) settle(odd announcement) {
	for i, number := range odd {
		if number != 0 {
			g.mapped.numbers[i].CompareAndSwap(number, number+1)
		}
	}
	runtime.KeepAlive(g)
}

// close gives the lock up, which the mapped memory would hold on to.
func (g *generations) close() error {
	unlock(g.file)
	return g.file.Close()
}

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
	for reports := make([]byte, 4096); ; {
		if w.reads != nil {
			if _, err := w.reads.Read(reports); err != nil {
				return // it is closed
			}
		}
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
