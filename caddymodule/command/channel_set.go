package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/hours"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// mostMaxAge is the largest --max-age-minutes, as in the API: a week.
const mostMaxAge = 7 * 24 * 60

// mostNotice is the longest notice for customers in characters, as in the API.
const mostNotice = 1000

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
	var mode, zone, notice, mediaNotice string
	var open []string
	command := &cobra.Command{
		Use:   "set CHANNEL_ID [flags]",
		Short: "Changes which messages of a channel its assistant answers",
		Long: `Changes which messages of a channel its assistant answers, as PATCH /channels/{id} does. Flags that aren't given change nothing.

With --answer-mode draft the assistant proposes its answers, and a person sends them: some platforms forbid answers without one. With
automatic, the default, it answers by itself; what waits for a person already stays with them.

Messages that are older than --max-age-minutes, such as after an outage, aren't answered: the conversation has the attention
message_too_old, and people are told.

With --open the assistant answers at these times only, in --time-zone; what customers write at others is answered when the business opens.
Meanwhile each of them is sent --closed-notice once, if there is one.

A customer who sends a picture, a voice or a file without a text is sent --media-notice; without one people are told.`,
		Example: `  $ caddy svc channel set chn_… --answer-mode draft
  $ caddy svc channel set chn_… --max-age-minutes 240
  $ caddy svc channel set chn_… --open 'mon-fri 08:00-17:30' --open 'sat 09:00-12:00' --time-zone Asia/Ho_Chi_Minh`,
		Args: exactly("the channel's id"),
	}
	flags := command.Flags()
	flags.StringVar(&mode, "answer-mode", "", "who sends answers, `automatic|draft`")
	flags.Int64Var(&maxAge, "max-age-minutes", 0, "for how many `minutes` after the customer's last message it still answers; 0 is any time")
	flags.StringArrayVar(&open, "open", nil,
		"`days and a time` at which it answers, of all that there are; may be repeated; "+alwaysOpen+" for any time")
	flags.StringVar(&zone, "time-zone", "", "the `zone` of --open, such as Asia/Ho_Chi_Minh")
	flags.StringVar(&notice, "closed-notice", "", "the `text` for customers who write at other times; empty for none")
	flags.StringVar(&mediaNotice, "media-notice", "", "the `text` for customers who send something without a text; empty for none")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		if maxAge < 0 || maxAge > mostMaxAge {
			return nil, fmt.Errorf("--max-age-minutes is %d, want 0 to %d", maxAge, mostMaxAge)
		}
		if flags.Changed("answer-mode") && mode != modeAutomatic && mode != modeDraft {
			return nil, fmt.Errorf("--answer-mode is %q, want %s or %s", mode, modeAutomatic, modeDraft)
		}
		return e.setChannel(ctx, e.args[0], func(rules *store.AnswerRules) error {
			if flags.Changed("answer-mode") {
				rules.Drafts = mode == modeDraft
			}
			if flags.Changed("max-age-minutes") {
				rules.MaxAgeMinutes = maxAge
			}
			if flags.Changed("closed-notice") {
				rules.ClosedNotice = strings.TrimSpace(notice)
			}
			if flags.Changed("media-notice") {
				rules.MediaNotice = strings.TrimSpace(mediaNotice)
			}
			if err := checkNotices(rules); err != nil {
				return err
			}
			if flags.Changed("time-zone") {
				rules.TimeZone = zone
			}
			return setHours(rules, open)
		})
	})
}

func openingHours(rules *store.AnswerRules) []string {
	if rules.OpeningHours == "" {
		return nil
	}
	return strings.Split(rules.OpeningHours, "\n")
}

// checkNotices refuses texts for customers that are too long.
func checkNotices(rules *store.AnswerRules) error {
	switch {
	case len([]rune(rules.ClosedNotice)) > mostNotice:
		return fmt.Errorf("--closed-notice: at most %d characters", mostNotice)
	case len([]rune(rules.MediaNotice)) > mostNotice:
		return fmt.Errorf("--media-notice: at most %d characters", mostNotice)
	}
	return nil
}

// alwaysOpen is the value of --open for any time.
const alwaysOpen = "always"

// setHours sets the opening hours to lines, if there are any, and checks those that result.
func setHours(rules *store.AnswerRules, lines []string) error {
	switch {
	case len(lines) == 1 && lines[0] == alwaysOpen:
		rules.OpeningHours = ""
	case len(lines) > 0:
		rules.OpeningHours = strings.Join(lines, "\n")
	}
	if rules.OpeningHours == "" && rules.TimeZone == "" {
		return nil
	}
	_, err := hours.Parse(rules.TimeZone, openingHours(rules))
	switch fault, ok := errors.AsType[*hours.LineError](err); {
	case ok:
		return fmt.Errorf("--open: %w", fault)
	case err != nil:
		return fmt.Errorf("--time-zone is %q: %w; name it like Asia/Ho_Chi_Minh", rules.TimeZone, err)
	}
	return nil
}

// setChannel changes the rules of a channel of any organization, and shows it afterwards.
func (e *commandEnv) setChannel(ctx context.Context, id string, set func(*store.AnswerRules) error) (answer, error) {
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
	if err := set(&channel.Answers); err != nil {
		return nil, err
	}
	if err := e.db.Channels.Update(ctx, e.actor, orgID, id, store.ChannelChange{Answers: &channel.Answers}); err != nil {
		return nil, fmt.Errorf("changing the channel: %w", err)
	}
	return e.channel(ctx, orgID, id)
}
