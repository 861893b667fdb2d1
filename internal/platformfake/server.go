package platformfake

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Secret is in every error text of the platforms.
const Secret = "platform-secret-4711"

// The operator's applications that the server expects.
const (
	LocalChatAppID     = "2551"
	LocalChatAppSecret = "localchat-app-secret"
	MarketAPartnerID   = "2001234"
	MarketAPartnerKey  = "market-a-partner-key"
	MarketBAppKey      = "123456"
	MarketBAppSecret   = "market-b-app-secret"
)

// awaitFor bounds every wait of a test.
const awaitFor = 30 * time.Second

// Sent is a message that a platform delivered to a customer.
type Sent struct {
	Type platforms.Type
	// ExternalID is the channel's: as the request names it (chat_app, market_a), else that of the token's account, if the
	// server made it.
	ExternalID string
	// Address, Text and Token are those of the request; MessageID is the id that the platform gave the message, even if the sender
	// didn't receive it.
	Address, Text, Token, MessageID string
	// At is when the platform took it.
	At time.Time
	// Template is the name of the template that was sent; "" for a text.
	Template string
	// File is what was sent in place of a text; nil for a text. Text is then empty.
	File *SentFile

	verdict Fault // what the platform's rules say about it
}

// Server plays all platforms. It is safe for concurrent use.
type Server struct {
	door    *door // nil: in memory
	address string
	closed  chan struct{}

	mu       sync.Mutex
	sent     []Sent
	attempts []Sent
	signals  []Signal
	written  map[string][]string // messages of the shop by conversation, see WriteAtMarketA
	scripts  []*script
	accounts map[string]*account // by access token
	refresh  map[string]*account // by refresh token
	gate     chan struct{}       // closed by Release
	arrival  chan struct{}       // closed and replaced when something arrives
	numbers  int
	judge    judge

	files     map[string]*file      // by id
	uploads   map[string]*SentFile  // by id
	links     map[string]*link      // by ticket
	templates map[string][]Template // of the chat app, by the number's id
	late      map[string]bool       // the chat app's customers who take no texts now
}

// script has the faults that the next matching requests meet.
type script struct {
	match  string
	faults []Fault
}

// Start serves on a free port of the loopback interface until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := InMemory(t)
	door, err := openDoor(s.Handler())
	require.NoError(t, err)
	s.door, s.address, s.judge.stall = door, door.address, stall
	t.Cleanup(door.close)
	return s
}

// InMemory listens nowhere: the test has [Server.Handler] serve the requests. That is for bubbles of package synctest, whose clock stands
// while somebody waits for the network.
func InMemory(t testing.TB) *Server {
	t.Helper()
	s := &Server{
		closed:   make(chan struct{}),
		accounts: map[string]*account{},
		refresh:  map[string]*account{},
		gate:     make(chan struct{}),
		arrival:  make(chan struct{}),

		files:     map[string]*file{},
		uploads:   map[string]*SentFile{},
		links:     map[string]*link{},
		templates: map[string][]Template{},
		late:      map[string]bool{},
	}
	t.Cleanup(func() { close(s.closed) })
	return s
}

// Handler serves the requests of all platforms, each below its name.
func (s *Server) Handler() http.Handler { return s.routes() }

// URL is the base to configure for a type; tokens are refreshed there, too.
func (s *Server) URL(t platforms.Type) string { return "http://" + s.address + "/" + string(t) }

// Config is a configuration of the built-in platforms that calls this server only, with the applications it expects.
func (s *Server) Config() messaging.Config {
	return messaging.Config{Drivers: builtin.Platforms(), Options: Options(func(platform string) string {
		return "http://" + s.address + "/" + platform
	})}
}

// Options are those of the built-in platforms for the applications that the server expects, with each platform's api_base.
func Options(base func(platform string) string) map[string]map[string]string {
	options := map[string]map[string]string{
		"bot": {}, "social": {},
		"localchat": {"app_id": LocalChatAppID, "app_secret": LocalChatAppSecret},
		"market_a":  {"partner_id": MarketAPartnerID, "partner_key": MarketAPartnerKey},
		"market_b":  {"app_key": MarketBAppKey, "app_secret": MarketBAppSecret},
	}
	for name := range options {
		options[name]["api_base"] = base(name)
	}
	return options
}

// Client is the built-in platforms, which call this server only; it is closed at the end of the test.
func (s *Server) Client(t testing.TB) *messaging.Set {
	t.Helper()
	set, err := messaging.New(s.Config())
	require.NoError(t, err)
	t.Cleanup(set.Close)
	return set
}

// Down cuts all connections and makes new ones be refused, as if nothing were there.
func (s *Server) Down() { s.door.shut() }

// Up ends Down.
func (s *Server) Up(t testing.TB) {
	t.Helper()
	require.NoError(t, s.door.open())
}

// Script makes the next requests whose text or address contains match meet the faults, one each, in order; then they are
// served well again. Of several scripts that match, the oldest goes first. A refresh matches by its refresh token, a
// request for the account of a token by that token; neither delivers anything.
func (s *Server) Script(match string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts = append(s.scripts, &script{match: match, faults: faults})
}

// Release lets all answers go that [Hang] holds back now.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	s.gate = make(chan struct{})
}

