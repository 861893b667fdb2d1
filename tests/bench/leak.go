package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// leak sends parallel calls to a gateway whose key has a budget, and sums up what their answers cost: the money spent above the budget is its leak.
// The gateway may be any with OpenAI's interface, because money is tokens by the prices that are given.
type leak struct {
	url, key, model string
	calls, parallel int
	// budget is in micros. input and output are the prices of a million tokens in micros.
	budget, input, output int64
}

// leaked is the result of a [leak].
type leaked struct {
	answered, spent int64
	// refused counts the calls without an answer by status, 0 for those whose end is unknown. The gateway may have charged these.
	refused map[int]int64
}

// above returns the money spent above a budget.
func (l *leaked) above(budget int64) int64 { return max(0, l.spent-budget) }

const leakWait = 2 * time.Minute

// run sends the calls. All connections begin in the same moment.
func (l leak) run(ctx context.Context) (*leaked, error) {
	body, err := json.Marshal(map[string]any{
		"model": l.model, "max_tokens": 16, "messages": []any{map[string]string{"role": "user", "content": "Count to five."}},
	})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: leakWait, Transport: &http.Transport{MaxIdleConnsPerHost: l.parallel}}
	defer client.CloseIdleConnections()
	result, waiting, begin := &leaked{refused: map[int]int64{}}, make(chan struct{}, l.calls), make(chan struct{})
	for range l.calls {
		waiting <- struct{}{}
	}
	close(waiting)
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range l.parallel {
		callers.Go(func() {
			<-begin
			for range waiting {
				status, spent := l.call(ctx, client, body)
				mu.Lock()
				if status == http.StatusOK {
					result.answered++
					result.spent += spent
				} else {
					result.refused[status]++
				}
				mu.Unlock()
			}
		})
	}
	close(begin)
	callers.Wait()
	if result.answered == 0 {
		return result, errors.New("no call was answered, so nothing is known about the budget: is it spent already?")
	}
	return result, ctx.Err()
}

// call makes one call and returns what it cost. Status 0 means that its end is unknown.
func (l leak) call(ctx context.Context, client *http.Client, body []byte) (status int, micros int64) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(l.url, "/")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, 0
	}
	request.Header.Set("Authorization", "Bearer "+l.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, 0
	}
	defer response.Body.Close()
	var answer struct {
		Usage struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
		} `json:"usage"`
		Svc struct {
			Charged string `json:"charged_micros"`
		} `json:"svc"`
	}
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, 0
	}
	if err != nil || json.Unmarshal(text, &answer) != nil {
		return 0, 0
	}
	if charged, err := strconv.ParseInt(answer.Svc.Charged, 10, 64); err == nil {
		return response.StatusCode, charged
	}
	const perPrice = 1_000_000
	return response.StatusCode, (answer.Usage.Prompt*l.input + answer.Usage.Completion*l.output + perPrice - 1) / perPrice
}

// report writes the result for people.
func (l leak) report(w io.Writer, result *leaked) {
	fmt.Fprintf(w, "%d calls, %d in parallel: %d answered", l.calls, l.parallel, result.answered)
	for _, status := range slices.SortedFunc(maps.Keys(result.refused), cmp.Compare[int]) {
		fmt.Fprintf(w, ", %d with status %d", result.refused[status], status)
	}
	fmt.Fprintf(w, "\nspent %d of a budget of %d micros: leak = %d\n", result.spent, l.budget, result.above(l.budget))
}
