package command

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
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

func queueCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "queue",
		Short: "Shows what stands unanswered or undelivered, and retries, dismisses or resends it",
	}, f.queueDead(), f.queueStanding(), f.queueRetry(), f.queueDismiss(), f.queueResend())
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
