package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The moods of a vendor. The first is well; content comes only in the first and the last.
const (
	moodWell = iota
	moodDead
	moodFailing
	moodThrottling
	moodHanging
	moodEmpty
	moodLying
	moodBreaking
	moods
)

const (
	endpointClients = 64
	// wellFor is how long a vendor is well at least, and overlap how long the next one is well beside it.
	wellFor, overlap = 2 * time.Second, time.Second
)

// moodyVendor is an endpoint that dies, hangs, throttles and lies in turn, and keeps its own book.
type moodyVendor struct {
	*httptest.Server
	mood atomic.Int32

	mu sync.Mutex
	// well are the times in which the vendor was well; the last one may have no end.
	well  []span
	asked map[string][]arrival
}

type span struct{ from, to time.Time }

// arrival is a request in a vendor's book.
type arrival struct {
	at       time.Time
	ended    time.Time
	answered bool
}

func startMoodyVendor(t *testing.T) *moodyVendor {
	t.Helper()
	v := &moodyVendor{asked: map[string][]arrival{}}
	v.Server = httptest.NewServer(http.HandlerFunc(v.serve))
	t.Cleanup(func() {
		v.CloseClientConnections()
		v.Close()
	})
	return v
}

// set changes the mood.
func (v *moodyVendor) set(mood int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.mood.Swap(mood)
	if mood == moodWell && (before != moodWell || len(v.well) == 0) {
		v.well = append(v.well, span{from: time.Now()})
	} else if mood != moodWell && before == moodWell && len(v.well) > 0 {
		v.well[len(v.well)-1].to = time.Now()
	}
}

