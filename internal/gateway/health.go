package gateway

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/providers"
)

const (
	// firstCool is the cool-down after a fault without a time of its own. Each further fault in a row doubles it, up to longestCool,
	// with a jitter of a quarter.
	firstCool   = time.Second
	longestCool = time.Minute
	// permanentCool is the cool-down after a fault that waiting doesn't remove and for which the dialect has no time: a wrong key, an
	// unknown model, an account without money. A configuration with another key or address ends it.
	permanentCool = 10 * time.Minute
	// failingFaults are the faults in a row after which an endpoint counts as failing.
	failingFaults = 3
	// maxCool limits the cool-down that an adapter sets, because adapters other than [providers.HTTP] may set any.
	maxCool = 24 * time.Hour
	// maxOwnHealth limits the organizations whose own keys are cooling at an endpoint. The cool-down of a further one is not kept.
	maxOwnHealth = 1024
)

// The outcomes of an attempt besides the classes of [providers.Failure].
const (
	// AttemptAnswered means that the answer was complete.
	AttemptAnswered = "answered"
	// AttemptCanceled means that the client left, or the process exits. The endpoint is not at fault.
	AttemptCanceled = "canceled"
)

// attemptOutcomes are all outcomes of attempts.
var attemptOutcomes = [...]string{
	AttemptAnswered, AttemptCanceled,
	string(providers.FailureRefused), string(providers.FailureUnreachable), string(providers.FailureOverloaded), string(providers.FailureTimeout),
	string(providers.FailureContextTooLong), string(providers.FailureRequestTooLarge), string(providers.FailureInvalid),
	string(providers.FailureBroken),
}

// healthKey names an endpoint: a model of a provider.
type healthKey struct{ provider, upstream string }

// health is the state of an endpoint as the calls of this process have observed it with one key. The zero value is healthy.
// Only its counters are written while the endpoint answers.
type health struct {
	// account is the [ProviderEntry.Account] with which the state was observed.
	account string
	// attempts counts ended attempts by [attemptOutcomes].
	attempts [len(attemptOutcomes)]atomic.Int64
	// cooled means that until is set, and keeps that own has or had an element.
	cooled, keeps atomic.Bool
	// other is the vendor's name of the model that gave the last answer, if it is another model than the endpoint's.
	other atomic.Pointer[string]

	mu sync.Mutex
	// since and until are the begin and the end of the last cool-down. until is zero after an answer to a later attempt.
	since, until time.Time
	// demanded means that the vendor's error has set until, not the number of faults.
	demanded bool
	// faults are the faults in a row.
	faults int
	// probing means that one call finds out whether the endpoint works again.
	probing bool
	// last is the class of the last fault.
	last providers.Failure
	// own are the states of organizations' own keys, by organization. Only failed ones are kept.
	own map[string]*health
}

// of returns the state for the key of an organization, or of the operator if orgID is empty. It is nil for an organization's key
// that has not failed. All methods except count, keep and failed accept nil as healthy.
func (h *health) of(orgID string) *health {
	if orgID == "" {
		return h
	}
	if !h.keeps.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.own[orgID]
}

// keep adds the state of an organization's key to own, unless there are too many. It drops the states of keys that work or whose
// cool-down is over.
func (h *health) keep(orgID string, own *health, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.own) >= maxOwnHealth {
		for id, other := range h.own {
			if rest, _ := other.rest(now); other != own && rest <= 0 {
				delete(h.own, id)
			}
		}
	}
	if h.own == nil {
		h.own = map[string]*health{}
	}
	if len(h.own) < maxOwnHealth && h.own[orgID] == nil {
		h.own[orgID] = own
		h.keeps.Store(true)
	}
}

// rest returns the time for which no call should use the endpoint: the rest of its cool-down, or 1 ns while another call probes.
// demanded means that the vendor's error has set the time.
func (h *health) rest(now time.Time) (rest time.Duration, demanded bool) {
	if h == nil || !h.cooled.Load() {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch rest = h.until.Sub(now); {
	case h.until.IsZero():
		return 0, false
	case rest > 0:
		return rest, h.demanded
	case h.probing:
		return 1, true
	}
	return 0, false
}

// enter begins an attempt. If the endpoint's cool-down has just ended the attempt is the probe, which leave must end. ok is false if
// rest isn't 0 any longer.
func (h *health) enter(now time.Time) (probe, ok bool) {
	if h == nil || !h.cooled.Load() {
		return false, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.until.IsZero():
		return false, true
	case h.probing || now.Before(h.until):
		return false, false
	}
	h.probing = true
	return true, true
}

// leave ends a probe, whatever it has shown.
func (h *health) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing = false
}

// answered ends the cool-down if the answered attempt began after the last fault.
func (h *health) answered(began time.Time) {
	if h == nil || !h.cooled.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !began.Before(h.since) {
		h.until, h.faults = time.Time{}, 0
		h.cooled.Store(false)
	}
}

