package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// How many counts wait in line: for one organization, and in all.
const (
	maxOrgCounts = 64
	maxCounts    = 1024
)

var errCountBusy = errors.New("too many prompts wait to be counted")

// countLine bounds the counts that run at a time. Waiting organizations take turns, so that one organization's many long
// prompts delay another's count by one share of work for each organization in line.
type countLine struct {
	mu sync.Mutex
	// free is how many more may run; 0 while any wait.
	free    int
	waiting int
	// turns are the organizations that wait, the next one first.
	turns []string
	// lines are the waiting counts by organization, the next one first. A closed channel is the place to run.
	lines map[string][]chan struct{}
}

func newCountLine(places int) *countLine {
	return &countLine{free: places, lines: map[string][]chan struct{}{}}
}

// enter waits for a place to run, which leave gives back. Its error is errCountBusy or the cause of ctx's end.
func (l *countLine) enter(ctx context.Context, orgID string) error {
	turn, err := l.join(orgID)
	if turn == nil || err != nil {
		return err
	}
	return l.wait(ctx, orgID, turn)
}

func (l *countLine) wait(ctx context.Context, orgID string, turn chan struct{}) error {
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		if !l.quit(orgID, turn) {
			l.leave() // the place came at the same time
		}
		return context.Cause(ctx)
	}
}

// join takes a free place, or queues: then turn is closed when there is a place.
func (l *countLine) join(orgID string) (turn chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free > 0 {
		l.free--
		return nil, nil //nolint:nilnil // a place without a wait
	}
	line := l.lines[orgID]
	if l.waiting >= maxCounts || len(line) >= maxOrgCounts {
		return nil, errCountBusy
	}
	return l.insert(orgID, len(line)), nil
}

// insert adds a count to its organization's line.
func (l *countLine) insert(orgID string, at int) (turn chan struct{}) {
	if l.lines[orgID] == nil {
		l.turns = append(l.turns, orgID)
	}
	turn = make(chan struct{})
	l.lines[orgID] = slices.Insert(l.lines[orgID], at, turn)
	l.waiting++
	return turn
}

// quit removes a count from the line. It returns false when its turn has come.
func (l *countLine) quit(orgID string, turn chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lines[orgID]
	at := slices.Index(line, turn)
	if at < 0 {
		return false
	}
	l.waiting--
	if l.lines[orgID] = slices.Delete(line, at, at+1); len(line) == 1 {
		delete(l.lines, orgID)
		l.turns = slices.DeleteFunc(l.turns, func(other string) bool { return other == orgID })
	}
	return true
}

// leave gives a place to the organization whose turn it is.
func (l *countLine) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next()
}

func (l *countLine) next() {
	if len(l.turns) == 0 {
		l.free++
		return
	}
	orgID := l.turns[0]
	l.turns = l.turns[1:]
	line := l.lines[orgID]
	close(line[0])
	l.waiting--
	if len(line) == 1 {
		delete(l.lines, orgID)
		return
	}
	l.lines[orgID] = line[1:]
	l.turns = append(l.turns, orgID)
}

// pass gives the count's place to another waiting organization, if there is one, and waits for the next place at the head of
// its own line, so that an organization's counts end one after the other. After an error the count has no place.
func (l *countLine) pass(ctx context.Context, orgID string) error {
	if ctx.Err() != nil {
		l.leave()
		return context.Cause(ctx)
	}
	turn := l.offer(orgID)
	if turn == nil {
		return nil
	}
	return l.wait(ctx, orgID, turn)
}

// offer returns nil when no other organization waits.
func (l *countLine) offer(orgID string) (turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.ContainsFunc(l.turns, func(other string) bool { return other != orgID }) {
		return nil
	}
	// When the count's own organization has waited longest, its turn comes at once and the others' after its next share.
	turn = l.insert(orgID, 0)
	l.next()
	return turn
}
