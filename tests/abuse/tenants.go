package abuse

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// What tenants do with a key of their own. Every answer may also be that there was too much of it.

const (
	// longText is about as long as the longest instructions of an assistant, in bytes.
	longText = 99_000
	// longList is the address of the largest page of them.
	longList = "/agents?limit=100"
	// longTexts is how many assistants with such instructions an attacker makes: the largest page of a list has as many.
	longTexts = 100
	// hardDocument is the size of the largest document, in bytes.
	hardDocument = 4 << 20
	// searchedDocument is the size of each of searchedDocuments documents that are searched, in bytes.
	searchedDocument  = 1 << 20
	searchedDocuments = 4
	// manyMessages are about as many as the largest delivery has.
	manyMessages = 50_000
)

var tooMuch = failing(errcode.RateLimited)

// names makes the names of what attackers create unique.
var names atomic.Int64

func (s *Siege) bearer() []string {
	return []string{"Authorization", "Bearer " + s.Key, "Content-Type", "application/json"}
}

// call is a request with the attacker's key.
func (s *Siege) call(method, path, body string) *request {
	return &request{method: method, path: path, header: s.bearer(), body: body}
}

func (s *Siege) allow(ok int, codes ...errcode.Code) []outcome {
	return append(append([]outcome{{ok, ""}}, tooMuch...), failing(codes...)...)
}

// longAgents are requests that create assistants with long instructions.
func (s *Siege) longAgents() (all []request) {
	for range longTexts {
		body := fmt.Sprintf(`{"name":"long %d","model":%q,"instructions":%q}`, names.Add(1), s.Model, strings.Repeat("w ", longText/2))
		all = append(all, request{http.MethodPost, "/agents", s.bearer(), body, s.allow(http.StatusCreated, errcode.PlanLimitExceeded)})
	}
	return all
}

// unreadLists ask for long lists on many connections and read nothing of them.
func unreadLists(ctx context.Context, s *Siege) error {
	if err := s.everyOne(ctx, s.longAgents()); err != nil {
		return err
	}
	return s.unread(ctx, s.call(http.MethodGet, longList, ""))
}

// unread sends a request on many connections, reads nothing of the answers, and waits until the attack should end.
func (s *Siege) unread(ctx context.Context, r *request) error {
	open, release := crowd(ctx)
	defer release()
	if err := s.beginAll(ctx, open, s.Connections, r); err != nil {
		return err
	}
	return s.lie(ctx)
}