// Sent returns what was delivered so far, the oldest first.
func (s *Server) Sent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Sent(nil), s.sent...)
}

// SentTo returns what was delivered to one address so far, the oldest first.
func (s *Server) SentTo(address string) []Sent {
	var to []Sent
	for _, message := range s.Sent() {
		if message.Address == address {
			to = append(to, message)
		}
	}
	return to
}

// Attempts counts the requests to send so far, delivered or not, whose text or address contains match.
func (s *Server) Attempts(match string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, attempt := range s.attempts {
		if attempt.matches(match) {
			n++
		}
	}
	return n
}

// WaitSent waits until at least n messages were delivered and returns all.
func (s *Server) WaitSent(t testing.TB, n int) []Sent {
	t.Helper()
	s.wait(t, func() bool { return len(s.Sent()) >= n })
	return s.Sent()
}

// WaitAttempts waits until at least n requests to send have come whose text or address contains match.
func (s *Server) WaitAttempts(t testing.TB, match string, n int) {
	t.Helper()
	s.wait(t, func() bool { return s.Attempts(match) >= n })
}

func (s *Server) wait(t testing.TB, done func() bool) {
	t.Helper()
	late := time.NewTimer(awaitFor)
	defer late.Stop()
	for {
		s.mu.Lock()
		arrival := s.arrival
		s.mu.Unlock()
		if done() {
			return
		}
		select {
		case <-arrival:
		case <-late.C:
			require.FailNow(t, "the platforms wait in vain", "delivered so far: %+v", s.Sent())
		}
	}
}

func (m Sent) matches(match string) bool {
	return strings.Contains(m.Text, match) || strings.Contains(m.Address, match)
}

// take records a request to send and returns the fault that it meets. If that delivers, the message has got its id.
func (s *Server) take(message *Sent) (Fault, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.accounts[message.Token]
	if owner != nil && message.ExternalID == "" {
		message.ExternalID = owner.externalID
	}
	s.attempts = append(s.attempts, *message)
	now := time.Now()
	message.At = now
	s.judge.sees(message, now)
	fault := Unauthorized
	if !owner.bad() {
		fault = s.nextFault(message.Text, message.Address)
		if fault.delivers() && !message.verdict.delivers() {
			fault = message.verdict
		}
	}
	if fault.asksForPause() {
		s.judge.pauses(message, fault, now)
	}
	if fault.delivers() {
		s.numbers++
		message.MessageID = messageID(*message, s.numbers)
		s.sent = append(s.sent, *message)
	}
	s.announce()
	return fault, s.gate
}

// takeOther notes a request that sends nothing.
func (s *Server) takeOther(subject string) (Fault, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fault := s.nextFault(subject)
	s.announce()
	return fault, s.gate
}

// announce wakes waiting tests. The caller holds the mutex.
func (s *Server) announce() {
	close(s.arrival)
	s.arrival = make(chan struct{})
}

// nextFault takes the next one of the oldest script that matches. The caller holds the mutex.
func (s *Server) nextFault(subjects ...string) Fault {
	for _, script := range s.scripts {
		matches := slices.ContainsFunc(subjects, func(subject string) bool { return strings.Contains(subject, script.match) })
		if matches && len(script.faults) > 0 {
			fault := script.faults[0]
			script.faults = script.faults[1:]
			return fault
		}
	}
	return Fault{}
}

// exchange is one request with the fault that it meets.
type exchange struct {
	w     http.ResponseWriter
	r     *http.Request
	fault Fault
	gate  <-chan struct{}
	fail  failer
	// quotes is the part of the request that an error text of the platform repeats.
	quotes string
}

// failer answers with an error in the platform's own words, of which text is one.
type failer func(w http.ResponseWriter, fault Fault, text string)

// end answers with good, or as the fault scripts it.
func (s *Server) end(x exchange, good string) {
	switch x.fault.kind {
	case dropBefore, dropAfter:
		panic(http.ErrAbortHandler)
	case garbage:
		page(x.w, http.StatusOK)
	case truncated:
		x.w.Header().Set("Content-Length", strconv.Itoa(len(good)))
		answer(x.w, http.StatusOK, good[:len(good)/2])
		panic(http.ErrAbortHandler)
	case redirect:
		x.w.Header().Set("Location", x.r.URL.RequestURI())
		page(x.w, http.StatusTemporaryRedirect)
	case serverError:
		page(x.w, http.StatusBadGateway)
	case hang, serveWell:
		if s.await(x) {
			answer(x.w, http.StatusOK, good)
		}
	default:
		x.fail(x.w, x.fault, Secret+" "+x.quotes)
	}
}

// await waits as the fault scripts it, and reports whether the client is still connected.
func (s *Server) await(x exchange) bool {
	gate := x.gate
	var pause <-chan time.Time
	switch {
	case x.fault.kind != hang && x.fault.pause <= 0:
		return true
	case x.fault.kind != hang:
		timer := time.NewTimer(x.fault.pause)
		defer timer.Stop()
		gate, pause = nil, timer.C
	}
	select {
	case <-gate:
		return true
	case <-pause:
		return true
	case <-x.r.Context().Done():
	case <-s.closed:
	}
	return false
}