// failed records the fault of an attempt. It returns the cool-down that begins with the fault, or 0 if none does. While the endpoint
// cools, only a longer time of the vendor's changes anything: calls that ran beside each other report one outage once.
func (h *health) failed(began, now time.Time, fault *providers.Error) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = fault.Failure
	begins, cool := !now.Before(h.until), min(fault.Cool, maxCool)
	switch {
	case cool > 0:
	case !begins || began.Before(h.since):
		return 0
	case fault.Permanent:
		cool = permanentCool
	default:
		cool = repeat.Around(min(firstCool<<min(h.faults, 16), longestCool))
	}
	if until := now.Add(cool); until.After(h.until) {
		h.since, h.until, h.demanded = now, until, fault.Cool > 0 || fault.Permanent
	}
	h.cooled.Store(true)
	if !begins {
		return 0
	}
	h.faults++
	return cool
}

// answeredAs records the vendor's name of the model that gave an answer. It reports whether the vendor has just begun to answer with
// another model than upstream.
func (h *health) answeredAs(upstream, name string) (changed bool) {
	before := h.other.Load()
	if name == "" || isVersion(upstream, name) {
		if before != nil && name != "" {
			h.other.Store(nil)
		}
		return false
	}
	if before != nil && *before == name {
		return false
	}
	h.other.Store(&name)
	return true
}

// isVersion reports whether a vendor's name of a model is the requested one, or the name of a version of it with its date or number.
// Routers put the vendor in front of a name, and a request may name the latest version.
func isVersion(upstream, name string) bool {
	if upstream == name {
		return true
	}
	upstream, name = upstream[strings.LastIndexByte(upstream, '/')+1:], name[strings.LastIndexByte(name, '/')+1:]
	upstream = strings.TrimSuffix(upstream, "-latest")
	if len(name) < len(upstream) || !strings.EqualFold(name[:len(upstream)], upstream) {
		return false
	}
	version := name[len(upstream):]
	return version == "" || strings.IndexByte("-@:.", version[0]) >= 0 && strings.Trim(version, "-@:.v0123456789") == ""
}

// count counts an ended attempt.
func (h *health) count(outcome string) {
	if i := slices.Index(attemptOutcomes[:], outcome); i >= 0 {
		h.attempts[i].Add(1)
	}
}

// adopt replaces the health of a new configuration's endpoints by the state that earlier configurations of this process have
// observed with the same account, because a reload of other parts ends no outage. Endpoints that no longer exist are forgotten.
func (f *InFlight) adopt(c *Catalog) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, fresh := range c.health {
		if known := f.health[key]; known != nil && known != fresh && known.account == fresh.account {
			c.health[key] = known
		}
	}
	for i := range c.models {
		for _, e := range c.models[i].serving {
			if known := c.health[e.key()]; e.health != known {
				e.health = known
			}
		}
	}
	f.health = c.health
}

// EndpointState describes an endpoint of the catalog.
type EndpointState struct {
	Provider, Upstream string
	// Cooled is the rest of the cool-down with the operator's key. 0 means that the endpoint is in use.
	Cooled time.Duration
	// Probing means that the cool-down is over and one call finds out whether the endpoint works again.
	Probing bool
	// Failing means that no call with the operator's key has succeeded since several faults in a row, or since one with a long cool-down.
	Failing bool
	// Failure is the class of the last fault. It may be empty.
	Failure providers.Failure
	// Other is the vendor's name of the model that gave the last answer, if it is another model than Upstream. It may be empty.
	Other string
	// Attempts are the numbers of ended attempts in this process by outcome, of operator's and organizations' keys together.
	Attempts map[string]int64
}

// Endpoints returns the state of all endpoints, sorted by provider and upstream.
func (g *Gateway) Endpoints() []EndpointState {
	now := g.Now()
	states := make([]EndpointState, 0, len(g.Catalog.health))
	for key, h := range g.Catalog.health {
		s := EndpointState{Provider: key.provider, Upstream: key.upstream, Attempts: make(map[string]int64, len(attemptOutcomes))}
		for i, outcome := range attemptOutcomes {
			s.Attempts[outcome] = h.attempts[i].Load()
		}
		if other := h.other.Load(); other != nil {
			s.Other = *other
		}
		h.mu.Lock()
		s.Cooled, s.Probing, s.Failure = max(0, h.until.Sub(now)), h.probing, h.last
		s.Failing = !h.until.IsZero() && (h.faults >= failingFaults || h.until.Sub(h.since) > longestCool)
		h.mu.Unlock()
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b EndpointState) int {
		return cmp.Or(strings.Compare(a.Provider, b.Provider), strings.Compare(a.Upstream, b.Upstream))
	})
	return states
}

// overload returns the rest of the cool-down if the endpoint cools because it was overloaded.
func (h *health) overload(now time.Time) (rest time.Duration, ok bool) {
	if h == nil {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	rest = h.until.Sub(now)
	return rest, rest > 0 && h.last == providers.FailureOverloaded
}
