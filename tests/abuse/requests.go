package abuse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// request is one that is sent whole, and the answers that the contract allows.
type request struct {
	method, path string
	header       []string // name, value, …
	body         string
	want         []outcome
}

// outcome is a status and the code of its error, "" for an answer that isn't one of ours in JSON.
type outcome struct {
	status int
	code   errcode.Code
}

func failing(codes ...errcode.Code) (all []outcome) {
	for _, code := range codes {
		all = append(all, outcome{code.Status(), code})
	}
	return all
}

// everyOne sends the requests, each by one of the workers, and returns the first fault.
func (s *Siege) everyOne(ctx context.Context, requests []request) error {
	var next, busy atomic.Int64
	faults := make([]error, max(1, s.Workers))
	var workers sync.WaitGroup
	for i := range faults {
		workers.Go(func() {
			client := Client(i)
			defer client.CloseIdleConnections()
			for {
				n := int(next.Add(1)) - 1
				if n >= len(requests) || faults[i] != nil {
					return
				}
				if faults[i] = s.pace(ctx); faults[i] == nil {
					faults[i] = s.send(ctx, client, &requests[n])
				}
				if errors.Is(faults[i], errBusy) && busy.Add(1) <= int64(len(requests)/mostBusy) {
					faults[i] = nil
				}
			}
		})
	}
	workers.Wait()
	return errors.Join(faults...)
}

// send asks, and returns an error unless the answer is one of those that are wanted.
func (s *Siege) send(ctx context.Context, client *http.Client, r *request) error {
	response, text, err := s.ask(ctx, client, r)
	if err != nil {
		return err
	}
	var body struct{ Error struct{ Code errcode.Code } }
	_ = json.Unmarshal(text, &body) // a page isn't JSON and has no code
	got := outcome{response.StatusCode, body.Error.Code}
	switch {
	case slices.Contains(r.want, got):
	case isBusy(response.StatusCode, response.Header.Get("Retry-After")):
		return fmt.Errorf("%s %s: %w", r.method, r.path, errBusy)
	default:
		return fmt.Errorf("%s %s with %.100s answered %d %.300s instead of one of %v", r.method, r.path, r.body, got.status, text, r.want)
	}
	if got.status == http.StatusCreated {
		s.created.Add(1)
	}
	return nil
}

// ask sends a request and reads the whole answer.
func (s *Siege) ask(ctx context.Context, client *http.Client, r *request) (*http.Response, []byte, error) {
	asked, err := http.NewRequestWithContext(ctx, r.method, "http://"+s.Address+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, nil, fmt.Errorf("making a request: %w", err)
	}
	for i := 0; i < len(r.header); i += 2 {
		asked.Header.Set(r.header[i], r.header[i+1])
	}
	response, err := client.Do(asked)
	if err != nil {
		return nil, nil, fmt.Errorf("asking: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the answer of %s: %w", r.path, err)
	}
	return response, text, nil
}

// get sends a request from the i-th address, and decodes the answer into out unless the attacker has done too much already.
func (s *Siege) get(ctx context.Context, i int, r *request, out any) error {
	client := Client(i)
	defer client.CloseIdleConnections()
	response, text, err := s.ask(ctx, client, r)
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode == http.StatusPaymentRequired:
		return nil
	case response.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("%s %s answered %d %.300s", r.method, r.path, response.StatusCode, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", r.path, err)
	}
	return nil
}

// shapes are values that take a decoder long, or much memory, of about n bytes. Those that are nested too deeply are invalid.
func shapes(n int) (wide, deep []string) {
	list := func(element string) string {
		return "[" + strings.Repeat(element+",", n/(len(element)+1)) + element + "]"
	}
	wide = []string{
		list("[]"), list(`{"a":{}}`), list("1"), list(`""`), list("[[[[[[[[]]]]]]]]"), strings.Repeat(" ", n) + "1",
		`"` + strings.Repeat(`\u00e9`, n/6) + `"`, "1" + strings.Repeat("0", n),
	}
	deep = []string{
		strings.Repeat("[", n/2) + strings.Repeat("]", n/2), strings.Repeat(`{"a":`, n/6) + "1" + strings.Repeat("}", n/6), strings.Repeat("[", n),
	}
	return wide, deep
}

