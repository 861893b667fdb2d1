package platformtest

import (
	"context"
	"html"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// TestWrongGuests guarantees that the suite finds adapters that work for one customer of one channel, and would confuse customers or channels, let
// forgeries in, or spoil texts.
func TestWrongGuests(t *testing.T) {
	t.Parallel()
	replying := func(change func(*platforms.Outgoing)) fake { return fake{reply: change} }
	extracting := func(change func(*platforms.Inbound)) fake {
		return fake{extract: func(_ []byte, items []platforms.Inbound, err error) ([]platforms.Inbound, error) {
			for i := range items {
				change(&items[i])
			}
			return items, err
		}}
	}
	var firstAddress string
	var firstToken platforms.Credentials
	for name, test := range map[string]struct {
		adapter fake
		finds   string
	}{
		"an HMAC with an empty key": {fake{verify: func(d *platforms.Delivery, good error) error {
			if d.Header.Get(fakeHeader) == signature("", d.Body) {
				return nil
			}
			return good
		}}, "verification"},
		"replies to a fixed recipient":      {replying(func(out *platforms.Outgoing) { out.Address = "5" }), "addresses"},
		"replies to the shop's own account": {replying(func(out *platforms.Outgoing) { out.Address = out.ExternalID }), "addresses"},
		"replies to nobody":                 {replying(func(out *platforms.Outgoing) { out.Address = "" }), "addresses"},
		"replies to the first customer ever": {replying(func(out *platforms.Outgoing) {
			if firstAddress == "" {
				firstAddress = out.Address
			}
			out.Address = firstAddress
		}), "addresses"},
		"the first shop's token for all shops": {replying(func(out *platforms.Outgoing) {
			if firstToken == nil {
				firstToken = out.Credentials
			}
			out.Credentials = firstToken
		}), "addresses"},
		"no token at all": {fake{send: func(ctx context.Context, c *platforms.Client, q *platforms.Request) (*platforms.Response, *platforms.Error) {
			delete(q.Header, "Authorization")
			return c.Do(ctx, q)
		}}, "addresses"},
		"one conversation for all customers": {extracting(func(in *platforms.Inbound) { in.Conversation = in.ExternalID }), "two accounts"},
		"a conversation for each message":    {extracting(func(in *platforms.Inbound) { in.Conversation = in.MessageID }), "two accounts"},
		"a wrong reply address":              {extracting(func(in *platforms.Inbound) { in.Address = in.ExternalID }), "two accounts"},
		"only the first message of a delivery": {fake{extract: func(_ []byte, items []platforms.Inbound, err error) ([]platforms.Inbound, error) {
			return items[:min(1, len(items))], err
		}}, "two accounts"},
		"one fixed external id":  {extracting(func(in *platforms.Inbound) { in.ExternalID = "77" }), "two accounts"},
		"replies HTML-escaped":   {replying(func(out *platforms.Outgoing) { out.Text = html.EscapeString(out.Text) }), "send"},
		"replies HTML-unescaped": {replying(func(out *platforms.Outgoing) { out.Text = html.UnescapeString(out.Text) }), "send"},
		"replies without line breaks": {replying(func(out *platforms.Outgoing) {
			out.Text = strings.ReplaceAll(out.Text, "\n", " ")
		}), "send"},
		"replies without letters that aren't ASCII": {replying(func(out *platforms.Outgoing) {
			out.Text = strings.Map(func(r rune) rune {
				if r > 127 {
					return -1
				}
				return r
			}, out.Text)
		}), "send"},
		"Identify believes the channel": {fake{identify: func(channel *platforms.Channel, ids []string, err error) ([]string, error) {
			if err == nil {
				ids = []string{channel.ExternalID}
			}
			return ids, err
		}}, "identify"},
	} {
		requireFound(t, name, test.adapter, test.finds)
	}
}

// TestSignIgnoresTheOptions guarantees that a suite whose Sign can't sign with an empty secret is found, because it proves nothing about one.
func TestSignIgnoresTheOptions(t *testing.T) {
	t.Parallel()
	s := suiteOf(fake{})
	s.Sign = func(d *platforms.Delivery, _ *platforms.Channel, _ map[string]string) {
		d.Header.Set(fakeHeader, signature(fakeSecret, d.Body))
	}
	require.True(t, fails(t, check{run: Suite.verification}, s))
}

// TestSaid guarantees that texts are read as a platform reads them, wherever a request has them.
func TestSaid(t *testing.T) {
	t.Parallel()
	const text = "a <b>\n😀"
	for name, request := range map[string]string{
		"JSON":         "/send\nHost: x\r\n\n" + `{"a":[{"text":"a \u003cb>\n\ud83d\ude00"}]}`,
		"JSON in JSON": "/send\nHost: x\r\n\n" + `{"content":"{\"text\":\"a <b>\\n😀\"}"}`,
		"form":         "/send\nHost: x\r\n\ntext=a+%3Cb%3E%0A%F0%9F%98%80&to=5",
		"query":        "/send?text=a+%3Cb%3E%0A%F0%9F%98%80\nHost: x\r\n\n",
	} {
		require.Contains(t, said(request), text, name)
	}
	require.NotContains(t, said("/send\nHost: x\r\n\n"+`{"text":"a &lt;b&gt;\n😀"}`), text)
}
