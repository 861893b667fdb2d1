package tests

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// exportedCustomer is the file with everything about a customer, as far as tests look.
type exportedCustomer struct {
	Conversation struct{ ID, CustomerID, CustomerName, Attention string }
	Messages     []struct {
		message
		PlatformMessageID string
	}
	Turns []struct{ ID, State, Code, Draft string }
}

// shownTo is a customer of whom everything is stored that can be: texts, a file with words, a sent and a waiting draft, a template.
type shownTo struct {
	sender
	word, conversation string
	content            []byte
}

// sealedIDs are the forms in which the store has the platform's ids of a conversation's customer and messages.
func sealedIDs(t testing.TB, tables *sql.Conn, conversation string) (ids []string) {
	t.Helper()
	rows, err := tables.QueryContext(t.Context(), `SELECT customer_ref FROM conversations WHERE id = $1
		UNION SELECT address FROM conversations WHERE id = $1
		UNION SELECT platform_message_id FROM messages WHERE conversation_id = $1
		UNION SELECT platform_message_id FROM outbound_messages WHERE conversation_id = $1 AND platform_message_id <> ''`, conversation)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	require.Greater(t, len(ids), 4)
	return ids
}

// fill lets everything happen to a customer. All that is theirs contains their word.
func (c *shownTo) fill(t *testing.T, s *connectedProduct, b *business) {
	t.Helper()
	c.content = append(pictureOf(300_000), c.word...)
	picture := c.picture(t, s.platform.PutFile(c.content), "")
	says := func(d delivery) (draft string) {
		t.Helper()
		requireQueued(t, s.deliver(t, c.sign(strings.Replace(string(d.Body), `"name":"Lan"`, `"name":"Ms `+c.word+`"`, 1))), 1)
		s.await("a draft", patience, func() bool {
			for _, found := range b.conversations(t, c.line) {
				if found.CustomerID == c.Customer {
					c.conversation = found.ID
				}
			}
			drafts := b.call(t, http.MethodGet, "/conversations/"+c.conversation+"/drafts", nil, http.StatusOK)["data"].([]any)
			if len(drafts) > 0 {
				draft = drafts[0].(map[string]any)["id"].(string)
			}
			return len(drafts) > 0
		})
		return draft
	}
	path := "/conversations/"
	draft := says(c.says("My word is " + c.word))
	path += c.conversation
	b.post(t, path+"/drafts/"+draft+"/send", map[string]any{}, http.StatusCreated)
	s.awaitSent(c.sender, 1)
	b.post(t, path+"/messages", map[string]any{"template": map[string]any{
		"name": "we_miss_you", "language": "vi", "variables": []any{map[string]string{"name": "first_name", "value": c.word}},
	}}, http.StatusCreated)
	s.awaitSent(c.sender, 2)
	says(c.sign(strings.Replace(string(picture.Body), `"mime_type"`, `"caption":"This `+c.word+`?","mime_type"`, 1)))
	s.await("everything to be on record", patience, func() bool {
		files := b.filesOf(t, c.conversation)
		_, to := written(b.messages(t, c.conversation))
		return files[0]["state"] == "stored" && len(to) == 2 && to[0].State == "sent" && to[1].State == "sent"
	})
}

// requireWhole requires of the customer's file that everything of theirs is in it, and nothing of another.
func (c *shownTo) requireWhole(t *testing.T, b *business, file string, other *shownTo) {
	t.Helper()
	require.NotContains(t, file, other.word)
	require.NotContains(t, file, other.Customer)
	var all exportedCustomer
	require.NoError(t, json.Unmarshal([]byte(file), &all), "%s", file)
	require.Equal(t, []string{c.conversation, c.Customer, "Ms " + c.word, "draft_waiting"},
		[]string{all.Conversation.ID, all.Conversation.CustomerID, all.Conversation.CustomerName, all.Conversation.Attention})
	lines := make([]string, 0, 4)
	for _, m := range all.Messages {
		require.NotEmpty(t, m.PlatformMessageID)
		lines = append(lines, m.Author+" "+m.Kind+" "+m.Text)
	}
	require.Equal(t, []string{
		"customer text My word is " + c.word, "human text Re: My word is " + c.word, "human template Chào " + c.word + "!",
		"customer text This " + c.word + "?",
	}, lines)
	require.Len(t, all.Turns, 2)
	require.Equal(t, []string{"discarded", "draft_sent", "Re: My word is " + c.word}, []string{all.Turns[0].State, all.Turns[0].Code, all.Turns[0].Draft})
	require.Equal(t, []string{"needs_attention", "draft_waiting", "Re: This " + c.word + "?"}, []string{all.Turns[1].State, all.Turns[1].Code, all.Turns[1].Draft})
	require.Len(t, all.Messages[3].Files, 1)
	content := b.ask(t, http.MethodGet, "/conversations/"+c.conversation+"/files/"+all.Messages[3].Files[0].ID, nil)
	require.Equal(t, c.content, content.Body)
}

