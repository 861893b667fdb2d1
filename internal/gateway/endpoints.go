package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/providers"
)

const (
	// MaxEndpoints limits the endpoints of a model.
	MaxEndpoints = 32
	// maxAttempts limits the attempts of a call, each at another endpoint.
	maxAttempts = 4
	// stickyMessages and stickyBytes limit the part of a prompt that decides where calls with the same beginning go.
	stickyMessages = 3
	stickyBytes    = 1 << 10
)

// Endpoint is a place that can answer the calls of a model. Two endpoints may have one provider.
type Endpoint struct {
	// Provider names a [ProviderEntry].
	Provider string
	// Upstream is the vendor's name of the model.
	Upstream string
	// MaxTokensField is the vendor's name of max_tokens.
	MaxTokensField string
	// Thinking is [providers.Request.Thinking].
	Thinking string
	// Order is the level of the endpoint. Endpoints of a higher level are used only if no endpoint of a lower level can answer.
	Order int64
	// Weight is the share of the calls of its level. A weight of 0 drains the endpoint: it gets no calls.
	Weight int64
	// Cost is the operator's own price at the endpoint. The zero value means that it is unknown.
	Cost billing.Price
}

// endpoint is an [Endpoint] with its provider and its state.
type endpoint struct {
	Endpoint

	entry  *ProviderEntry
	health *health
	hash   uint64
}

func (e *endpoint) key() healthKey { return healthKey{e.Provider, e.Upstream} }

// serve sets the endpoints of a model and returns their faults.
func (c *Catalog) serve(m *Model) (faults []error) {
	endpoints := m.Endpoints
	if len(endpoints) == 0 {
		endpoints = []Endpoint{{
			Provider: m.Provider, Upstream: m.Upstream, MaxTokensField: m.MaxTokensField, Thinking: m.Thinking, Weight: 1,
		}}
	}
	if len(endpoints) > MaxEndpoints {
		return []error{fmt.Errorf("model %q has more than %d endpoints", m.ID, MaxEndpoints)}
	}
	seen := make(map[healthKey]bool, len(endpoints))
	m.serving, m.maxDuration = make([]*endpoint, 0, len(endpoints)), 0
	for _, configured := range endpoints {
		e := &endpoint{Endpoint: configured, entry: c.providers[configured.Provider]}
		if e.entry == nil {
			faults = append(faults, fmt.Errorf("model %q names the unknown provider %q", m.ID, e.Provider))
			continue
		}
		if seen[e.key()] {
			faults = append(faults, fmt.Errorf("model %q has the endpoint %s/%s twice", m.ID, e.Provider, e.Upstream))
		}
		seen[e.key()] = true
		if c.health[e.key()] == nil {
			c.health[e.key()] = &health{account: e.entry.Account}
		}
		if e.Weight > 0 {
			e.health, e.hash = c.health[e.key()], hashed(hashed(emptyHash, e.Provider), e.Upstream)
			m.serving = append(m.serving, e)
			m.maxDuration = max(m.maxDuration, e.entry.MaxDuration)
		}
	}
	if len(m.serving) == 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("model %q has no endpoint with a weight above 0", m.ID))
	}
	return faults
}

// hashed continues a hash with a text and an end of text. It is FNV-1a, which in package hash/fnv would allocate.
func hashed[T ~string | ~[]byte](hash uint64, text T) uint64 {
	const prime = 1099511628211
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * prime
	}
	return (hash ^ 0xff) * prime
}

// emptyHash is the hash of no text.
const emptyHash uint64 = 14695981039346656037

var (
	// errBudget is the cause of an attempt that ended because the time of its call was over.
	errBudget = errors.New("the attempts of the call took longer than max_duration")
	// errNoEndpoint means that every endpoint of a call was tried.
	errNoEndpoint error = final(OutcomeProviderError, "", "No endpoint of the model is left.")
	// errSilent is the cause of an attempt that ended because another endpoint may be quicker.
	errSilent = errors.New("no text came within first_byte_timeout")
	// errEmpty is the cause of an attempt that ended without an error, without text and without any generated token.
	errEmpty = errors.New("the answer is empty")
)

