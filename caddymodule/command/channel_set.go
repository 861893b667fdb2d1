package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// mostMaxAge is the largest --max-age-minutes, as in the API: a week.
const mostMaxAge = 7 * 24 * 60

func (f *commandFlags) channelSet() *cobra.Command {
	var maxAge int64
	command := &cobra.Command{
		Use:   "set CHANNEL_ID [--max-age-minutes N]",
		Short: "Changes which messages of a channel its assistant answers",
		Long: `Changes which messages of a channel its assistant answers, as PATCH /channels/{id} does. Flags that aren't given change nothing.

Messages that are older than --max-age-minutes, such as after an outage, aren't answered: the conversation has the attention
message_too_old, and people are told.`,
		Example: "  $ caddy svc channel set chn_… --max-age-minutes 240",
		Args:    exactly("the channel's id"),
	}
	flags := command.Flags()
	flags.Int64Var(&maxAge, "max-age-minutes", 0, "for how many `minutes` after the customer's last message it still answers; 0 is any time")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		if maxAge < 0 || maxAge > mostMaxAge {
			return nil, fmt.Errorf("--max-age-minutes is %d, want 0 to %d", maxAge, mostMaxAge)
		}
		return e.setChannel(ctx, e.args[0], func(rules *store.AnswerRules) {
			if flags.Changed("max-age-minutes") {
				rules.MaxAgeMinutes = maxAge
			}
		})
	})
}

// setChannel changes the rules of a channel of any organization, and shows it afterwards.
func (e *commandEnv) setChannel(ctx context.Context, id string, set func(*store.AnswerRules)) (answer, error) {
	orgID, err := e.db.OwnerOf(ctx, store.OwnedChannels, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("there is no channel with the id %q; `caddy svc channel list --org ORG_ID` shows them", id)
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the channel: %w", err)
	}
	channel, err := e.db.Channels.ByID(ctx, orgID, id)
	if err != nil {
		return nil, fmt.Errorf("reading the channel: %w", err)
	}
	set(&channel.Answers)
	if err := e.db.Channels.Update(ctx, e.actor, orgID, id, store.ChannelChange{Answers: &channel.Answers}); err != nil {
		return nil, fmt.Errorf("changing the channel: %w", err)
	}
	return e.channel(ctx, orgID, id)
}
