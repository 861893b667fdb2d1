package storetest

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

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
