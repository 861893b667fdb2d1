package storetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Wire is a TCP proxy in front of a PostgreSQL server that can lose the server's answers, or go silent.
type Wire struct {
	// Location is the same database through the wire.
	Location store.Location

	mu      sync.Mutex
	changed *sync.Cond
	cutting bool
	commits bool // only answers to COMMIT are cut
	losing  losing
	counts  bool // statements that count requests are lost, too
	lost    int
	slow    time.Duration // that a COMMIT waits for before it is passed on
	silent  bool
	ended   bool
	conns   map[net.Conn]bool
	dialled int
	texts   map[string]bool
	trips   int

	listener net.Listener
	running  sync.WaitGroup
	closed   chan struct{}
}

// losing is the fault that a connection meets when it sends COMMIT.
type losing int

const (
	losesNothing losing = iota
	losesCommit         // the server never hears of it
	losesAnswer         // it is done, and its answer is lost
)

// session is a connection through the wire: both directions share it under the wire's mutex.
type session struct{ cutting bool }

// StartWire starts a wire to a location. It ends with the test.
func StartWire(t testing.TB, server store.Location) *Wire {
	t.Helper()
	w, err := NewWire(server)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

// NewWire starts a wire to a location, until Close.
func NewWire(server store.Location) (*Wire, error) {
	config, err := pgconn.ParseConfig(server.DSN)
	if err != nil {
		return nil, err
	}
	network, target := pgconn.NetworkAddress(config.Host, config.Port)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	location, err := store.ParseLocation(store.Postgres, server.DSN+fmt.Sprintf(" host=%s port=%s sslmode=disable", host, port))
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	w := &Wire{
		Location: location, conns: map[net.Conn]bool{}, texts: map[string]bool{}, listener: listener, closed: make(chan struct{}),
	}
	w.changed = sync.NewCond(&w.mu)
	w.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial(network, target)
			if err != nil {
				client.Close() // the client sees it
				continue
			}
			w.mu.Lock()
			w.conns[client], w.conns[upstream] = true, true
			w.dialled++
			w.mu.Unlock()
			both := new(session)
			w.running.Go(func() { w.copy(both, upstream, client, false) })
			w.running.Go(func() { w.copy(both, client, upstream, true) })
		}
	})
	return w, nil
}

// Close ends the wire with its connections. It is called once.
func (w *Wire) Close() {
	w.listener.Close() // ends the loop
	close(w.closed)
	w.set(func() { w.ended = true })
	w.Drop()
	w.running.Wait()
}

// copy moves bytes until one side closes, and holds them while the wire is silent. An answer that comes while answers are
// cut closes the client's side instead.
func (w *Wire) copy(both *session, to, from net.Conn, answers bool) {
	buffer := make([]byte, 64<<10)
	var said messages
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		unheard := false
		commits, counts, trips := false, false, 0
		if !answers {
			commits, counts, trips = said.read(buffer[:n], w.texts)
		}
		w.trips += trips
		if commits || counts && w.counts {
			w.cutting = w.cutting || w.commits
			both.cutting = both.cutting || w.losing != losesNothing
			unheard = w.losing == losesCommit
			if w.losing != losesNothing {
				w.lost++
			}
			w.waitToCommit()
		}
		for w.silent && !w.ended {
			w.changed.Wait()
		}
		cut := answers && (w.cutting || both.cutting) && n > 0 || unheard || w.ended
		w.mu.Unlock()
		if cut || err != nil && !errors.Is(err, io.EOF) {
			break
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			break
		}
	}
	to.Close()   // either side may be gone
	from.Close() // either side may be gone
	w.mu.Lock()
	delete(w.conns, to)
	delete(w.conns, from)
	w.mu.Unlock()
}

// waitToCommit holds a COMMIT up. It needs the mutex, and lets go of it meanwhile.
func (w *Wire) waitToCommit() {
	slow := w.slow
	w.mu.Unlock()
	defer w.mu.Lock()
	select {
	case <-time.After(slow):
	case <-w.closed:
	}
}

// SlowCommits lets every COMMIT that is sent from now on reach the server so much later.
func (w *Wire) SlowCommits(by time.Duration) { w.set(func() { w.slow = by }) }

