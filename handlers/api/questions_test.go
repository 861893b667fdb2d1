package api

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// countMinutes counts questions and requests in windows of a clock, which pass moves.
func countMinutes(d *Deps) (pass func(time.Duration)) {
	now := apiNow()
	d.Rates = endpoint.Rates{Windows: limit.NewMemory(func() time.Time { return now })}
	return func(by time.Duration) { now = now.Add(by) }
}

// TestPlatformsAreAskedRarely guarantees that a tenant has a platform asked whose account credentials belong to once for the same ones and ten
// times for all its channels, in a minute, and that what is refused changes nothing.
func TestPlatformsAreAskedRarely(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	pass := countMinutes(o.Deps)
	o.Server = serve(o.Deps)
	pass(20 * time.Second)
	refused := func(method, path, body string) {
		t.Helper()
		calls := o.platform.calls
		require.Equal(t, "40", o.refused(t, errcode.RateLimited, "", method, path, "owner", body).Header.Get("Retry-After"))
		require.Equal(t, calls, o.platform.calls)
	}
	created := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("Page", "7", "wrong"))
	path := "/channels/" + created["id"].(string)
	refused(http.MethodPost, path+"/verify", "")
	for range 20 { // no question is needed
		o.refused(t, errcode.Conflict, "", http.MethodPost, "/channels", "owner", pageBody("Page", "8", "wrong"))
	}
	for i := range AccountQuestionsPerMinute - 1 {
		token := fmt.Sprintf(`{"credentials":{"accessToken":"wrong-%d"}}`, i)
		require.Equal(t, "pending", o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", token)["state"])
		refused(http.MethodPost, path+"/verify", "")
	}
	require.Equal(t, AccountQuestionsPerMinute, o.platform.calls)
	o.platform.ids = map[string][]string{"good": {"7", "8"}, "7": {"7"}}
	refused(http.MethodPatch, path, `{"name":"Other","credentials":{"accessToken":"good"}}`)
	require.Equal(t, "Page", o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["name"])
	refused(http.MethodPost, "/channels", pageBody("Second", "8", "good"))
	require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, "/channels", "owner", "")["data"], 1)

	o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"name":"Page 1"}`)
	o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", botBody("Bot"))
	require.Equal(t, "active", o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "stranger", pageBody("Page", "8", "good"))["state"])

	pass(40 * time.Second)
	require.Equal(t, "active", o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"credentials":{"accessToken":"good"}}`)["state"])
	for range 20 { // no question is needed
		o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"credentials":{"accessToken":"good"}}`)
		o.ask(t, http.StatusOK, http.MethodPost, path+"/verify", "owner", "")
	}
}

// slowPlatform answers when it is told to.
type slowPlatform struct {
	*fakePlatform

	asked, answer chan struct{}
}

func (p *slowPlatform) Identify(context.Context, *platforms.Channel) ([]string, error) {
	p.asked <- struct{}{}
	<-p.answer
	return nil, nil
}

// TestOneQuestionAtATime guarantees that a channel's platform isn't asked while it is asked already, whatever the credentials.
func TestOneQuestionAtATime(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	path := "/channels/" + o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("Page", "7", "t"))["id"].(string)
	slow := &slowPlatform{o.platform, make(chan struct{}), make(chan struct{})}
	o.Platforms = slow
	answered := make(chan int)
	verify := func() { answered <- handlertest.Served(o.Serve, keyed(http.MethodPost, path+"/verify", "owner")).Code }
	go verify()
	<-slow.asked
	o.refused(t, errcode.RateLimited, "", http.MethodPost, path+"/verify", "owner", "")
	o.refused(t, errcode.RateLimited, "", http.MethodPatch, path, "owner", `{"credentials":{"accessToken":"another"}}`)
	slow.answer <- struct{}{}
	require.Equal(t, http.StatusOK, <-answered)
	go verify()
	<-slow.asked
	slow.answer <- struct{}{}
	require.Equal(t, http.StatusOK, <-answered)
}

// countedTemplates counts the pages that are read.
type countedTemplates struct {
	Platforms

	read int
}

func (c *countedTemplates) Templates(
	ctx context.Context, channel *platforms.Channel, query platforms.TemplateQuery,
) (platforms.TemplatePage, error) {
	c.read++
	return c.Platforms.Templates(ctx, channel, query)
}

// TestTemplatesAreReadRarely guarantees that a page of templates is read from its platform once a minute to be listed, and that an organization
// has few pages read in a minute. A template that is sent is read anew, and doesn't count.
func TestTemplatesAreReadRarely(t *testing.T) {
	t.Parallel()
	eachTemplated(t, func(t *testing.T, o *staffed, platform *platformfake.Server, id string) {
		countMinutes(o.Deps)
		counted := &countedTemplates{Platforms: o.Platforms}
		now := o.Now()
		o.Platforms, o.Now = counted, func() time.Time { return now }
		o.Server = serve(o.Deps)
		path, messages := "/channels/"+o.channelID+"/templates", "/conversations/"+id+"/messages"
		lists := func(query string, templates, read int) {
			t.Helper()
			require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, path+query, "owner", "")["data"], templates)
			require.Equal(t, read, counted.read)
		}
		lists("", 3, 1)
		lists("", 3, 1)
		lists("?name=picture", 1, 2)
		platform.SetTemplates("1", platformfake.Template{Name: "only", Language: "en_US", Body: "Hello"})
		now = now.Add(templatesLife - 1)
		lists("", 3, 2)
		now = now.Add(1)
		lists("", 1, 3)
		o.setCredentials(t, platform.Account(social.ChatApp, "1"))
		lists("", 1, 4) // other credentials may see others

		template := func(name string) string { return `{"template":{"name":"` + name + `","language":"en_US"}}` }
		o.ask(t, http.StatusCreated, http.MethodPost, messages, "owner", template("only"))
		require.Equal(t, 5, counted.read)
		for counted.read <= TemplatePagesPerMinute {
			o.refused(t, errcode.InvalidRequest, "template.name", http.MethodPost, messages, "owner", template("unknown"))
		}
		a := o.refused(t, errcode.RateLimited, "", http.MethodPost, messages, "owner", template("only"))
		require.Equal(t, "60", a.Header.Get("Retry-After"))
		o.refused(t, errcode.RateLimited, "", http.MethodGet, path+"?name=a", "owner", "")
		lists("", 1, TemplatePagesPerMinute+1)
	})
}
