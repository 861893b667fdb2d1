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

// The answer modes, as in the API.
const (
	modeAutomatic = "automatic"
	modeDraft     = "draft"
)

func answerMode(rules *store.AnswerRules) string {
	if rules.Drafts {
		return modeDraft
	}
	return modeAutomatic
}

func (f *commandFlags) channelSet() *cobra.Command {
	var maxAge int64
	var mode string
	command := &cobra.Command{
		Use:   "set CHANNEL_ID [--answer-mode MODE] [--max-age-minutes N]",
		Short: "Changes which messages of a channel its assistant answers",
		Long: `Changes which messages of a channel its assistant answers, as PATCH /channels/{id} does. Flags that aren't given change nothing.

With --answer-mode draft the assistant proposes its answers, and a person sends them: some platforms forbid answers without one. With
automatic, the default, it answers by itself; what waits for a person already stays with them.

Messages that are older than --max-age-minutes, such as after an outage, aren't answered: the conversation has the attention
message_too_old, and people are told.`,
		Example: `  $ caddy svc channel set chn_… --answer-mode draft
  $ caddy svc channel set chn_… --max-age-minutes 240`,
		Args: exactly("the channel's id"),
	}
	flags := command.Flags()
	flags.StringVar(&mode, "answer-mode", "", "who sends answers, `automatic|draft`")
	flags.Int64Var(&maxAge, "max-age-minutes", 0, "for how many `minutes` after the customer's last message it still answers; 0 is any time")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		if maxAge < 0 || maxAge > mostMaxAge {
			return nil, fmt.Errorf("--max-age-minutes is %d, want 0 to %d", maxAge, mostMaxAge)
		}
		if flags.Changed("answer-mode") && mode != modeAutomatic && mode != modeDraft {
			return nil, fmt.Errorf("--answer-mode is %q, want %s or %s", mode, modeAutomatic, modeDraft)
		}
		return e.setChannel(ctx, e.args[0], func(rules *store.AnswerRules) {
			if flags.Changed("answer-mode") {
				rules.Drafts = mode == modeDraft
			}
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
