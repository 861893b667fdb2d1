package platformtest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// accounts and customers are the ids of the checks that compare two of each. They are found nowhere else in a request.
var (
	accounts  = [2]string{"70010010017", "70020020027"}
	customers = [2]string{"80030030038", "80040040048"}
)

// between is the suite with a sample of the account and the customer with these numbers. Each account has credentials of its own.
func (s Suite) between(of platforms.Type, account, customer int) Suite {
	sample := s.Channels[of]
	if sample.customer = customers[customer]; sample.ExternalID != "" {
		sample.ExternalID = accounts[account]
	}
	if account > 0 {
		sample.Credentials = maps.Clone(sample.Credentials)
		for name, value := range sample.Credentials {
			last := "8"
			if strings.HasSuffix(value, last) {
				last = "9"
			}
			sample.Credentials[name] = value[:len(value)-1] + last
		}
	}
	s.Channels = maps.Clone(s.Channels)
	s.Channels[of] = sample
	return s
}

// Customers have conversations of their own, messages belong to the account that they name, and a delivery of two messages is two items.
func (s Suite) twoAccounts(t testing.TB) {
	t.Helper()
	description := s.Driver.Describe()
	p := s.platform(t, unreachable, nil)
	item := func(of platforms.Type, account, customer int, id, text string) platforms.Inbound {
		sample := s.between(of, account, customer).Channels[of]
		items := RequireSound(t, description, p, []byte(sample.body(id, text)))
		require.Len(t, items, 1, "%s: the sample is one message", of)
		require.Equal(t, sample.ExternalID, items[0].ExternalID, "%s: the account that the delivery names", of)
		return items[0]
	}
	for _, of := range s.types() {
		sample := s.Channels[of]
		require.Contains(t, sample.Text, "%c", "%s: the sample has a place for the customer", of)
		if sample.ExternalID != "" {
			require.Contains(t, sample.Text, "%e", "%s: the sample has a place for the account", of)
		}
		first, again := item(of, 0, 0, "1001", "hello"), item(of, 0, 0, "1002", "hello")
		other := item(of, 0, 1, "1003", "hello")
		require.Equal(t, first.Conversation, again.Conversation, "%s: a customer's messages are one conversation", of)
		require.Equal(t, first.Address, again.Address, "%s: replies to a customer go to one address", of)
		require.NotEqual(t, first.Conversation, other.Conversation, "%s: another customer has another conversation", of)
		require.NotEqual(t, first.Address, other.Address, "%s: replies to another customer go to another address", of)

		second := item(of, 1, 1, "1004", "goodbye")
		if sample.Pair == "" {
			continue
		}
		pair := s.between(of, 0, 0).Channels[of].filled(sample.Pair, "%m", "1001", "%t", "hello",
			"%E", s.between(of, 1, 1).Channels[of].ExternalID, "%C", customers[1], "%M", "1004", "%T", "goodbye")
		require.Equal(t, []platforms.Inbound{first, second}, RequireSound(t, description, p, []byte(pair)), "%s: both messages of one delivery", of)
	}
}

// Each call has the credentials of its channel and the address of its customer, and none of another, whatever calls were made before.
func (s Suite) addresses(t testing.TB) {
	t.Helper()
	for _, of := range s.types() {
		var wire traffic
		var answers atomic.Pointer[[]string]
		p := s.served(t, wire.recording(func(w http.ResponseWriter, r *http.Request) {
			left := *answers.Load()
			if len(left) > 1 {
				rest := left[1:]
				answers.Store(&rest)
			}
			answering(http.StatusOK, left[0])(w, r)
		}))
		for _, pair := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {0, 0}} {
			own, other := s.between(of, pair[0], pair[1]), s.between(of, 1-pair[0], 1-pair[1])
			mine, theirs := own.Channels[of], other.Channels[of]
			for name, call := range own.calls(t, p, of) {
				given := []string{mine.filled(map[string]string{"identify": mine.Identified, "refresh": mine.Refreshed}[name]), own.sent(of)}
				switch {
				case name == "file" && mine.Uploaded != "":
					given[0] = mine.Uploaded
				case given[0] == "":
					given = given[1:]
				}
				answers.Store(&given)
				before := len(wire.all())
				_ = call(t.Context()) // it is judged by its requests
				requests := wire.all()[before:]
				require.NotEmpty(t, requests, "%s: %s", of, name)
				for _, request := range requests {
					plain := readable(request)
					require.True(t, containsAny(plain, mine.Credentials), "%s: %s: a request has the channel's credentials", of, name)
					require.False(t, containsAny(plain, theirs.Credentials), "%s: %s: no request has another channel's credentials", of, name)
					for _, id := range []string{theirs.ExternalID, theirs.customer} {
						require.True(t, id == "" || !strings.Contains(plain, id), "%s: %s: no request names another account or customer", of, name)
					}
				}
				if name == "send" || name == "file" {
					require.Contains(t, readable(strings.Join(requests, "\n")), mine.customer, "%s: %s: it goes to the customer", of, name)
				}
			}
		}
	}
}

func containsAny(text string, credentials platforms.Credentials) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(credentials)), func(value string) bool { return strings.Contains(text, value) })
}

// Identify believes the platform, and not the channel: whoever enters an account's id must not get its messages.
func (s Suite) identifyAnother(t testing.TB, of platforms.Type) {
	t.Helper()
	sample, another := s.Channels[of], s.Channels[of]
	another.ExternalID = accounts[1]
	var wire traffic
	p := s.served(t, wire.recording(answering(http.StatusOK, another.filled(another.Identified))))
	ids, err := p.Identify(t.Context(), s.channel(of))
	if !strings.Contains(sample.Identified, "%e") {
		require.NotEmpty(t, sample.ExternalID, "%s: the answer has a place for the account", of)
		named := s.between(of, 1, 0)
		_, err = p.Identify(t.Context(), named.channel(of))
		require.NoError(t, err, "%s", of)
		requests := wire.all()
		require.Contains(t, requests[len(requests)-1], accounts[1], "%s: the answer doesn't name the account, so the request does", of)
		return
	}
	if err == nil {
		require.Equal(t, []string{accounts[1]}, ids, "%s: the account of the token is another one", of)
	}
}

// readable is a recorded request, and behind it the same without percent-encoding.
func readable(request string) string {
	var plain strings.Builder
	for _, part := range strings.FieldsFunc(request, func(r rune) bool { return strings.ContainsRune("/?&=\r\n", r) }) {
		if decoded, err := url.QueryUnescape(part); err == nil {
			plain.WriteString(decoded + "\n")
		}
	}
	return request + "\n" + plain.String()
}

// said are the texts that a recorded request has, as its platform reads them: the values of its query and form, the strings of its JSON, and
// those of JSON in a text.
func said(request string) (texts []string) {
	uri, rest, _ := strings.Cut(request, "\n")
	_, body, _ := strings.Cut(rest, "\r\n\n")
	var found func(value any)
	found = func(value any) {
		switch value := value.(type) {
		case string:
			texts = append(texts, value)
			var inner map[string]any
			if json.Unmarshal([]byte(value), &inner) == nil {
				found(inner)
			}
		case []any:
			for _, element := range value {
				found(element)
			}
		case map[string]any:
			for _, member := range value {
				found(member)
			}
		}
	}
	_, query, _ := strings.Cut(uri, "?")
	for _, encoded := range []string{query, body} {
		form, _ := url.ParseQuery(encoded)
		for _, values := range form {
			for _, value := range values {
				found(value)
			}
		}
	}
	var object any
	if json.Unmarshal([]byte(body), &object) == nil {
		found(object)
	}
	return texts
}