// attempts is the state of a call that may be tried at several endpoints, one after the other.
type attempts struct {
	// tried are the endpoints, by the bit of their index, that were asked or passed over.
	tried uint32
	// made is the number of attempts, with the running one. running means that the last one has no outcome yet.
	made    int
	running bool
	// forced means that an attempt was made at an endpoint that cools.
	forced bool
	// probes means that the running attempt is the only one of its endpoint, whose cool-down has ended.
	probes bool
	// health is the state of the current endpoint with the key of the call; see [health.of].
	health *health
	// sticky decides among the endpoints of a level. It is computed once, if there are several endpoints.
	sticky uint64
	// prompt is kept while another endpoint may have to answer, until the first text.
	prompt []providers.Message
	// wait is the shortest wait that an overloaded endpoint demands, or 0. timeouts counts attempts that timed out.
	wait     time.Duration
	timeouts int
	// permanent means that no attempt has failed with an error that may be over later.
	permanent bool
	// budget ends a further attempt with the time of the call, and silence an attempt without text. Both may be nil.
	budget, silence *time.Timer
	// failed are the failed attempts of a call with several endpoints.
	failed []billing.Attempt
}

// keyOwner returns the organization whose keys are used, or an empty text for the operator's keys.
func (c *call) keyOwner() string {
	if c.req.BYOK {
		return c.req.OrgID
	}
	return ""
}

// nextEndpoint chooses the endpoint of the next attempt and counts the call for its provider. Endpoints whose provider is busy are
// passed over. The error is a *[Failure] if none is left.
func (c *call) nextEndpoint() error {
	var busy error
	for {
		i := c.choose()
		if i < 0 {
			return cmp.Or(busy, errNoEndpoint)
		}
		c.tries.tried |= 1 << i
		chosen := c.model.serving[i]
		err := c.enterProvider(chosen.entry)
		if err == nil {
			c.endpoint, c.provider = chosen, chosen.entry
			return nil
		}
		c.endProbe()
		busy = err
	}
}

// choose returns the index of the endpoint of the next attempt, or -1 if none is left. An endpoint that cools is chosen only if all
// that were not tried cool. After the first of these in a call, only endpoints follow whose vendor didn't demand the rest: they may
// work again already, and an error of the client would be worse than a failed attempt.
func (c *call) choose() int {
	serving, t, owner := c.model.serving, &c.tries, c.keyOwner()
	if len(serving) == 1 {
		if t.tried != 0 {
			return -1
		}
		t.health = serving[0].health.of(owner)
		return 0
	}
	for now := c.Now(); ; {
		i, rests := c.best(now)
		if i < 0 {
			return -1
		}
		t.health = serving[i].health.of(owner)
		if rests {
			t.forced = true
			return i
		}
		var ok bool
		if t.probes, ok = t.health.enter(now); ok {
			return i
		}
	}
}

// best returns the index of the best endpoint that wasn't tried: of the lowest level, and there with the highest score. If all of them
// rest, it is the endpoint whose rest is the shortest. It is -1 if all were tried.
func (c *call) best(now time.Time) (index int, rests bool) {
	soonest := -1
	var shortest time.Duration
	var highest float64
	index = -1
	for i, e := range c.model.serving {
		if c.tries.tried&(1<<i) != 0 {
			continue
		}
		if rest, demanded := e.health.of(c.keyOwner()).rest(now); rest > 0 {
			if (!demanded || !c.tries.forced) && (soonest < 0 || rest < shortest) {
				soonest, shortest = i, rest
			}
			continue
		}
		score := c.score(e)
		if index < 0 || e.Order < c.model.serving[index].Order || e.Order == c.model.serving[index].Order && score > highest {
			index, highest = i, score
		}
	}
	if index < 0 {
		return soonest, true
	}
	return index, false
}

// score ranks an endpoint for the call by weighted rendezvous hashing: calls with the same beginning agree on the order of endpoints,
// and an endpoint that comes or goes moves only its own share.
func (c *call) score(e *endpoint) float64 {
	if c.tries.sticky == 0 {
		c.tries.sticky = c.stickiness() | 1
	}
	x := c.tries.sticky ^ e.hash // mixed as in splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return -float64(e.Weight) / math.Log((float64(x>>11)+0.5)/(1<<53))
}

