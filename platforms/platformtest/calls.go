package platformtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// traffic records the requests of an adapter to the platform.
type traffic struct {
	mu       sync.Mutex
	requests []string
}

func (w *traffic) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

// recording keeps every request, with its address, headers and body, and has it answered.
func (w *traffic) recording(answer http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var text strings.Builder
		_ = r.Header.Write(&text)
		w.mu.Lock()
		w.requests = append(w.requests, r.URL.RequestURI()+"\n"+text.String()+"\n"+string(body))
		w.mu.Unlock()
		answer(rw, r)
	}
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// outgoing is a reply to the customer of the sample.
func (s Suite) outgoing(t testing.TB, of platforms.Type, text string) *platforms.Outgoing {
	t.Helper()
	items, err := s.platform(t, unreachable, nil).Extract([]byte(s.Channels[of].body("1001", "hello")))
	require.NoError(t, err)
	require.Len(t, items, 1)
	channel := s.channel(of)
	return &platforms.Outgoing{
		Type: of, ExternalID: channel.ExternalID, Credentials: channel.Credentials,
		Conversation: items[0].Conversation, Address: items[0].Address, Text: text, Mark: "msg_0123456789",
	}
}

// replyText is the text of messages if the text doesn't matter. It must be in no error.
const replyText = "confidential reply"

// requireFailure checks that err is an error of the contract which reveals nothing, and returns it.
func (s Suite) requireFailure(t testing.TB, p platforms.Platform, of platforms.Type, err error, why string) *platforms.Error {
	t.Helper()
	var failure *platforms.Error
	require.ErrorAs(t, err, &failure, "%s: %s", of, why)
	require.NotNil(t, failure, "%s: %s", of, why)
	require.Contains(t, platforms.Classes(), failure.Class, "%s: %s", of, why)
	require.Error(t, failure.Cause, "%s: %s: the cause is for the log", of, why)
	if failure.Class != platforms.Retry {
		require.Zero(t, failure.RetryAfter, "%s: %s", of, why)
		require.False(t, failure.Closed, "%s: %s", of, why)
	} else if failure.RetryAfter != 0 || failure.Closed {
		most := 24 * time.Hour
		if failure.Closed {
			most = 12 * time.Hour
		}
		require.True(t, failure.RetryAfter >= time.Second && failure.RetryAfter <= most, "%s: %s: %v", of, why, failure.RetryAfter)
	}
	if _, refresher := p.(platforms.Refresher); failure.Refreshable {
		require.True(t, refresher && failure.Class == platforms.NeedsReauth, "%s: %s: a refresh can't help", of, why)
	}
	for _, hidden := range s.hidden(of) {
		require.NotContains(t, err.Error(), hidden, "%s: %s", of, why)
	}
	return failure
}

// hidden are the texts that no error may contain.
func (s Suite) hidden(of platforms.Type) []string {
	all := []string{replyText, "/some/base"}
	for _, o := range s.Driver.Describe().Options {
		if value := s.Options[o.Name]; value != "" && o.Kind == option.Secret {
			all = append(all, value)
		}
	}
	return slices.AppendSeq(all, maps.Values(s.Channels[of].Credentials))
}

// A message is one request below the configured address, with the whole text up to the limit, and has the platform's id.
func (s Suite) send(t testing.TB) {
	t.Helper()
	for _, channel := range s.Driver.Describe().Channels {
		size := channel.Limit.Most
		if size == 0 {
			size = 5000
		}
		long := "begin" + strings.Repeat("x", size-len("beginend")) + "end"
		require.Equal(t, size, channel.Limit.Size(long))
		var wire traffic
		p := s.served(t, wire.recording(answering(http.StatusOK, s.sent(channel.Type))))
		for i, text := range []string{long, "a <b>&amp; ả \"😀\"\n%25+ \\n end"} {
			id, err := p.Send(t.Context(), s.outgoing(t, channel.Type, text))
			require.NoError(t, err, "%s", channel.Type)
			require.Contains(t, id, "2001", "%s: the platform's id of the message", channel.Type)
			require.LessOrEqual(t, len(id), platforms.MaxID)
			requests := wire.all()
			require.Len(t, requests, i+1, "%s: a message is one request", channel.Type)
			require.True(t, strings.HasPrefix(requests[i], "/some/base/"), "%s: the path of api_base is kept: %.100s", channel.Type, requests[i])
			require.Contains(t, said(requests[i]), text, "%s: the text goes whole and unchanged", channel.Type)
		}
	}
}

