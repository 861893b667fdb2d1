package inbox

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// exportedCustomer is the stored data about a customer besides messages and turns.
type exportedCustomer struct {
	ID             string   `json:"id"`
	ChannelID      string   `json:"channelId"`
	CustomerID     string   `json:"customerId"`
	Address        string   `json:"address"`
	CustomerName   string   `json:"customerName"`
	OtherIDs       []string `json:"otherIds,omitzero"` // the platform's other ids of the customer
	State          string   `json:"state"`
	Attention      string   `json:"attention"`
	BlockedAt      string   `json:"blockedAt,omitzero"`
	PausedUntil    string   `json:"pausedUntil,omitzero"`
	LastCustomerAt string   `json:"lastCustomerAt,omitzero"`
	CreatedAt      string   `json:"createdAt"`
	UpdatedAt      string   `json:"updatedAt"`
}

type exportedMessage struct {
	Message

	At string `json:"at"`
}

type exportedTurn struct {
	ID        string `json:"id"`
	AgentID   string `json:"agentId"`
	State     string `json:"state"`
	Code      string `json:"code,omitzero"`
	Draft     string `json:"draft,omitzero"` // an answer that was proposed to people
	CreatedAt string `json:"createdAt"`
	UpdatedAt string `json:"updatedAt"`
}

// exportTime returns a time in RFC 3339, or nothing if it isn't set.
func exportTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// Export writes everything that is stored about the customer of an organization's conversation as one JSON object: the conversation
// with names and external ids, all messages with the names of their files, and the turns. The requests of turns repeat these texts,
// and are left out. It reads page by page while the conversation goes on. begin is called
// before the first byte, when the conversation was found. The error is [store.ErrNotFound], of the store or of w; w may have got a part.
func (q *Queue) Export(ctx context.Context, orgID, id string, w io.Writer, begin func()) error {
	c, err := q.Conversation(ctx, orgID, id)
	if err != nil {
		return err
	}
	others, err := store.ReadRows(ctx, q.db, "list a customer's other ids", func(row store.Row) (string, error) {
		alias, err := store.ScanValue[string](row)
		return q.openID("another id of the customer of "+id, alias, vault.CustomerID(orgID)), err
	}, `SELECT alias FROM customer_aliases WHERE conversation_id = $1`, id)
	if err != nil {
		return err
	}
	slices.Sort(others)
	begin()
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	if _, err := io.WriteString(w, `{"conversation":`); err != nil {
		return err
	}
	if err := out.Encode(exportedCustomer{
		ID: c.ID, ChannelID: c.ChannelID, CustomerID: c.CustomerRef, Address: c.Address, CustomerName: c.CustomerName,
		OtherIDs: others, State: c.State,
		Attention: c.Attention, BlockedAt: exportTime(c.BlockedAt), PausedUntil: exportTime(c.PausedUntil),
		LastCustomerAt: exportTime(c.LastCustomerAt), CreatedAt: exportTime(c.CreatedAt), UpdatedAt: exportTime(c.UpdatedAt),
	}); err != nil {
		return err
	}
	err = exportList(w, out, `,"messages":[`, func(m *exportedMessage) string { return m.ID }, func(page store.Page) ([]exportedMessage, error) {
		messages, err := q.Messages(ctx, orgID, id, page)
		all := make([]exportedMessage, len(messages))
		for i, m := range messages {
			all[i] = exportedMessage{m, exportTime(m.At)}
		}
		return all, err
	})
	if err != nil {
		return err
	}
	err = exportList(w, out, `],"turns":[`, func(t *exportedTurn) string { return t.ID }, func(page store.Page) ([]exportedTurn, error) {
		return store.ReadRows(ctx, q.db, "list turns", func(row store.Row) (t exportedTurn, err error) {
			var created, updated int64
			var draft []byte
			err = row.Scan(&t.ID, &t.AgentID, &t.State, &t.Code, &created, &updated, &draft)
			t.CreatedAt, t.UpdatedAt = exportTime(created), exportTime(updated)
			if draft != nil && err == nil {
				proposed := q.openedDraft(draft, orgID, t.ID)
				t.Draft = proposed.Text()
			}
			return t, err
		}, `SELECT id, agent_id, state, code, created_at, updated_at, draft FROM turns WHERE conversation_id = $1 AND org_id = $2 AND id > $3
			ORDER BY id LIMIT $4`, id, orgID, page.After, page.Rows())
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, "]}\n")
	return err
}

// exportList writes the text before a list, and its elements.
func exportList[T any](w io.Writer, out *json.Encoder, before string, id func(*T) string, read func(store.Page) ([]T, error)) error {
	if _, err := io.WriteString(w, before); err != nil {
		return err
	}
	separator := ""
	for page := (store.Page{}); ; {
		rows, err := read(page)
		if err != nil {
			return err
		}
		for i := range rows {
			if _, err := io.WriteString(w, separator); err != nil {
				return err
			}
			if err := out.Encode(&rows[i]); err != nil {
				return err
			}
			separator = ","
		}
		if len(rows) == 0 {
			return nil
		}
		page.After = id(&rows[len(rows)-1])
	}
}