// hostileJSON is wide, nested, blank or without an end; every decoder gets it.
func hostileJSON(ctx context.Context, s *Siege) error {
	large, small := 900_000/max(1, s.Divisor), 15_000
	key := []string{"Authorization", "Bearer " + s.Key, "Content-Type", "application/json"}
	plain := []string{"Content-Type", "application/json"}
	bad := failing(errcode.InvalidRequest)
	limited := failing(errcode.InvalidRequest, errcode.RateLimited) // by the window of the organization's API
	unsigned := failing(errcode.Unauthenticated)
	fine := []outcome{{http.StatusOK, ""}}
	usual := fmt.Sprintf(`"model":%q,"messages":[{"role":"user","content":"hello"}],"max_tokens":5`, s.Model)
	var all []request
	post := func(path string, header []string, body string, want []outcome) {
		all = append(all, request{http.MethodPost, path, header, body, want})
	}
	// add sends a shape to all decoders of large bodies; read is the answer of those that skip what they don't know.
	add := func(shape string, read []outcome) {
		post(ChatPath, key, `{`+usual+`,"x":`+shape+`}`, read)
		post(ChatPath, key, `{"model":`+shape+`}`, bad)
		post(ChatPath, key, `{"messages":`+shape+`}`, bad)
		post("/agents", key, `{"x":`+shape+`}`, limited) // has no name
		post("/agents", key, `{"knowledgeBaseIds":`+shape+`}`, limited)
		for _, path := range []string{"/webhooks/social", "/webhooks/localchat", "/webhooks/market-a", "/webhooks/market-b"} {
			post(path, plain, `{"entry":`+shape+`,"data":`+shape+`}`, unsigned)
		}
		signed := `{"object":"page","entry":` + shape + `}`
		post("/webhooks/social", []string{"X-Hub-Signature-256", s.Sign([]byte(signed))}, signed, read)
		post("/webhooks/bot/"+s.Bot, []string{"X-Bot-Api-Secret-Token", s.BotSecret}, `{"update_id":1,"message":`+shape+`}`, read)
	}
	public := func(shape string) {
		post("/session", plain, `{"email":`+shape+`}`, bad)
		post("/session/password", plain, `{"x":`+shape+`}`, bad)
		post("/widget/"+s.Widget+"/messages", append(plain, "Origin", Origin, "Authorization", "Bearer "+s.VisitorToken), `{"x":`+shape+`}`, bad)
	}
	wide, deep := shapes(large)
	for _, shape := range wide {
		add(shape, fine)
	}
	for _, shape := range deep {
		add(shape, bad)
	}
	wide, deep = shapes(small)
	for _, shape := range append(wide, deep...) {
		public(shape)
	}
	return s.everyOne(ctx, all)
}

// wrongCredentials are tried at every entrance: keys that are well-formed and unknown, or malformed, passwords of unknown and of
// known users, sessions, one-time links, visitors' tokens and signatures.
func wrongCredentials(ctx context.Context, s *Siege) error {
	unknown, _, _ := identity.NewKey(store.Live)
	wrongKey, unauthenticated := failing(errcode.InvalidAPIKey), failing(errcode.Unauthenticated)
	wrongPassword := failing(errcode.Unauthenticated, errcode.RateLimited)
	wrongLink := failing(errcode.InvalidRequest, errcode.RateLimited)
	login := func(email string) string {
		return fmt.Sprintf(`{"email":%q,"password":"wrong horse battery"}`, email)
	}
	var all []request
	for i := range max(1, s.Connections) {
		bearer := []string{"Authorization", "Bearer " + unknown}
		all = append(
			all,
			request{http.MethodGet, "/v1/models", bearer, "", wrongKey},
			request{http.MethodPost, ChatPath, []string{"X-Api-Key", "ck_live_" + strings.Repeat("0", 49)}, "{}", wrongKey},
			request{http.MethodPost, "/agents", bearer, "{}", wrongKey},
			request{http.MethodPost, "/agents", []string{"Cookie", "svc_session=" + store.NewID("ses")}, "{}", unauthenticated},
			request{http.MethodPost, "/webhooks/bot/" + s.Bot, []string{"X-Bot-Api-Secret-Token", "wrong"}, "{}", unauthenticated},
			request{http.MethodPost, "/webhooks/social", []string{"X-Hub-Signature-256", "sha256=" + strings.Repeat("0", 64)}, "{}", unauthenticated},
			request{http.MethodPost, "/webhooks/localchat", []string{"X-Localchat-Event-Signature", "mac=" + strings.Repeat("0", 64)}, `{"timestamp":"1"}`, unauthenticated},
			request{http.MethodPost, "/webhooks/market-a", []string{"Authorization", strings.Repeat("0", 64)}, "{}", unauthenticated},
			request{http.MethodPost, "/webhooks/market-b", []string{"Authorization", strings.Repeat("0", 64)}, "{}", unauthenticated},
			request{http.MethodPost, "/widget/" + s.Widget + "/messages", []string{"Origin", Origin, "Authorization", "Bearer wrong"}, "{}", unauthenticated},
		)
		if i%5 != 0 { // a password is hashed
			continue
		}
		all = append(
			all,
			request{http.MethodPost, "/session", nil, login(fmt.Sprintf("somebody-%d@example.com", i)), wrongPassword},
			request{http.MethodPost, "/session", nil, login(s.Person), wrongPassword},
			request{http.MethodPost, "/session/password", nil, `{"token":"wrong","password":"wrong horse battery"}`, wrongLink},
		)
	}
	return s.everyOne(ctx, all)
}

// hardPrompts are so long that their tokens are counted, and of the sorts that a tokenizer takes long for.
func hardPrompts(ctx context.Context, s *Siege) error {
	const most = 200_000
	want := append([]outcome{{http.StatusOK, ""}}, failing(errcode.ContextTooLong)...)
	var all []request
	for range max(1, s.Connections) {
		for _, text := range []string{
			strings.Repeat(" ", most), strings.Repeat("\n", most), strings.Repeat("a", most), strings.Repeat("ạ", most), strings.Repeat(" \n\t", most/3),
		} {
			all = append(all, request{http.MethodPost, ChatPath, []string{"Authorization", "Bearer " + s.Key}, conversation(s.Model, false, text, text), want})
		}
	}
	return s.everyOne(ctx, all)
}

// prompt is the body of a call with one message.
func prompt(model, text string, stream bool) string { return conversation(model, stream, text) }

// conversation is the body of a call with a message for each text.
func conversation(model string, stream bool, texts ...string) string {
	var messages []map[string]string
	for _, text := range texts {
		messages = append(messages, map[string]string{"role": "user", "content": text})
	}
	encoded, err := json.Marshal(messages)
	if err != nil {
		panic(err) // strings are always JSON
	}
	return fmt.Sprintf(`{"model":%q,"messages":%s,"stream":%t,"max_tokens":4000}`, model, encoded, stream)
}