// sent is the answer to a message that was accepted under the id 2001.
func (s Suite) sent(of platforms.Type) string {
	return s.Channels[of].filled(s.Channels[of].Sent, "%m", "2001")
}

// The platform's own words have the classes that the samples say.
func (s Suite) failures(t testing.TB) {
	t.Helper()
	for _, of := range s.types() {
		for _, f := range s.Channels[of].Failures {
			p := s.served(t, answering(f.Status, f.Body))
			_, err := p.Send(t.Context(), s.outgoing(t, of, replyText))
			failure := s.requireFailure(t, p, of, err, f.Body)
			require.Equal(t, f.Class, failure.Class, "%s: %d %s", of, f.Status, f.Body)
			require.Equal(t, f.Refreshable, failure.Refreshable, "%s: %d %s", of, f.Status, f.Body)
		}
	}
}

// revealing are bodies that quote secrets, in the forms in which platforms report errors.
func revealing(hidden []string) []string {
	text := strings.Join(hidden, " ")
	return []string{
		fmt.Sprintf(`{"error":%q}`, text), fmt.Sprintf(`{"error":{"message":%q,"code":%q,"type":%[1]q}}`, text, hidden[0]),
		fmt.Sprintf(`{"ok":false,"error_code":%q,"description":%[1]q}`, text), fmt.Sprintf(`{"code":%q,"err_code":%[1]q,"message":%[1]q}`, text),
		text,
	}
}

// unusable are bodies that are no answer of any platform.
var unusable = []string{"", "{", "null", "[]", "7", `{}`, `""`, "<html><body>Down for maintenance</body></html>", "\xff\xfe"}

// What isn't in the platform's own words is believed only where the status says that the request was turned away; no redirect
// is followed, and nothing of the answer is in the error.
func (s Suite) oddAnswers(t testing.TB) {
	t.Helper()
	for _, of := range s.types() {
		bodies := append(slices.Clone(unusable), revealing(s.hidden(of))...)
		var wire traffic
		p, answer := s.answered(t, &wire)
		for _, status := range []int{200, 201, 204, 302, 307, 400, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504} {
			for i, body := range bodies {
				if status == http.StatusNoContent {
					body = ""
				}
				answer(status, body)
				_, err := p.Send(t.Context(), s.outgoing(t, of, replyText))
				why := fmt.Sprintf("%d %.60q", status, body)
				failure := s.requireFailure(t, p, of, err, why)
				require.Len(t, wire.all(), 1, "%s: %s: no request is repeated and no redirect followed", of, why)
				if i >= len(unusable) {
					continue // an adapter may find words of its platform in it
				}
				switch {
				case status < 300, status == http.StatusRequestTimeout, status >= 500:
					require.Equal(t, platforms.Unknown, failure.Class, "%s: %s: the customer may have the message", of, why)
				case status == http.StatusUnauthorized:
					require.Equal(t, platforms.NeedsReauth, failure.Class, "%s: %s", of, why)
				case status == http.StatusTooManyRequests:
					require.Equal(t, platforms.Retry, failure.Class, "%s: %s", of, why)
					require.Equal(t, 7*time.Second, failure.RetryAfter, "%s: %s", of, why)
				default:
					require.NotContains(t, []platforms.Class{platforms.Retry, platforms.Unknown}, failure.Class, "%s: %s: it was turned away", of, why)
				}
			}
		}
	}
}