// beginAll sends a request on n connections of distant clients.
func (s *Siege) beginAll(ctx context.Context, open *Crowd, n int, r *request) error {
	open.slow = true
	route := Route{Method: r.method, Path: r.path}
	for i := 0; i < len(r.header); i += 2 {
		route.Header += r.header[i] + ": " + r.header[i+1] + "\r\n"
	}
	route.Header = strings.TrimSuffix(route.Header, "\r\n")
	for i := range n {
		if err := s.pace(ctx); err != nil {
			return err
		}
		c, err := open.Dial(ctx, s.Address, i)
		if err == nil {
			err = c.Begin(route, len(r.body), r.body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lie waits until the attack should end.
func (s *Siege) lie(ctx context.Context) error {
	select {
	case <-s.Enough:
	case <-ctx.Done():
	}
	return nil
}

// unreadStreams ask for long lists, whole answers, and a kept answer on a few connections over HTTP/2, with windows of no size.
func unreadStreams(ctx context.Context, s *Siege) error {
	if err := s.everyOne(ctx, s.longAgents()); err != nil {
		return err
	}
	list := s.call(http.MethodGet, longList, "")
	answer := s.call(http.MethodPost, ChatPath, prompt(s.Model, s.Long, false))
	replay := s.longAnswer()
	if err := s.everyOne(ctx, []request{replay}); err != nil {
		return err
	}
	open, release := crowd(ctx)
	defer release()
	for i := range max(1, s.Connections/unreadEach) {
		u, err := open.unread(ctx, s.Address, i)
		if err != nil {
			return err
		}
		for n := range min(s.Connections, unreadEach) {
			if err := s.pace(ctx); err != nil {
				return err
			}
			if err := u.begin([]*request{list, answer, &replay}[n%3]); err != nil {
				return err
			}
		}
		if err := u.heads(http.StatusOK, http.StatusTooManyRequests, http.StatusConflict); err != nil {
			return err
		}
	}
	return s.lie(ctx)
}

// unreadEach is how many streams one connection has. Servers allow 250 at a time.
const unreadEach = 200

// unreadReplays ask on many connections for the kept answer of one call.
func unreadReplays(ctx context.Context, s *Siege) error {
	first := s.longAnswer()
	if err := s.everyOne(ctx, []request{first}); err != nil {
		return err
	}
	return s.unread(ctx, &first)
}

// longAnswer is a call whose whole answer is kept for a key of its own.
func (s *Siege) longAnswer() request {
	header := append(s.bearer(), "Idempotency-Key", fmt.Sprint("replay-", names.Add(1)))
	return request{http.MethodPost, ChatPath, header, prompt(s.Model, s.Long, false), s.allow(http.StatusOK)}
}

// halfSent begin requests whose header never ends.
func halfSent(ctx context.Context, s *Siege) error {
	open, release := crowd(ctx)
	defer release()
	for i := range s.Connections {
		if err := s.pace(ctx); err != nil {
			return err
		}
		c, err := open.Dial(ctx, s.Address, i)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(c, "POST "+ChatPath+" HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Padding: "+strings.Repeat("a", 2000)); err != nil {
			return fmt.Errorf("beginning a header: %w", err)
		}
	}
	return s.lie(ctx)
}

// hardDocuments are large, and have an end of a sentence that is looked for at each of their characters.
func hardDocuments(ctx context.Context, s *Siege) error {
	base, err := s.knowledgeBase(ctx)
	if err != nil || base == "" {
		return err
	}
	content := "a." + strings.Repeat(")", hardDocument-2)
	var all []request
	for range max(1, s.Connections) {
		body := fmt.Sprintf(`{"name":"hard %d","mediaType":"text/plain","content":%q}`, names.Add(1), content)
		all = append(all, request{http.MethodPost, "/knowledge-bases/" + base + "/documents", s.bearer(), body, s.allow(http.StatusCreated, errcode.InvalidRequest, errcode.PlanLimitExceeded)})
	}
	return s.everyOne(ctx, all)
}

// searches look for words that many parts of the documents have.
func searches(ctx context.Context, s *Siege) error {
	base, err := s.knowledgeBase(ctx)
	if err != nil || base == "" {
		return err
	}
	path := "/knowledge-bases/" + base
	content := strings.Repeat("Fresh tea from the hills of the north is sold here every day. ", searchedDocument/64)
	var stored []request
	for range searchedDocuments {
		body := fmt.Sprintf(`{"name":"tea %d","mediaType":"text/plain","content":%q}`, names.Add(1), content)
		stored = append(stored, request{http.MethodPost, path + "/documents", s.bearer(), body, s.allow(http.StatusCreated, errcode.PlanLimitExceeded)})
	}
	if err := s.everyOne(ctx, stored); err != nil {
		return err
	}
	var all []request
	for range max(1, s.Connections) {
		all = append(all, request{http.MethodGet, path + "/search?q=fresh+tea+of+the+north+sold+every+day+in+the+hills", s.bearer(), "", s.allow(http.StatusOK)})
	}
	return s.everyOne(ctx, all)
}

// knowledgeBase creates one and returns its id. It is empty if the attacker has done too much already.
func (s *Siege) knowledgeBase(ctx context.Context) (id string, err error) {
	var made struct{ ID string }
	err = s.get(ctx, 0, s.call(http.MethodPost, "/knowledge-bases", fmt.Sprintf(`{"name":"base %d"}`, names.Add(1))), &made)
	return made.ID, err
}

// manyChanges write as much as they may.
func manyChanges(ctx context.Context, s *Siege) error {
	all := s.longAgents()
	for range max(1, s.Connections) {
		all = append(all, s.longAgents()...)
	}
	return s.everyOne(ctx, all)
}

// ownDeliveries are signed with a secret of the attacker's own, for a channel of theirs: as many messages as fit, of many customers and
// of one.
func ownDeliveries(ctx context.Context, s *Siege) error {
	var all []request
	for range max(1, s.Connections) {
		for _, messages := range []int{manyMessages / max(1, s.Divisor), 1000} {
			for _, customers := range []int{messages, 1} {
				body := s.delivery(messages, customers)
				all = append(all, request{
					http.MethodPost, "/webhooks/social",
					[]string{"X-Hub-Signature-256", signWith(s.PageSecret, body)},
					string(body),
					s.allow(http.StatusOK, errcode.InvalidRequest, errcode.InternalError), // the last when the line for long ones is full: platforms come again
				})
			}
		}
	}
	return s.everyOne(ctx, all)
}

func signWith(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// delivery has messages of a page's customers.
func (s *Siege) delivery(messages, customers int) []byte {
	now := time.Now().UnixMilli()
	run := names.Add(1)
	text := fmt.Appendf(nil, `{"object":"page","entry":[{"id":"%s","time":%d,"messaging":[`, s.Page, now)
	for i := range messages {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `{"sender":{"id":"%d"},"recipient":{"id":"%s"},"timestamp":%d,"message":{"mid":"m%d.%d","text":"hi"}}`,
			run<<20+int64(i%customers), s.Page, now, run, i)
	}
	return append(text, "]}]}"...)
}

// platformQuestions have the product ask the platform about a channel, over and over.
func platformQuestions(ctx context.Context, s *Siege) error {
	var all []request
	for i := range max(1, s.Connections) {
		all = append(all, request{
			http.MethodPost, "/channels/" + s.Bot + "/verify", s.bearer(), "",
			s.allow(http.StatusOK, errcode.ChannelNeedsReauth, errcode.InvalidRequest, errcode.Conflict),
		}, request{
			http.MethodPost, "/channels", s.bearer(),
			fmt.Sprintf(`{"type":"social_messenger","name":"claim %d","externalId":"%d","credentials":{"accessToken":"token %d"}}`, names.Add(1), names.Add(1), i),
			s.allow(http.StatusCreated, errcode.InvalidRequest, errcode.Conflict, errcode.PlanLimitExceeded),
		})
	}
	return s.everyOne(ctx, all)
}

// guesses try passwords from many addresses.
func guesses(ctx context.Context, s *Siege) error {
	var all []request
	for i := range max(1, s.Connections) {
		all = append(all, request{
			http.MethodPost, "/session", nil, `{"email":"nobody-` + strconv.Itoa(i) + `@example.com","password":"wrong horse battery"}`,
			failing(errcode.Unauthenticated, errcode.RateLimited),
		})
	}
	return s.everyOne(ctx, all)
}
