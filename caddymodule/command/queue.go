package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// deadTurnAnswer is a turn that was given up, without texts of customers.
type deadTurnAnswer struct {
	ID             string `json:"id"`
	OrgID          string `json:"orgId"`
	ChannelID      string `json:"channelId"`
	ConversationID string `json:"conversationId"`
	Code           string `json:"code"`
	Attempts       int64  `json:"attempts"`
	CreatedAt      string `json:"createdAt"`
	UpdatedAt      string `json:"updatedAt"`
}

func newDeadTurnAnswer(t inbox.DeadTurn) deadTurnAnswer {
	return deadTurnAnswer{
		ID: t.TurnID, OrgID: t.OrgID, ChannelID: t.ChannelID, ConversationID: t.ConversationID, Code: t.Code,
		Attempts: t.Attempts, CreatedAt: moment(t.CreatedAt), UpdatedAt: moment(t.UpdatedAt),
	}
}

func (t deadTurnAnswer) cells() []string {
	return []string{t.ID, t.OrgID, t.ChannelID, t.ConversationID, t.Code, strconv.FormatInt(t.Attempts, 10), t.UpdatedAt}
}

type retriedTurnAnswer struct {
	ID      string `json:"id"`
	Retried bool   `json:"retried"`
}

func (r retriedTurnAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "Turn %s is in the queue again.\n", r.ID)
}

func queueCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "queue",
		Short: "Shows answers that were given up, and retries them",
	}, f.queueDead(), f.queueRetry())
}

const mostDeadTurns = 10_000

func (f *commandFlags) queueDead() *cobra.Command {
	var limit int
	command := &cobra.Command{
		Use:   "dead [--limit N]",
		Short: "Lists the turns that were given up, with the code of what stopped them",
		Long: `Lists the turns that were given up: the model or the service failed too often, or in a way that no retry can fix. Their
customers have no answer. The code is that of the last failure.`,
	}
	command.Flags().IntVar(&limit, "limit", 100, fmt.Sprintf("how many `rows`, 1 to %d", mostDeadTurns))
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		if limit < 1 || limit > mostDeadTurns {
			return nil, fmt.Errorf("--limit is %d, want 1 to %d", limit, mostDeadTurns)
		}
		turns, err := inbox.New(e.db, nil).DeadTurns(ctx, limit)
		if err != nil {
			return nil, fmt.Errorf("reading the queue: %w", err)
		}
		return newList("TURN\tORGANIZATION\tCHANNEL\tCONVERSATION\tCODE\tATTEMPTS\tGIVEN UP", turns, newDeadTurnAnswer), nil
	})
}

func (f *commandFlags) queueRetry() *cobra.Command {
	command := &cobra.Command{
		Use:   "retry TURN_ID",
		Short: "Puts a turn that was given up into the queue again",
		Long: `Puts a turn that was given up into the queue again. If it was charged already, it is not charged again: the model's
answer is kept under the turn's id.`,
		Example: "  $ caddy svc queue retry trn_…",
		Args:    exactly("the turn's id"),
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		id := e.args[0]
		err := inbox.New(e.db, nil).Retry(ctx, e.actor, id)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, inbox.ErrEnded) {
			return nil, fmt.Errorf("there is no turn with the id %q that was given up; `caddy svc queue dead` shows them", id)
		}
		if err != nil {
			return nil, fmt.Errorf("retrying the turn: %w", err)
		}
		return retriedTurnAnswer{ID: id, Retried: true}, nil
	})
}