// CutAnswers closes a connection instead of passing the server's next answer on: what was asked is done, and the client doesn't learn it.
func (w *Wire) CutAnswers() { w.set(func() { w.cutting = true }) }

// CutCommits is CutAnswers from the next COMMIT on: it is done, and the client doesn't learn it.
func (w *Wire) CutCommits() { w.set(func() { w.commits = true }) }

// LoseCommits ends each connection with its next COMMIT, which is done and the client doesn't learn it; other connections are well, and
// new ones are made. Without done the server doesn't hear of the COMMIT either.
func (w *Wire) LoseCommits(done bool) {
	w.set(func() {
		w.losing = losesCommit
		if done {
			w.losing = losesAnswer
		}
	})
}

// LoseCounts is LoseCommits(true), also for the statements that count requests, which are transactions of their own.
func (w *Wire) LoseCounts() { w.set(func() { w.losing, w.counts = losesAnswer, true }) }

// Lost is how many commits LoseCommits has lost.
func (w *Wire) Lost() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Mend passes commits and answers on again.
func (w *Wire) Mend() {
	w.set(func() { w.cutting, w.commits, w.counts, w.losing = false, false, false, losesNothing })
}

// Hang keeps every connection open, lets new ones in, and moves nothing, as a stopped server does.
func (w *Wire) Hang() { w.set(func() { w.silent = true }) }

// Resume moves what was held.
func (w *Wire) Resume() { w.set(func() { w.silent = false }) }

// Drop closes every connection, as a restarting server does.
func (w *Wire) Drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		conn.Close() // ends its copies
	}
}

// Dialled is the number of connections that were ever made through the wire.
func (w *Wire) Dialled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dialled
}

func (w *Wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	w.changed.Broadcast()
}

// Statements returns the texts of all statements that were prepared through the wire, sorted: those with parameters. Statements of
// the simple protocol are not among them.
func (w *Wire) Statements() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.texts))
}

// RoundTrips returns how often clients have waited for the answers to statements that ran. Preparing statements, which a connection
// does once, is not counted, and neither are the pings of a pool, which depend on how long a connection was idle.
func (w *Wire) RoundTrips() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trips
}

// messages reads the messages of a client of PostgreSQL: a start-up message, then messages with a type, a length and a body.
type messages struct {
	started bool
	ran     bool   // a statement since the last time that the client asked for answers
	rest    []byte // of a message that has not come whole
	names   map[string]string
}

// The types of the messages that prepare a statement (its name, its text, the types of its parameters), that run it (a
// portal, the statement's name, its arguments), and that ask for the answers: to all that was sent, or to a text of the
// simple protocol.
const (
	parse  = 'P'
	bind   = 'B'
	finish = 'S'
	simple = 'Q'
)

// ping is the text of pgx's ping.
const ping = "-- ping\x00"

// read adds the texts of statements that are prepared, reports whether a COMMIT, or one that counts requests, is among those that are
// run, and counts the round trips.
func (m *messages) read(more []byte, texts map[string]bool) (commits, counts bool, trips int) {
	if m.names == nil {
		m.names = map[string]string{}
	}
	m.rest = append(m.rest, more...)
	for {
		head := 0
		if m.started {
			head = 1
		}
		if len(m.rest) < head+4 {
			return commits, counts, trips
		}
		size := head + int(binary.BigEndian.Uint32(m.rest[head:]))
		if len(m.rest) < size {
			return commits, counts, trips
		}
		if m.started && m.asks(m.rest[0], string(m.rest[head+4:size])) {
			trips++
		}
		if parts := bytes.SplitN(m.rest[head+4:size], []byte{0}, 3); m.started && len(parts) == 3 {
			switch first, second := string(parts[0]), string(parts[1]); m.rest[0] {
			case parse:
				texts[second] = true
				m.names[first] = second
			case bind:
				commits = commits || m.names[second] == "COMMIT"
				counts = counts || strings.Contains(m.names[second], "INSERT INTO rate_windows")
			}
		}
		m.started = true
		m.rest = m.rest[size:]
	}
}

// asks reports whether a message asks for the answers to statements that ran.
func (m *messages) asks(sort byte, body string) bool {
	switch sort {
	case bind:
		m.ran = true
	case simple:
		return body != ping
	case finish:
		ran := m.ran
		m.ran = false
		return ran
	}
	return false
}
