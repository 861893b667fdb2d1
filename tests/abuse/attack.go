package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Origin is the site that the widget of a [Target] is for.
const Origin = "https://shop.example.com"

// ChatPath is the address of calls.
const ChatPath = "/v1/chat/completions"

// Target is a product and what the attacker has there: an organization of its own, and what strangers can see.
type Target struct {
	// Address is the host and port.
	Address string
	// Key has all scopes, and its organization enough credits.
	Key string
	// Model is one that the organization may call. Endless is a prompt whose answer is a stream of several MiB, Long one whose whole
	// answer has 0.8 MiB.
	Model, Endless, Long string
	// Person is the e-mail address of another tenant, whose password the attacker guesses.
	Person string
	// Bot and Widget are channels of the attacker's; VisitorToken is a session of the widget.
	Bot, BotSecret, Widget, VisitorToken string
	// Page is the attacker's page on the social platform, whose deliveries PageSecret signs: the secret of an application of their own.
	Page, PageSecret string
	// Pages are those of [ManyPages].
	Pages []string
	// Sign returns the signature of a social platform's delivery, which an attacker has for their own page only.
	Sign func(body []byte) string
}

// Siege is one run of an attack.
type Siege struct {
	*Target

	// Connections are how many the attacks with many connections open.
	Connections int
	// Workers send requests, each as fast as it is answered.
	Workers int
	// Divisor makes the largest bodies smaller, for a product with the race detector; 0 means 1.
	Divisor int
	// PerSecond bounds the requests, and the new connections; 0 is no bound.
	PerSecond int
	// Enough is closed when the attack should end after what it has begun.
	Enough <-chan struct{}

	mu   sync.Mutex
	next time.Time
	// created counts the answers with the status 201.
	created atomic.Int64
}

// Attack is one way of misbehaving.
type Attack struct {
	Name string
	// Works: the product does what is asked for, as it must for a tenant, so that others may feel some of the machine's load.
	Works bool
	// Run attacks in waves until enough, at least once, and reports an answer that the contract doesn't allow. When ctx
	// ends it closes its connections at once.
	Run func(ctx context.Context, s *Siege) error
}

// Attacks returns all of them.
func Attacks() []Attack {
	waves := func(wave func(context.Context, *Siege) error) func(context.Context, *Siege) error {
		return func(ctx context.Context, s *Siege) error {
			for {
				if err := wave(ctx, s); err != nil {
					if ctx.Err() != nil {
						return nil //nolint:nilerr // the connections were cut
					}
					return err
				}
				if s.enough(ctx) {
					return nil
				}
			}
		}
	}
	return []Attack{
		{"slow bodies", false, waves(slowBodies)},
		{"idle connections", false, waves(idleConnections)},
		{"hostile JSON", false, waves(hostileJSON)},
		{"wrong credentials", false, waves(wrongCredentials)},
		{"prompts that are hard to count", false, waves(hardPrompts)},
		{"slow readers", false, waves(slowReaders)},
		{"unread lists", true, waves(unreadLists)},
		{"unread streams", true, waves(unreadStreams)},
		{"unread replays", true, waves(unreadReplays)},
		{"unread files", true, waves(unreadFiles)},
		{"visitors' lists", true, waves(visitorsLists)},
		{"half-sent headers", true, waves(halfSent)},
		{"documents that are hard to cut", true, waves(hardDocuments)},
		{"searches", true, waves(searches)},
		{"many changes", true, waves(manyChanges)},
		{"own deliveries", true, waves(ownDeliveries)},
		{"deliveries for many channels", true, waves(manyPages)},
		{"test events", true, waves(testEvents)},
		{"questions to platforms", true, waves(platformQuestions)},
		{"guesses from many addresses", true, waves(guesses)},
	}
}