// stickiness returns a number that is the same for calls of one conversation, or with the same leading messages, because the vendor's
// cache of their prompts is at the endpoint that read them before.
func (c *call) stickiness() uint64 {
	if c.req.Conversation != "" {
		return hashed(emptyHash, c.req.Conversation)
	}
	hash := hashed(hashed(emptyHash, c.req.OrgID), c.model.ID)
	for _, m := range c.req.Messages[:min(stickyMessages, len(c.req.Messages))] {
		hash = hashed(hash, m.Content[:min(stickyBytes, len(m.Content))])
		if m.Role == "user" { // later turns of the conversation differ after it
			break
		}
	}
	return hash
}

// address completes the vendor's request for the chosen endpoint. An endpoint without a key for the call is passed over.
func (c *call) address(ctx context.Context) error {
	for {
		key, err := c.upstreamKey(ctx)
		if err == nil {
			c.upstream.APIKey, c.upstream.Traceparent = key, ""
			c.upstream.Model, c.upstream.MaxTokensField, c.upstream.Thinking = c.endpoint.Upstream, c.endpoint.MaxTokensField, c.endpoint.Thinking
			return nil
		}
		if c.endProbe(); len(c.model.serving) == 1 || !isFailure(err) {
			return err
		}
		c.leaveProvider()
		if c.nextEndpoint() != nil {
			return err
		}
	}
}

func isFailure(err error) bool {
	_, ok := errors.AsType[*Failure](err)
	return ok
}

// endProbe lets another call probe the chosen endpoint. A forced attempt that was not made can be made elsewhere.
func (c *call) endProbe() {
	if t := &c.tries; t.probes {
		t.probes = false
		t.health.leave()
	}
}

// mayMove reports whether the call may be tried at another endpoint after the running attempt.
func (c *call) mayMove() bool {
	return len(c.model.serving) > bits.OnesCount32(c.tries.tried) && c.tries.made < maxAttempts
}

// lendPrompt gives the prompt to the adapter. If no other endpoint may have to answer, only the adapter keeps it, and drops it when
// the vendor has it: its texts are slices of the client's whole body, and a stream goes on for minutes.
func (c *call) lendPrompt() {
	if c.tries.prompt != nil {
		c.upstream.Messages, c.tries.prompt = c.tries.prompt, nil
	}
	c.upstream.Sent = func() {}
	if c.mayMove() {
		c.tries.prompt = c.upstream.Messages
	} else if c.req.Sent != nil {
		c.upstream.Sent = c.req.Sent
		c.req.Messages, c.prompt.messages = nil, nil
	}
}

// settleOn is called with the first text, or the end of an answer without text: from then on the call stays at its endpoint, and needs
// its prompt no longer.
func (c *call) settleOn() {
	t := &c.tries
	t.health.answered(c.upstreamAt)
	c.endProbe()
	if t.prompt == nil {
		return
	}
	t.prompt = nil
	if c.req.Sent != nil {
		c.req.Messages, c.prompt.messages = nil, nil
		c.req.Sent()
	}
}

// limitAttempt starts the timers of an attempt, which end it with cancel: a further attempt by the time of the call, for which its hold was
// made, and a stream without text if another endpoint may answer.
func (c *call) limitAttempt(cancel context.CancelCauseFunc) {
	t := &c.tries
	t.budget, t.silence = nil, nil
	if t.made > 1 {
		t.budget = time.AfterFunc(c.started.Add(c.model.maxDuration).Sub(c.Now()), func() { cancel(errBudget) })
	}
	if wait := c.provider.FirstText; wait > 0 && c.sink != nil && !c.model.Reasoning && c.mayMove() {
		t.silence = time.AfterFunc(wait, func() { cancel(errSilent) })
	}
}

// isEmpty reports whether the answer that has just ended is none: a vendor that breaks silently ends a stream in this way. An answer
// without text that has a cost, or that a filter or the bound of tokens ended, is an answer.
func (c *call) isEmpty() bool {
	return c.tries.prompt != nil && c.firstTextAt.IsZero() && (c.finish == "" || c.finish == "stop") && c.reported.CompletionTokens == 0
}

// endAttempt records the end of the running attempt: err, or nil for a complete answer.
func (c *call) endAttempt(err error) {
	t := &c.tries
	if !t.running {
		return
	}
	t.running = false
	c.upstreamEnd = c.Now()
	c.endProbe()
	outcome := AttemptAnswered
	if err != nil {
		fault := faultOf(err)
		if outcome = string(fault.Failure); fault.Failure == providers.FailureCanceled {
			outcome = AttemptCanceled
		}
		if movesOn(fault) {
			c.blame(fault)
		}
	}
	c.endpoint.health.count(outcome)
	if err == nil && c.endpoint.health.answeredAs(c.endpoint.Upstream, c.answering) {
		c.Logger.Warn("a vendor answers with another model than was requested", "provider", c.provider.Name,
			"upstream_model", c.endpoint.Upstream, "answering_model", c.answering, "call", c.id)
	}
}

