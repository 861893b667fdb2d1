package gateway

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/providers"
)

// maxStopBytes limits the stop sequences that a call applies itself, in bytes: 10,000 of 26 bytes. They need up to some 5 MiB and 10 ms before the
// vendor is called.
const maxStopBytes = 256 << 10

// stopNodeBytes is the size of a stopNode, of which a stop has one for each of its bytes.
const stopNodeBytes = 20

// splitStops sets the stop sequences that the vendor gets, as many as all endpoints of the model accept, and makes the search for the others. The
// error is a *[Failure] if the others are too long.
func (c *call) splitStops() error {
	most, refusesBlank := math.MaxInt, false
	for _, e := range c.model.serving {
		if e.entry.MaxStops >= 0 {
			most = min(most, e.entry.MaxStops)
		}
		refusesBlank = refusesBlank || e.entry.RefusesBlankStops
	}
	if c.model.DropStop {
		most = 0
	}
	c.upstream.Stop, c.stops = c.req.Stop, nil
	refused := func(stop string) bool { return refusesBlank && strings.TrimSpace(stop) == "" }
	if len(c.req.Stop) <= most && !slices.ContainsFunc(c.req.Stop, refused) {
		return nil
	}
	var sent, own []string
	size := 0
	for _, stop := range c.req.Stop {
		if len(sent) < most && !refused(stop) {
			sent = append(sent, stop)
		} else if stop != "" {
			own = append(own, stop)
			size += len(stop)
		}
	}
	c.upstream.Stop = sent
	switch {
	case size == 0:
		return nil
	case size > maxStopBytes:
		return final(OutcomeInvalidRequest, "stop",
			fmt.Sprintf("stop has %d bytes in sequences that the model's provider can't apply; allowed: %d.", size, maxStopBytes))
	}
	if err := c.room(c.wholeRoom() + stopNodeBytes*int64(size)); err != nil {
		return err
	}
	c.stops = newStopSearch(own)
	return nil
}

// untilStop replaces the text of an event with the text that may be passed on now. After a stop sequence no text is passed on, the event has the
// finish reason, and the vendor's call ends unless its usage is needed.
func (c *call) untilStop(event *providers.Event) {
	if c.stops.found {
		event.Text, event.Quoted = "", nil
	} else {
		c.stops.pass(event)
		if event.FinishReason != "" {
			event.Text, event.Quoted = event.Answer()+c.stops.rest(), nil
		}
	}
	if c.stops.found {
		event.FinishReason = "stop"
		if !c.readsOn() {
			c.closeEvents()
		}
	}
}

// stopped reports whether a stop sequence has ended the answer.
func (c *call) stopped() bool { return c.stops != nil && c.stops.found }

// endText passes the end of the text on, which was held back, when the vendor's call has ended. An answer that a stop sequence has ended is whole
// however the vendor's call ends.
func (c *call) endText(ended error) error {
	if err := c.pass(&providers.Event{Text: c.stops.rest()}); err != nil {
		return err
	}
	if !c.stopped() {
		return ended
	}
	c.finish = "stop"
	return io.EOF
}

// readsOn reports whether the vendor's call goes on to its end after a stop sequence has ended the answer, because only
// the usage at the end shows its price: for an answer in one piece, and for a model with hidden tokens.
func (c *call) readsOn() bool { return c.sink == nil || c.model.Reasoning }

// stopSearch finds the first occurrence of any of some stop sequences in a text that arrives in pieces. It is the automaton of Aho and Corasick,
// "Efficient String Matching" (1975): its time is linear in the bytes of the stops and of the text, whatever they are, with a factor of log 256 for
// the choice of a branch.
type stopSearch struct {
	// nodes are the beginnings of the stops, the shorter ones first, and an empty last node. nodes[0] is the empty beginning.
	nodes []stopNode
	// at is the node of the longest beginning that is the end of the text so far.
	at uint32
	// held is the end of the text so far, from where a stop may begin. It isn't passed on yet.
	held []byte
	// cut is the index in held at which the first stop begins, or -1. A longer stop that begins before it may still be incomplete.
	cut int
	// found means that the text has ended before a stop.
	found bool
}

