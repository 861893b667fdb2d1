package tests

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// chaosProvider does to each request what the seed says, and keeps its own book.
type chaosProvider struct {
	seed   uint64
	script *script
	// well: from now on every request is answered.
	well atomic.Bool

	mu       sync.Mutex
	byMark   map[string][]*chaosRequest
	requests int64
}

// chaosRequest is one request in the provider's book.
type chaosRequest struct {
	mark, fault, authorization string
	// prompt and completion are what this request, and no other, reports; reported says that it did.
	prompt, completion int64
	reported           bool
}

func newChaosProvider(seed uint64) *chaosProvider {
	return &chaosProvider{seed: seed, byMark: map[string][]*chaosRequest{}}
}

// chaosOwnKey is the provider key of an organization.
func chaosOwnKey(orgID string) string { return "sk-own-of-" + orgID }

var chaosMark = regexp.MustCompile(`chaos-[0-9]+-[0-9]+\.`)

// usageRange makes the usages of all requests differ: the n-th reports n mod usageRange + 1 tokens in and n / usageRange
// + 1 out. So a usage in another book names its request.
const usageRange = 250

// note opens the book for a request, and says which of its mark it is.
func (p *chaosProvider) note(call *upstreamCall) (request *chaosRequest, attempt int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	request = &chaosRequest{
		mark: chaosMark.FindString(call.Raw), authorization: call.Header.Get("Authorization"),
		prompt: p.requests%usageRange + 1, completion: p.requests/usageRange + 1,
	}
	p.requests++
	p.byMark[request.mark] = append(p.byMark[request.mark], request)
	return request, len(p.byMark[request.mark])
}

// chaosFaults are what can happen to a request, by weight.
var chaosFaults = []struct {
	name   string
	weight int
}{
	{"none", 58},
	{"error", 4},
	{"overload", 4},
	{"timeout", 2},
	{"limit", 2},
	{"hang", 1},
	{"hang in the middle", 1},
	{"drop", 3},
	{"truncation", 5},
	{"reset", 5},
	{"reset after usage", 5},
	{"no usage", 4},
	{"zero usage", 3},
	{"absurd usage", 3},
}

func (p *chaosProvider) play(call *upstreamCall) {
	request, attempt := p.note(call)
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s %d", request.mark, attempt)
	random := rand.New(rand.NewPCG(p.seed, hash.Sum64())) //nolint:gosec // the same for the same seed
	fault := "none"
	if !p.well.Load() {
		pick := random.IntN(100)
		for _, f := range chaosFaults {
			if pick -= f.weight; pick < 0 {
				fault = f.name
				break
			}
		}
	}
	p.mu.Lock()
	request.fault = fault
	p.mu.Unlock()
	chaosAnswer{provider: p, call: call, request: request, random: random}.play(fault)
}

// chaosAnswer is a request that is being answered.
type chaosAnswer struct {
	provider *chaosProvider
	call     *upstreamCall
	request  *chaosRequest
	random   *rand.Rand
}

func (a chaosAnswer) play(fault string) {
	switch fault {
	case "error":
		vendorError(http.StatusInternalServerError)(a.call)
	case "overload":
		vendorError(http.StatusServiceUnavailable, "Retry-After", "1")(a.call)
	case "timeout":
		vendorError(http.StatusGatewayTimeout)(a.call)
	case "limit":
		vendorError(http.StatusTooManyRequests)(a.call)
	case "hang":
		a.call.hang()
	case "drop":
		a.call.drop()
	default:
		if a.call.Body.Stream {
			a.stream(fault)
		} else {
			a.whole(fault)
		}
	}
}

// text names its request, so that an answer that reaches another client shows.
func (a chaosAnswer) text() string {
	return fmt.Sprintf("to %s as %d/%d.", a.request.mark, a.request.prompt, a.request.completion)
}

// usage is what the answer reports, empty for nothing.
func (a chaosAnswer) usage(fault string) string {
	switch fault {
	case "no usage":
		return ""
	case "zero usage":
		return usage(0, 0)
	case "absurd usage":
		return usage(11, 1<<40)
	}
	a.provider.mu.Lock()
	defer a.provider.mu.Unlock()
	a.request.reported = true
	return usage(a.request.prompt, a.request.completion)
}

func (a chaosAnswer) whole(fault string) {
	a.pause()
	switch fault {
	case "truncation", "reset", "reset after usage":
		body := completion(a.text(), "")
		a.call.w.Header().Set("Content-Type", "application/json")
		a.call.w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		a.call.raw(body[:len(body)/2])
		a.call.drop()
	case "hang in the middle":
		a.call.w.Header().Set("Content-Type", "application/json")
		a.call.raw(`{"id":"gen-1",`)
		a.call.hang()
	default:
		a.call.answer(a.text(), a.usage(fault))
	}
}

func (a chaosAnswer) stream(fault string) {
	a.call.begin()
	pieces := strings.SplitAfter(a.text(), " ")
	for i, piece := range pieces {
		a.pause()
		if i == len(pieces)-1 {
			switch fault {
			case "truncation":
				return
			case "reset":
				a.call.drop()
			case "reset after usage":
				a.call.raw(`data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"usage":` + a.usage(fault) + "}\n\n")
				a.call.drop()
			case "hang in the middle":
				a.call.hang()
				return
			}
		}
		a.call.text(piece)
	}
	a.call.finish("stop")
	a.call.usage(a.usage(fault))
	a.call.done()
}

// pause is the time that a model takes, so that there is a middle in which something can happen.
func (a chaosAnswer) pause() {
	select {
	case <-time.After(time.Duration(a.random.IntN(15)) * time.Millisecond):
	case <-a.call.Gone:
	}
}
