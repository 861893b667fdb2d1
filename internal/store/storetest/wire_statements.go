package storetest

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
)

// Statements returns the texts of all statements that were prepared through the wire, sorted: those with parameters. Statements of
// the simple protocol are not among them.
func (w *Wire) Statements() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.texts))
}

// messages reads the messages of a client of PostgreSQL: a start-up message, then messages with a type, a length and a body.
type messages struct {
	started bool
	rest    []byte // of a message that has not come whole
	names   map[string]string
}

// The types of the messages that prepare a statement (its name, its text, the types of its parameters) and that run it (a
// portal, the statement's name, its arguments).
const (
	parse = 'P'
	bind  = 'B'
)

// read adds the texts of statements that are prepared, and reports whether a COMMIT is among those that are run.
func (m *messages) read(more []byte, texts map[string]bool) (commits bool) {
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
			return commits
		}
		size := head + int(binary.BigEndian.Uint32(m.rest[head:]))
		if len(m.rest) < size {
			return commits
		}
		if parts := bytes.SplitN(m.rest[head+4:size], []byte{0}, 3); m.started && len(parts) == 3 {
			switch first, second := string(parts[0]), string(parts[1]); m.rest[0] {
			case parse:
				texts[second] = true
				m.names[first] = second
			case bind:
				commits = commits || m.names[second] == "COMMIT"
			}
		}
		m.started = true
		m.rest = m.rest[size:]
	}
}