// stopNode is the beginning of one or more stops.
type stopNode struct {
	// children is the first node that is one byte longer. The last one is before the next node's first.
	children uint32
	// fail is the node of the longest proper end of this beginning.
	fail uint32
	// length is that of the beginning, and match that of the longest stop at its end, or 0, in bytes.
	length, match uint32
	// last is the last byte of the beginning.
	last byte
}

// newStopSearch returns the search for stops, none of which is empty. It sorts them.
func newStopSearch(stops []string) *stopSearch {
	slices.Sort(stops)
	size, kept := 2, stops[:0] // without the stops that begin with another stop, since the other one is found first
	for _, stop := range stops {
		if len(kept) == 0 || !strings.HasPrefix(stop, kept[len(kept)-1]) {
			kept, size = append(kept, stop), size+len(stop)
		}
	}
	s := &stopSearch{nodes: make([]stopNode, 1, size), cut: -1}
	// The stops of each node of one length, in the order of the nodes. The nodes of a length follow each other.
	level, next := [][]string{kept}, [][]string(nil)
	for node := uint32(0); len(level) > 0; level, next = next, level[:0] {
		for _, below := range level {
			s.nodes[node].children = uint32(len(s.nodes)) //nolint:gosec // at most maxStopBytes
			next = s.branch(node, below, next)
			node++
		}
	}
	s.nodes = append(s.nodes, stopNode{children: uint32(len(s.nodes))}) //nolint:gosec // as above
	return s
}

// branch adds the children of a node, whose stops are below, and appends the stops of each child to next.
func (s *stopSearch) branch(node uint32, below []string, next [][]string) [][]string {
	length := s.nodes[node].length
	for len(below) > 0 && len(below[0]) > int(length) {
		child := stopNode{length: length + 1, last: below[0][length]}
		if node > 0 {
			child.fail = s.step(s.nodes[node].fail, child.last)
		}
		child.match = s.nodes[child.fail].match
		if len(below[0]) == int(child.length) {
			child.match = child.length
		}
		same := 1
		for same < len(below) && below[same][length] == child.last {
			same++
		}
		next = append(next, below[:same])
		below = below[same:]
		s.nodes = append(s.nodes, child)
	}
	return next
}

// step returns the node after one more byte of the text. Its shorter nodes must be complete.
func (s *stopSearch) step(at uint32, b byte) uint32 {
	for {
		low, end := s.nodes[at].children, s.nodes[at+1].children
		for high := end; low < high; {
			if middle := (low + high) / 2; s.nodes[middle].last < b {
				low = middle + 1
			} else {
				high = middle
			}
		}
		switch {
		case low < end && s.nodes[low].last == b:
			return low
		case at == 0:
			return 0
		}
		at = s.nodes[at].fail
	}
}

// pass replaces the text of an event with the text that can't belong to a stop. If nothing is held back, the event is left as it is.
func (s *stopSearch) pass(event *providers.Event) {
	piece := event.Answer()
	fresh := len(s.held) == 0
	for i := range len(piece) {
		s.at = s.step(s.at, piece[i])
		node := &s.nodes[s.at]
		end := len(s.held) + i + 1
		if begin := end - int(node.match); node.match > 0 && (s.cut < 0 || begin < s.cut) {
			s.cut = begin
		}
		if s.cut >= 0 && end-int(node.length) >= s.cut {
			s.found = true
			break
		}
	}
	if fresh && !s.found && s.at == 0 {
		return
	}
	s.held = append(s.held, piece...)
	passed := s.cut
	if !s.found {
		passed = len(s.held) - int(s.nodes[s.at].length)
		if s.cut >= 0 {
			passed = min(passed, s.cut)
			s.cut -= passed
		}
	}
	event.Text, event.Quoted = string(s.held[:passed]), nil
	s.held = s.held[passed:]
}

// rest ends the text and returns its end, which was held back.
func (s *stopSearch) rest() string {
	if s.found {
		return ""
	}
	rest := s.held
	if s.found = s.cut >= 0; s.found {
		rest = rest[:s.cut]
	}
	s.at, s.held = 0, nil
	return string(rest)
}