func (v *moodyVendor) serve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []struct{ Content string }
		Stream   bool
	}
	raw, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(raw, &body)
	mark := body.Messages[0].Content
	v.mu.Lock()
	v.asked[mark] = append(v.asked[mark], arrival{at: time.Now()})
	number := len(v.asked[mark]) - 1
	mood := v.mood.Load()
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		one := &v.asked[mark][number]
		one.ended, one.answered = time.Now(), mood == moodWell
	}()
	write := func(text string) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	switch mood {
	case moodDead:
		panic(http.ErrAbortHandler)
	case moodFailing:
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusInternalServerError)
		return
	case moodThrottling:
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"error":{"message":"slow down","type":"rate_limit_error"}}`, http.StatusTooManyRequests)
		return
	case moodHanging:
		<-r.Context().Done()
		return
	case moodEmpty:
		w.Header().Set("Content-Type", "text/event-stream")
		write(": nothing\n\n")
		return
	case moodLying:
		write("data: {\"error\":{\"message\":\"overloaded\",\"type\":\"overloaded_error\"}}\n\n")
		return
	}
	if !body.Stream {
		if mood == moodBreaking {
			w.Header().Set("Content-Length", "900")
			write(`{"choices":[{"message":{"content":"Hel`)
			panic(http.ErrAbortHandler)
		}
		write(`{"choices":[{"message":{"role":"assistant","content":"Hello there."},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	write("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n")
	write("data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n")
	if mood == moodBreaking {
		panic(http.ErrAbortHandler)
	}
	write("data: {\"choices\":[{\"delta\":{\"content\":\" there.\"},\"finish_reason\":\"stop\"}]}\n\n")
	write("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7,\"total_tokens\":18}}\n\ndata: [DONE]\n\n")
}

// trouble changes the moods until stop is closed. One vendor is always well, and beside the next one for some time, so that no
// call can lack one that answers.
func trouble(vendors []*moodyVendor, random *rand.Rand, stop <-chan struct{}) {
	well, before, changes := 0, 0, time.Now()
	vendors[well].set(moodWell)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			if now.After(changes.Add(wellFor)) {
				well, before, changes = (well+1+random.IntN(len(vendors)-1))%len(vendors), well, now
				vendors[well].set(moodWell)
			}
			for i, v := range vendors {
				if kept := i == well || i == before && now.Before(changes.Add(overlap)); !kept && random.IntN(3) == 0 {
					v.set(random.Int32N(moods))
				}
			}
		}
	}
}

// endpointAnswer is one request in a client's book.
type endpointAnswer struct {
	answer
	mark     string
	stream   bool
	from, to time.Time
	err      error
}

func (a *endpointAnswer) whole() bool {
	return a.Status == http.StatusOK && (!a.stream || bytes.HasSuffix(a.Body, []byte("data: [DONE]\n\n")))
}

// TestEndpointsInTrouble lets 64 clients ask a model with three endpoints that die, hang, throttle and lie in turn. No client may
// see an error while an endpoint that would have answered was not asked; no text is of two endpoints, and no endpoint is asked
// twice; and what clients paid is what they were told.
func TestEndpointsInTrouble(t *testing.T) {
	t.Parallel()
	seed := chaosSeed(t)
	if !soak() {
		endpointsInTrouble(t, store.SQLite, seed, 5*time.Second)
		return
	}
	eachEngine(t, func(t *testing.T, engine store.Engine) { endpointsInTrouble(t, engine, seed, 5*time.Minute) })
}

func endpointsInTrouble(t *testing.T, engine store.Engine, seed uint64, lasts time.Duration) {
	t.Helper()
	d := deploy(t, engine, startUpstream(t))
	var vendors []*moodyVendor
	endpoints := ""
	for i := range 3 {
		v := startMoodyVendor(t)
		vendors = append(vendors, v)
		d.App += fmt.Sprintf("provider moody%[1]d {\n protocol openai\n base_url %[2]s/v1\n api_key {env.ACME_KEY}\n first_byte_timeout 500ms\n response_timeout 1s\n }\n", i, v.URL)
		endpoints += fmt.Sprintf(" endpoint moody%d/m\n", i)
	}
	d.App += "model moody0/any {\n" + endpoints + " context_window 10000\n max_output_tokens 1000\n price_input 3000000\n price_output 7000000\n }\n"
	p := startProduct(t, d)
	const purse = int64(1_000_000_000)
	c := p.operator().customer(t, purse)

	stop := make(chan struct{})
	var director sync.WaitGroup
	director.Go(func() { trouble(vendors, rand.New(rand.NewPCG(seed, 0)), stop) }) //nolint:gosec // the same for the same seed
	books := make([][]endpointAnswer, endpointClients)
	end := time.Now().Add(lasts)
	together(endpointClients, func(i int) {
		for n := 0; time.Now().Before(end); n++ {
			a := endpointAnswer{mark: fmt.Sprintf("client %d, question %d", i, n), stream: n%2 == 0, from: time.Now()}
			a.answer, a.err = p.as(c).tryChat(prompt("moody0/any", a.mark, a.stream))
			a.to = time.Now()
			books[i] = append(books[i], a)
		}
	})
	close(stop)
	director.Wait()
	c.awaitNothingHeld(t)

	var told int64
	failed, broken, whole := 0, 0, 0
	for _, a := range slices.Concat(books...) {
		require.NoError(t, a.err)
		requireAskedOnce(t, vendors, &a)
		if a.whole() {
			whole++
			done := requireAnswered(t, a.answer, "moody0/any", a.stream)
			require.Equal(t, "Hello there.", done.Text, "the text of one endpoint")
			told += done.charged(t)
			continue
		}
		if a.Status == http.StatusOK {
			requireBroken(t, a.answer, "provider_error")
			require.Equal(t, 1, bytes.Count(a.Body, []byte("Hello")), "the text of one endpoint")
			broken++
			continue
		}
		failed++
		requireNoneLeft(t, vendors, &a)
	}
	require.Positive(t, whole)
	t.Logf("%d answers, %d broke off, %d failed", whole, broken, failed)
	require.Equal(t, purse-told, c.wallet(t).BalanceMicros)
	p.svc(t, "doctor")
}

// requireAskedOnce requires that no vendor was asked twice.
func requireAskedOnce(t *testing.T, vendors []*moodyVendor, a *endpointAnswer) {
	t.Helper()
	for i, v := range vendors {
		v.mu.Lock()
		asked := len(v.asked[a.mark])
		v.mu.Unlock()
		require.LessOrEqual(t, asked, 1, "%s: vendor %d was asked twice: %s", a.mark, i, a.Body)
	}
}

// rested reports whether a vendor was well during a call and had no reason to be left alone: the last thing that it did before was
// an answer, and nothing failed there since.
func (v *moodyVendor) rested(a *endpointAnswer) bool {
	var answered, failed time.Time
	for _, all := range v.asked {
		for _, one := range all {
			switch {
			case one.answered && one.ended.Before(a.from) && one.ended.After(answered):
				answered = one.ended
			case !one.answered && one.at.Before(a.to) && (one.ended.IsZero() || one.ended.After(failed)):
				failed = one.ended
			}
		}
	}
	well := slices.ContainsFunc(v.well, func(s span) bool { return s.from.Before(a.from) && (s.to.IsZero() || s.to.After(a.to)) })
	return well && answered.After(failed)
}

// requireNoneLeft requires of a failed call that every endpoint was asked that would have answered.
func requireNoneLeft(t *testing.T, vendors []*moodyVendor, a *endpointAnswer) {
	t.Helper()
	for i, v := range vendors {
		v.mu.Lock()
		asked := len(v.asked[a.mark])
		rested := asked == 0 && v.rested(a)
		v.mu.Unlock()
		require.False(t, rested, "%s failed, and vendor %d was well: %d %s", a.mark, i, a.Status, a.Body)
	}
}