// TestExportedCustomer guarantees that the file about a customer is the same by API, by command and from the dashboard: with their messages,
// files, drafts and templates, and with nothing of another. When the customer is erased, nothing that leads to them is left in the store,
// and the other customer's file is as it was.
func TestExportedCustomer(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		s := prepareConnectedWith(t, engine, func(d *deployment) { d.Whole = true })
		s.worker = s.startWorker()
		b := s.business(t, 1_000_000, s.up.script(replying), nil)
		l := b.line(t, social.ChatApp)
		b.call(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"answerMode": "draft"}, http.StatusOK)
		s.platform.SetTemplates(l.External, readyTemplates()...)
		both := []*shownTo{{sender: l.from(1), word: "persimmon"}, {sender: l.from(2), word: "rambutan"}}
		for _, c := range both {
			c.fill(t, s, b)
		}
		p := b.person(t, "member")
		exported := map[string]string{}
		for i, c := range both {
			a := b.ask(t, http.MethodGet, "/conversations/"+c.conversation+"/export", nil)
			require.Equal(t, http.StatusOK, a.Status)
			require.Equal(t, `attachment; filename="`+c.conversation+`.json"`, a.Header.Get("Content-Disposition"))
			c.requireWhole(t, b, string(a.Body), both[1-i])
			exported[c.word] = string(a.Body)

			file := filepath.Join(s.Dir, c.word+".json")
			s.svc(t, "conversation", "export", "--org", b.OrgID, "--file", file, c.conversation)
			written, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(a.Body), string(written), "by command")

			p.open("/dashboard/conversations/" + c.conversation)
			require.Equal(t, string(a.Body), js[string](p.tab, `(() => {
				const request = new XMLHttpRequest()
				request.open("GET", document.querySelector("#conversation-export").href, false)
				request.send()
				return request.responseText
			})()`), "from the dashboard")
		}

		gone, stays := both[0], both[1]
		var all exportedCustomer
		require.NoError(t, json.Unmarshal([]byte(exported[gone.word]), &all))
		tables := connect(t, s.location)
		sealed := [2][]string{sealedIDs(t, tables, gone.conversation), sealedIDs(t, tables, stays.conversation)}
		p.open("/dashboard/conversations/" + gone.conversation)
		p.submit("form#conversation-delete")
		s.await("the file to be swept", patience, func() bool { return countFiles(t, tables) == 1+2 })
		requireError(t, b.ask(t, http.MethodGet, "/conversations/"+gone.conversation+"/export", nil), "not_found")
		_, err := s.caddy("svc", "conversation", "export", "--org", b.OrgID, "--file", filepath.Join(s.Dir, "gone.json"), gone.conversation, "--config", s.configFile())
		require.ErrorContains(t, err, "the organization has no conversation")
		require.Equal(t, exported[stays.word], string(b.ask(t, http.MethodGet, "/conversations/"+stays.conversation+"/export", nil).Body))

		archive := filepath.Join(s.Dir, "archive")
		s.svc(t, "export", archive)
		rows := strings.Join(archivedRows(t, archive), "")
		for _, id := range sealed[1] {
			require.Contains(t, rows, fmt.Sprintf("%q", id))
		}
		traces := append(sealed[0], gone.Customer, stays.Customer, gone.word, all.Messages[3].Files[0].ID)
		for _, m := range all.Messages {
			traces = append(traces, m.ID, m.PlatformMessageID)
		}
		for _, trace := range traces {
			require.False(t, strings.Contains(rows, fmt.Sprintf("%q", trace)) || strings.Contains(rows, trace+" "), "%s is left in the store", trace)
		}
		s.svc(t, "doctor")
	})
}
