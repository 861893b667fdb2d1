package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// A message of the business of which the platform doesn't say who wrote it is never answered: not one of ours, not one in a conversation
// that a customer began, and not one that begins a conversation once a customer has written to the shop.
func TestUnsureMessages(t *testing.T) {
	t.Parallel()
	const shop, ann, bob = "947151379", "165105353", "165105354"
	each(t, func(t *testing.T, q *inboxTest) {
		wrote := func(from, to, id, text string) Item {
			conversation := from
			if from == shop {
				conversation = to
			}
			return Item{
				Kind: platforms.Text, CustomerRef: "c-" + conversation, Address: from, Other: &platforms.OtherIDs{Business: to}, Unsure: true, MessageID: id, Text: text, CustomerName: "n" + from,
			}
		}
		of := func(customer string) Conversation {
			t.Helper()
			c, err := q.ConversationOf(t.Context(), "org_1", "chn_1", "c-"+customer)
			require.NoError(t, err)
			return c
		}
		q.arrive(t, wrote(ann, shop, "1", "Size M?"))
		q.reply(t, "Yes, it is here", "p-1")
		q.arrive(t, wrote(shop, ann, "p-1", "Yes, it is here"))
		require.Equal(t, []string{"Size M?", "Yes, it is here"}, q.said(t, "c-"+ann), "ours comes back")
		require.False(t, q.paused(t, "c-"+ann))

		picture := wrote(shop, bob, "3", "image")
		picture.Kind = platforms.Media
		q.arrive(t, wrote(shop, bob, "2", "Your parcel is on its way"), picture)
		q.idle(t)
		require.Equal(t, []string{"Your parcel is on its way", "image"}, q.said(t, "c-"+bob))
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM messages WHERE author = 'human'`))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM messages WHERE author = 'human' AND kind = 'event'`))
		require.Equal(t, bob, of(bob).Address, "answers go to the customer")
		require.Empty(t, of(bob).CustomerName, "the shop's name isn't the customer's")
		q.exec(t, `UPDATE conversations SET paused_until = 0`)
		q.arrive(t, wrote(bob, shop, "4", "Thanks. When?"))
		q.reply(t, "Tomorrow", "p-2")

		q.exec(t, `DELETE FROM message_tombstones`)
		q.arrive(t, wrote(shop, ann, "5", "I am Minh"))
		q.idle(t)
		require.True(t, q.paused(t, "c-"+ann), "a person has written to whom we write")
		q.healthy(t)
	})
}

// Whom a message for certain was written to, or for certain came from, is the business.
func TestBusinessesAreLearned(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		unsure := Item{Kind: platforms.Text, CustomerRef: "c-7", Address: "1", Other: &platforms.OtherIDs{Business: "7"}, Unsure: true, MessageID: "2", Text: "We have it"}
		q.arrive(t, Item{Kind: platforms.HumanEcho, CustomerRef: "c-6", Address: "6", Other: &platforms.OtherIDs{Business: "1"}, MessageID: "1", Text: "Welcome"}, unsure)
		q.idle(t)
		other := q.channel(t, "org_2", "chn_2")
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{other, []Item{unsure}}}))
		q.take(t) // what is known of one shop isn't known of another
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM message_tombstones`))
		q.healthy(t)
	})
}

// TestCustomersTakenForBusinesses guarantees that a customer whom the business wrote first, and whose id was learned as its own, is answered
// once the business's id is known, and that ours to such a customer stay ours.
func TestCustomersTakenForBusinesses(t *testing.T) {
	t.Parallel()
	const shop, ann, bob = "1", "7", "8"
	each(t, func(t *testing.T, q *inboxTest) {
		wrote := func(from, to, customer, id string) Item {
			return Item{
				Kind: platforms.Text, CustomerRef: "c-" + customer, Address: from, Other: &platforms.OtherIDs{Business: to}, Unsure: true, MessageID: id, Text: "text " + id,
			}
		}
		q.arrive(t, wrote(shop, bob, bob, "1")) // nothing tells it from a customer's
		q.reply(t, "Hello", "p-1")
		q.arrive(t, wrote(ann, shop, ann, "2"))
		q.reply(t, "Hello", "p-2")
		q.arrive(t, wrote(bob, shop, bob, "3"))
		q.reply(t, "It is here", "p-3")
		q.arrive(t, wrote(shop, bob, bob, "p-3"))
		q.idle(t)
		require.Equal(t, []string{"text 1", "Hello", "text 3", "It is here"}, q.said(t, "c-"+bob))
		q.healthy(t)
	})
}