func (s *Siege) enough(ctx context.Context) bool {
	select {
	case <-s.Enough:
		return true
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// pace waits until the next request is due.
func (s *Siege) pace(ctx context.Context) error {
	if s.PerSecond == 0 {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	due := s.next
	if now := time.Now(); due.Before(now) {
		due = now
	}
	s.next = due.Add(time.Second / time.Duration(s.PerSecond))
	s.mu.Unlock()
	select {
	case <-time.After(time.Until(due)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// crowd closes its connections when ctx ends, or by release.
func crowd(ctx context.Context) (open *Crowd, release func()) {
	open = &Crowd{}
	stop := context.AfterFunc(ctx, open.Close)
	return open, func() { stop(); open.Close() }
}

// slowBodies begin everywhere and never end. Each is answered and its connection closed. The forms that are open to everybody
// refuse the longer ones for their length.
func slowBodies(ctx context.Context, s *Siege) error {
	lengths := []int{8 << 20, 10_000}
	open, release := crowd(ctx)
	defer release()
	routes := s.Routes()
	for i := range s.Connections {
		if err := s.pace(ctx); err != nil {
			return err
		}
		c, err := open.Dial(ctx, s.Address, i)
		if err == nil {
			err = c.Begin(routes[i%len(routes)], lengths[i/len(routes)%len(lengths)], "{")
		}
		if err != nil {
			return err
		}
	}
	return open.requireRefused()
}

// requireRefused waits for the answers to all requests that were begun, and returns one fault of each route.
func (c *Crowd) requireRefused() error {
	faults := make(map[Route]error)
	busy, most := 0, len(c.all)/mostBusy
	for _, one := range c.all {
		if one.route == (Route{}) || faults[one.route] != nil { // without a request there is no answer
			continue
		}
		err := one.requireRefused()
		if errors.Is(err, errBusy) {
			if busy++; busy <= most {
				continue
			}
		}
		if err != nil {
			faults[one.route] = err
		}
	}
	return errors.Join(slices.Collect(maps.Values(faults))...)
}

// idleConnections do nothing: a third of them sends no byte, a third was answered and keeps its connection, the others
// promise bodies, as strangers and with a key.
func idleConnections(ctx context.Context, s *Siege) error {
	open, release := crowd(ctx)
	defer release()
	routes := s.Routes()
	stranger, tenant := routes[0], routes[0]
	for _, r := range routes {
		switch r.Path {
		case "/webhooks/social":
			stranger = r
		case ChatPath:
			tenant = r
		}
	}
	for i := range s.Connections {
		if err := s.pace(ctx); err != nil {
			return err
		}
		c, err := open.Dial(ctx, s.Address, i)
		switch {
		case err != nil:
		case i%3 == 1:
			_, err = io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		case i%6 == 2:
			err = c.Begin(stranger, 8<<20, "")
		case i%6 == 5:
			err = c.Begin(tenant, 32<<20, "")
		}
		if err != nil {
			return err
		}
	}
	return open.requireRefused()
}

// slowReaders begin streams and read nothing but the status. Their windows are small, or the machine's kernel would take
// megabytes of each answer for them, as fast as the scripted vendor makes it.
func slowReaders(ctx context.Context, s *Siege) error {
	open, release := crowd(ctx)
	defer release()
	open.slow = true
	body := prompt(s.Model, s.Endless, true)
	route := Route{Method: http.MethodPost, Path: ChatPath, Header: "Authorization: Bearer " + s.Key}
	for i := range s.Connections {
		if err := s.pace(ctx); err != nil {
			return err
		}
		c, err := open.Dial(ctx, s.Address, i)
		if err == nil {
			err = c.Begin(route, len(body), body)
		}
		if err != nil {
			return err
		}
	}
	for _, c := range open.all {
		if err := c.SetReadDeadline(time.Now().Add(answerWait)); err != nil {
			return fmt.Errorf("setting a deadline: %w", err)
		}
		line, err := c.reader.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the status of a stream: %w", err)
		}
		if !strings.Contains(line, " 200 ") {
			return errors.New("a stream began with " + line)
		}
	}
	select {
	case <-s.Enough:
	case <-ctx.Done():
	}
	return nil
}