// A connection that breaks says nothing about the message; without any connection nothing was sent.
func (s Suite) brokenConnections(t testing.TB) {
	t.Helper()
	for _, of := range s.types() {
		var wire traffic
		p := s.served(t, wire.recording(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		for range 2 { // the second one goes over a new connection
			_, err := p.Send(t.Context(), s.outgoing(t, of, replyText))
			require.Equal(t, platforms.Unknown, s.requireFailure(t, p, of, err, "aborted").Class)
		}
		require.Len(t, wire.all(), 2, "%s: no request is repeated", of)
		p = s.platform(t, unreachable, nil)
		_, err := p.Send(t.Context(), s.outgoing(t, of, replyText))
		require.Equal(t, platforms.Retry, s.requireFailure(t, p, of, err, "no connection").Class, "%s: nothing was sent", of)
	}
}

var errGone = errors.New("the caller is gone")

// calls are the calls that an adapter makes.
func (s Suite) calls(t testing.TB, p platforms.Platform, of platforms.Type) map[string]func(context.Context) error {
	t.Helper()
	out := s.outgoing(t, of, replyText)
	all := map[string]func(context.Context) error{
		"send":     func(ctx context.Context) error { _, err := p.Send(ctx, out); return err },
		"identify": func(ctx context.Context) error { _, err := p.Identify(ctx, s.channel(of)); return err },
	}
	if templater, ok := s.templater(p, of); ok {
		all["templates"] = func(ctx context.Context) error {
			_, err := templater.Templates(ctx, s.channel(of), platforms.TemplateQuery{})
			return err
		}
	}
	if signaler, ok := p.(platforms.Signaler); ok {
		all["signal"] = func(ctx context.Context) error { return signaler.Signal(ctx, s.signal(t, of)) }
	}
	if reader, ok := p.(platforms.ThreadReader); ok {
		all["read thread"] = func(ctx context.Context) error { _, err := reader.ReadThread(ctx, s.thread(t, of)); return err }
	}
	if sender, ok := p.(platforms.FileSender); ok && s.takesFiles(of) {
		all["file"] = func(ctx context.Context) error {
			_, err := s.sendFile(ctx, t, sender, of, platforms.FileImage)
			return err
		}
	}
	if refresher, ok := s.refresher(p, of); ok {
		all["refresh"] = func(ctx context.Context) error { _, err := refresher.Refresh(ctx, s.channel(of)); return err }
	}
	return all
}

// takesFiles reports whether channels of the type take pictures.
func (s Suite) takesFiles(of platforms.Type) bool {
	return slices.ContainsFunc(s.Driver.Describe().Channels, func(t platforms.ChannelType) bool {
		return t.Type == of && slices.Contains(t.Files, platforms.FileImage)
	})
}

// templater is the platform, if channels of the type have templates.
func (s Suite) templater(p platforms.Platform, of platforms.Type) (platforms.Templater, bool) {
	templater, ok := p.(platforms.Templater)
	return templater, ok && slices.ContainsFunc(s.Driver.Describe().Channels, func(t platforms.ChannelType) bool {
		return t.Type == of && t.AfterWindow == platforms.TemplateRequired
	})
}

// A template is one request with its name and values. An answer that isn't a list of templates is an error that quotes nothing of it.
func (s Suite) templates(t testing.TB) {
	t.Helper()
	for _, of := range s.types() {
		var wire traffic
		p := s.served(t, wire.recording(answering(http.StatusOK, s.sent(of))))
		if _, ok := s.templater(p, of); !ok {
			continue
		}
		out := s.outgoing(t, of, replyText)
		out.Template = &platforms.FilledTemplate{
			Name: "order_ready", Language: "en_US", Variables: []platforms.TemplateVariable{{Name: "1", Value: "value of the first"}},
		}
		id, err := p.Send(t.Context(), out)
		require.NoError(t, err, "%s", of)
		require.Contains(t, id, "2001", "%s: the platform's id of the message", of)
		requests := wire.all()
		require.Len(t, requests, 1, "%s: a template is one request", of)
		for _, part := range []string{"order_ready", "en_US", "value of the first"} {
			require.Contains(t, requests[0], part, "%s", of)
		}
		p, answer := s.answered(t, &wire)
		for _, status := range []int{200, 302, 401, 429, 500} {
			for _, body := range append(slices.Clone(unusable), revealing(s.hidden(of))...) {
				answer(status, body)
				templater, _ := s.templater(p, of)
				_, err := templater.Templates(t.Context(), s.channel(of), platforms.TemplateQuery{Name: "order_ready"})
				why := fmt.Sprintf("%d %.60q lists no templates", status, body)
				s.requireFailure(t, p, of, err, why)
				require.LessOrEqual(t, len(wire.all()), 2, "%s: %s: templates are listed with two requests at most", of, why)
			}
		}
	}
}

// refresher is the platform, if channels of the type have tokens that can be refreshed.
func (s Suite) refresher(p platforms.Platform, of platforms.Type) (platforms.Refresher, bool) {
	refresher, ok := p.(platforms.Refresher)
	return refresher, ok && s.Channels[of].Refreshed != ""
}

// returnWait is how long a call may go on after its context.
const returnWait = 3 * time.Second

// Calls end when their context does, and don't begin after it.
func (s Suite) endOfContext(t testing.TB) {
	t.Helper()
	for _, of := range s.types() {
		asked, released := make(chan struct{}, 1), make(chan struct{})
		var wire traffic
		p := s.served(t, wire.recording(func(_ http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-released:
			}
		}))
		t.Cleanup(func() { close(released) }) // before the server's end, which waits for its requests
		for name, call := range s.calls(t, p, of) {
			ctx, cancel := context.WithCancelCause(t.Context())
			returned := make(chan error, 1)
			go func() { returned <- call(ctx) }()
			select {
			case <-asked:
			case err := <-returned:
				require.FailNow(t, "nothing was asked", "%s: %s: %v", of, name, err)
			}
			cancel(errGone)
			select {
			case err := <-returned:
				failure := s.requireFailure(t, p, of, err, name+", gone")
				require.True(t, name != "send" || failure.Class == platforms.Unknown, "%s: the customer may have the message", of)
			case <-time.After(cmp.Or(s.patience, returnWait)):
				require.FailNow(t, "the call goes on without its caller", "%s: %s", of, name)
			}
			before := len(wire.all())
			s.requireFailure(t, p, of, call(ctx), name+", gone before")
			require.Len(t, wire.all(), before, "%s: %s: nothing is asked for a caller who is gone", of, name)
		}
	}
}

// Without credentials nothing is asked; without options a call works or is refused.
func (s Suite) withoutCredentials(t testing.TB) {
	t.Helper()
	for _, of := range s.types() {
		var wire traffic
		server := wire.recording(answering(http.StatusOK, s.sent(of)))
		p := s.served(t, server)
		for name, credentials := range map[string]platforms.Credentials{"none": nil, "unusable": spoiled(s.Channels[of].Credentials)} {
			out := s.outgoing(t, of, replyText)
			out.Credentials = credentials
			_, err := p.Send(t.Context(), out)
			failure := s.requireFailure(t, p, of, err, "credentials: "+name)
			require.Contains(t, []platforms.Class{platforms.NeedsReauth, platforms.Refused}, failure.Class, "%s: credentials: %s", of, name)
			_, err = p.Identify(t.Context(), &platforms.Channel{Type: of, ExternalID: s.Channels[of].ExternalID, Credentials: credentials})
			s.requireFailure(t, p, of, err, "credentials: "+name)
		}
		require.Empty(t, wire.all(), "%s: nothing is asked without credentials", of)
	}
}

// spoiled are credentials that no header can carry.
func spoiled(good platforms.Credentials) platforms.Credentials {
	bad := platforms.Credentials{}
	for name, value := range good {
		bad[name] = value + "\r\nX-Injected: y"
	}
	return bad
}

// Identify returns the channel's external id when the platform says it, and nothing for anything else.
func (s Suite) identify(t testing.TB) {
	t.Helper()
	for _, of := range s.types() {
		sample := s.Channels[of]
		p := s.served(t, answering(http.StatusOK, sample.filled(sample.Identified)))
		ids, err := p.Identify(t.Context(), s.channel(of))
		require.NoError(t, err, "%s", of)
		require.NotContains(t, ids, "", "%s", of)
		if id := s.Channels[of].ExternalID; id != "" {
			require.Contains(t, ids, id, "%s", of)
		} else {
			require.NotEmpty(t, ids, "%s", of)
		}
		s.identifyAnother(t, of)
		var wire traffic
		p, answer := s.answered(t, &wire)
		for _, status := range []int{200, 302, 401, 404, 500} {
			for _, body := range unusable {
				answer(status, body)
				_, err := p.Identify(t.Context(), s.channel(of))
				failure := s.requireFailure(t, p, of, err, fmt.Sprintf("%d %.60q proves nothing", status, body))
				require.True(t, status != http.StatusUnauthorized || failure.Class == platforms.NeedsReauth, "%s: 401 %.60q", of, body)
				require.LessOrEqual(t, len(wire.all()), 2, "%s: an account is found with two requests at most", of)
			}
		}
	}
}

// Refresh replaces the tokens and keeps the rest; a refresh token that may be used up is Unknown.
func (s Suite) refresh(t testing.TB) {
	t.Helper()
	for _, channel := range s.Driver.Describe().Channels {
		of := channel.Type
		good := s.Channels[of].filled(s.Channels[of].Refreshed, "%a", "fresh-access-token", "%r", "fresh-refresh-token")
		require.Equal(t, channel.Refreshable(), s.Channels[of].Refreshed != "", "%s: the sample of a refresh", of)
		refresher, ok := s.refresher(s.served(t, answering(http.StatusOK, good)), of)
		if !ok {
			continue
		}
		next, err := refresher.Refresh(t.Context(), s.channel(of))
		require.NoError(t, err, "%s", of)
		require.NoError(t, channel.CheckCredentials(next), "%s: what a refresh returns is stored", of)
		want := s.channel(of).Credentials
		used := platforms.AccessToken
		want[platforms.AccessToken] = "fresh-access-token"
		if want[platforms.RefreshToken] != "" {
			used, want[platforms.RefreshToken] = platforms.RefreshToken, "fresh-refresh-token"
		}
		expiry := next[platforms.ExpiresAt]
		require.True(t, expiry == "" || next.Expiry() > time.Now().UnixMilli(), "%s: the tokens end in the future: %s", of, expiry)
		delete(next, platforms.ExpiresAt)
		delete(want, platforms.ExpiresAt)
		require.Equal(t, want, next, "%s", of)

		var wire traffic
		p, answer := s.answered(t, &wire)
		refresher, _ = s.refresher(p, of)
		for _, status := range []int{200, 302, 401, 429, 500, 502} {
			for i, body := range append(slices.Clone(unusable), revealing(s.hidden(of))...) {
				answer(status, body)
				why := fmt.Sprintf("%d %.60q", status, body)
				_, err := refresher.Refresh(t.Context(), s.channel(of))
				failure := s.requireFailure(t, p, of, err, why)
				require.Len(t, wire.all(), 1, "%s: %s: a refresh token is used once", of, why)
				require.False(t, failure.Refreshable, "%s: %s: another refresh can't help", of, why)
				if i < len(unusable) && (status == 200 || status >= 500) {
					require.Equal(t, platforms.Unknown, failure.Class, "%s: %s: the refresh token may be used up", of, why)
				}
			}
		}
		answer(http.StatusOK, good)
		empty := s.channel(of)
		delete(empty.Credentials, used)
		_, err = refresher.Refresh(t.Context(), empty)
		require.Equal(t, platforms.NeedsReauth, s.requireFailure(t, p, of, err, "no refresh token").Class)
		require.Empty(t, wire.all(), "%s: nothing is asked without a refresh token", of)
	}
}

// Concurrent calls and deliveries don't disturb each other. The race detector finds shared state.
func (s Suite) concurrency(t testing.TB) {
	t.Helper()
	for _, of := range s.types() {
		sample := s.Channels[of]
		p := s.served(t, answering(http.StatusOK, s.sent(of)))
		out, failed := s.outgoing(t, of, replyText), make(chan error, 32)
		var all sync.WaitGroup
		for i := range cap(failed) / 2 {
			text := fmt.Sprintf("text %d", i)
			all.Go(func() {
				_, err := p.Send(t.Context(), out)
				failed <- err
			})
			all.Go(func() {
				items, err := p.Extract([]byte(sample.body("1001", text)))
				if err == nil && (len(items) != 1 || items[0].Text != text) {
					err = fmt.Errorf("extracted %d items, not the one of the delivery", len(items))
				}
				failed <- err
			})
		}
		all.Wait()
		close(failed)
		for err := range failed {
			require.NoError(t, err, "%s", of)
		}
	}
}
