package tests

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// conversation is one of GET /conversations, as far as tests look.
type conversation struct {
	ID, ChannelID, CustomerID, State, Attention string
}

// message is one of GET /conversations/{id}/messages: what a customer wrote, or what was written to one.
type message struct {
	ID, Author, Kind, Text, State, Code, TurnID string
	Handled                                     bool
	Files                                       []messageFile
}

// messageFile is a file of a customer's message.
type messageFile struct{ ID, State, Code string }

// call asks the API and decodes its object; status is what the answer must have.
func (b *business) call(t testing.TB, method, path string, body any, status int) map[string]any {
	t.Helper()
	a := b.ask(t, method, path, body)
	require.Equal(t, status, a.Status, "%s %s: %s", method, path, a.Body)
	var object map[string]any
	if len(a.Body) > 0 {
		require.NoError(t, json.Unmarshal(a.Body, &object), "%s", a.Body)
	}
	return object
}

// ask is call for the whole answer.
func (b *business) ask(t testing.TB, method, path string, body any) answer {
	t.Helper()
	var text bytes.Buffer
	if body != nil {
		require.NoError(t, json.NewEncoder(&text).Encode(body))
	}
	return b.product.as(b.customer).send(t, method, path, &text, "Content-Type", "application/json")
}

func (b *business) post(t testing.TB, path string, body any, status int) map[string]any {
	t.Helper()
	return b.call(t, http.MethodPost, path, body, status)
}

// list reads a whole list, page by page.
func list[T any](t testing.TB, b *business, path string, query url.Values) (all []T) {
	t.Helper()
	for cursor := ""; ; {
		if query == nil {
			query = url.Values{}
		}
		query.Set("limit", "100")
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		a := b.ask(t, http.MethodGet, path+"?"+query.Encode(), nil)
		require.Equal(t, http.StatusOK, a.Status, "%s: %s", path, a.Body)
		var page struct {
			Data       []T
			NextCursor string
		}
		require.NoError(t, json.Unmarshal(a.Body, &page), "%s", a.Body)
		all = append(all, page.Data...)
		if cursor = page.NextCursor; cursor == "" {
			return all
		}
	}
}

// conversations are those of a line.
func (b *business) conversations(t testing.TB, l *line) []conversation {
	t.Helper()
	return list[conversation](t, b, "/conversations", url.Values{"channelId": {l.ID}})
}

// conversation is the only one of a line.
func (b *business) conversation(t testing.TB, l *line) conversation {
	t.Helper()
	all := b.conversations(t, l)
	require.Len(t, all, 1)
	return all[0]
}

// messages are those of a conversation, oldest first.
func (b *business) messages(t testing.TB, conversationID string) []message {
	t.Helper()
	return list[message](t, b, "/conversations/"+conversationID+"/messages", nil)
}

// channelState is the state of a channel as the API shows it.
func (b *business) channelState(t testing.TB, l *line) string {
	t.Helper()
	return b.call(t, http.MethodGet, "/channels/"+l.ID, nil, http.StatusOK)["state"].(string)
}

// written splits messages into what the customer wrote and what was written to the customer.
func written(all []message) (by, to []message) {
	for _, m := range all {
		if m.Author == "customer" {
			by = append(by, m)
		} else {
			to = append(to, m)
		}
	}
	return by, to
}

// awaitMessages polls a line's only conversation until its messages are as wanted, and returns them.
func (c *connectedProduct) awaitMessages(b *business, l *line, what string, wanted func(by, to []message) bool) (by, to []message) {
	c.t.Helper()
	c.await(what, patience, func() bool {
		all := b.conversations(c.t, l)
		if len(all) != 1 {
			return false
		}
		by, to = written(b.messages(c.t, all[0].ID))
		return wanted(by, to)
	})
	return by, to
}
