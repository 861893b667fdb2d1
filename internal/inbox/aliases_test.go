package inbox

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// A customer whom the platform names by number, by user id, or by both has one conversation, from when both were named together.
func TestCustomerWithTwoIDs(t *testing.T) {
	t.Parallel()
	const phone, user = "84901234567", "US.1349"
	both := func(id, text string) Item {
		item := textOf(phone, id, text)
		item.Other = &platforms.OtherIDs{Alias: user}
		return item
	}
	hidden := func(id, text string) Item {
		return Item{Kind: platforms.Text, CustomerRef: user, Other: &platforms.OtherIDs{Alias: user}, Address: user, MessageID: id, Text: text}
	}
	echo := Item{Kind: platforms.HumanEcho, CustomerRef: user, Other: &platforms.OtherIDs{Alias: user}, Address: user, MessageID: "echo", Text: "A person here"}
	for name, test := range map[string]struct {
		arrivals [][]Item
		ref      string
	}{
		"who hides the number":              {[][]Item{{both("1", "one")}, {hidden("2", "two")}, {echo}}, phone},
		"who shows the number":              {[][]Item{{hidden("1", "one")}, {both("2", "two")}, {echo}}, user},
		"in one delivery":                   {[][]Item{{both("1", "one"), hidden("2", "two"), echo}}, phone},
		"in one delivery, hidden first":     {[][]Item{{hidden("1", "one"), both("2", "two"), echo}}, phone},
		"who changes the number":            {[][]Item{{both("1", "one")}, {{Kind: platforms.Text, CustomerRef: "84907654321", Other: &platforms.OtherIDs{Alias: user}, MessageID: "2", Text: "two"}}, {echo}}, phone},
		"again and again":                   {[][]Item{{both("1", "one")}, {both("1", "one"), hidden("2", "two")}, {hidden("2", "two")}, {echo}, {echo}}, phone},
		"whose colleagues write to both":    {[][]Item{{both("1", "one")}, {{Kind: platforms.HumanEcho, CustomerRef: phone, Other: &platforms.OtherIDs{Alias: user}, MessageID: "2", Text: "two"}}, {echo}}, phone},
		"with the number alone in the past": {[][]Item{{textOf(phone, "1", "one")}, {both("2", "two")}, {echo}}, phone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				for _, items := range test.arrivals {
					q.arrive(t, items...)
				}
				require.Equal(t, "1", q.value(t, `SELECT count(*) FROM conversations`))
				require.Equal(t, []string{"one", "two", "A person here"}, q.said(t, test.ref))
				require.True(t, q.paused(t, test.ref), "the colleague is seen")
				q.healthy(t)
			})
		})
	}
}

// Two customers stay two, another shop's are others, and who is deleted begins anew.
func TestAliasesOfOthers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		named := func(phone, user, id string) Item {
			return Item{Kind: platforms.Text, CustomerRef: phone, Other: &platforms.OtherIDs{Alias: user}, Address: phone, MessageID: id, Text: "text " + id}
		}
		q.arrive(t, named("849", "US.1", "1"), named("850", "US.2", "2"), named("US.2", "US.2", "3"))
		require.Equal(t, []string{"text 1"}, q.said(t, "849"))
		require.Equal(t, []string{"text 2", "text 3"}, q.said(t, "850"))
		other := q.channel(t, "org_2", "chn_2")
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{other, []Item{named("US.1", "US.1", "1")}}}))
		require.Equal(t, "3", q.value(t, `SELECT count(*) FROM conversations`))
		c, err := q.ConversationOf(t.Context(), "org_1", "chn_1", "849")
		require.NoError(t, err)
		var exported strings.Builder
		require.NoError(t, q.Export(t.Context(), "org_1", c.ID, &exported, func() {}))
		require.Contains(t, exported.String(), `"otherIds":["US.1"]`)
		require.NoError(t, q.DeleteConversation(t.Context(), "test", "org_1", c.ID))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM customer_aliases`), "nothing is left of a deleted customer")
		q.arrive(t, named("US.1", "US.1", "4"))
		require.Equal(t, []string{"text 4"}, q.said(t, "US.1"))
		q.healthy(t)
	})
}