// blame records a fault of the endpoint.
func (c *call) blame(fault *providers.Error) {
	t, owner := &c.tries, c.keyOwner()
	if t.health == nil {
		t.health = new(health)
	}
	if owner != "" {
		c.endpoint.health.keep(owner, t.health, c.upstreamEnd)
	}
	if cooled := t.health.failed(c.upstreamAt, c.upstreamEnd, fault); cooled > 0 && len(c.model.serving) > 1 {
		c.Logger.Warn("an endpoint of a model failed and is not asked for a while", "provider", c.provider.Name,
			"upstream_model", c.endpoint.Upstream, "byok", c.req.BYOK, "call", c.id, "seconds", cooled.Round(time.Second).Seconds(), "error", fault)
	}
	if !c.firstTextAt.IsZero() {
		return
	}
	t.permanent = fault.Permanent && (t.made == 1 || t.permanent)
	switch fault.Failure {
	case providers.FailureOverloaded:
		t.overloaded(overloadedRetryAfter(fault.RetryAfter))
	case providers.FailureTimeout:
		t.timeouts++
	default:
	}
	if len(c.model.serving) > 1 { // a failed attempt costs the organization nothing
		t.failed = append(t.failed, billing.Attempt{
			Provider: c.provider.Name, UpstreamModel: c.endpoint.Upstream, Failure: string(fault.Failure), Usage: c.reported,
			VendorPrice: c.vendorPrice(),
		})
		c.reported, c.uncounted = billing.Usage{}, 0
	}
}

// overloaded notes the wait that an endpoint demands.
func (t *attempts) overloaded(wait time.Duration) {
	if t.wait == 0 || wait < t.wait {
		t.wait = wait
	}
}

// failOver prepares the next attempt after err has ended an attempt. It returns false if the call must end with the error: text has
// come, the request or the client is the cause, or no endpoint, no attempt or no time is left.
func (c *call) failOver(ctx context.Context, err error) bool {
	if c.tries.prompt == nil || !movesOn(faultOf(err)) || c.draining.Load() || c.Now().Sub(c.started) >= c.model.maxDuration {
		return false
	}
	if c.events != nil {
		c.closeEvents()
		c.events = nil
	}
	hangUp := c.hangUp
	c.hangUp = nil
	if !hangUp() { // the client has just left
		return false
	}
	c.Logger.Debug("an attempt failed; another endpoint is asked", "provider", c.provider.Name, "upstream_model", c.endpoint.Upstream,
		"call", c.id, "request_id", c.req.RequestID, "error", err)
	c.endSpan(c.vendorFailure(faultOf(err)).Outcome, billing.Usage{}, billing.UsageNone)
	c.finish, c.answering = "", ""
	c.answered.Store(false)
	c.finished.Store(false)
	c.leaveProvider()
	return c.nextEndpoint() == nil && c.address(ctx) == nil
}

// verdict returns the error of a call whose attempts have all failed, the last one with err: overloaded with the shortest wait if an
// endpoint was, also if it wasn't asked because it cools; a timeout if all timed out; else an error of the vendor. Any other end is
// err.
func (c *call) verdict(err error) error {
	if err == nil || len(c.model.serving) == 1 || !c.firstTextAt.IsZero() || isFailure(err) {
		return err
	}
	t, fault := &c.tries, faultOf(err)
	if !movesOn(fault) {
		return err
	}
	now, owner := c.Now(), c.keyOwner()
	for i, e := range c.model.serving {
		if t.tried&(1<<i) == 0 {
			if rest, busy := e.health.of(owner).overload(now); busy {
				t.overloaded(overloadedRetryAfter(rest))
			}
		}
	}
	all := &providers.Error{Failure: providers.FailureRefused, Permanent: t.permanent, Detail: fault.Detail, Cause: err}
	if t.wait > 0 {
		all.Failure, all.RetryAfter, all.Permanent = providers.FailureOverloaded, t.wait, false
	} else if t.timeouts == t.made {
		all.Failure = providers.FailureTimeout
	}
	return all
}
