package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// standingFlags select the conversations of an organization that need attention.
type standingFlags struct{ org, channel, code string }

func (s *standingFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&s.org, "org", "", "the `id` of the organization")
	command.Flags().StringVar(&s.channel, "channel", "", "only conversations on the channel with this `id`")
	command.Flags().StringVar(&s.code, "code", "", "only what stands for this reason, a `code` that queue standing shows")
}

func (s *standingFlags) filter() inbox.ConversationFilter {
	return inbox.ConversationFilter{ChannelID: s.channel, Code: s.code, Attention: true}
}

// standingAnswer is a conversation that needs attention, without texts and names of customers.
type standingAnswer struct {
	ID        string `json:"id"`
	ChannelID string `json:"channelId"`
	State     string `json:"state"`
	Attention string `json:"attention"`
	UpdatedAt string `json:"updatedAt"`
}

func newStandingAnswer(c inbox.Conversation) standingAnswer {
	return standingAnswer{ID: c.ID, ChannelID: c.ChannelID, State: c.State, Attention: c.Attention, UpdatedAt: moment(c.UpdatedAt)}
}

func (s standingAnswer) cells() []string {
	return []string{s.ID, s.ChannelID, s.State, s.Attention, s.UpdatedAt}
}

func (f *commandFlags) queueStanding() *cobra.Command {
	var flags standingFlags
	command := &cobra.Command{
		Use:   "standing --org ORG_ID [--channel CHANNEL_ID] [--code CODE]",
		Short: "Lists the conversations of an organization at which somebody should look",
		Long: `Lists the conversations of an organization at which somebody should look: an answer was given up or waits for
something, or a message was not delivered, or perhaps not. The code is that of the last cause.`,
	}
	flags.add(command)
	required(command, "org")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		if _, err := e.organization(ctx, flags.org); err != nil {
			return nil, err
		}
		ring, err := e.ring()
		if err != nil {
			return nil, err
		}
		queue := inbox.New(e.db, ring)
		all, err := allPages(func(page store.Page) ([]inbox.Conversation, error) {
			return queue.Conversations(ctx, flags.org, flags.filter(), page)
		}, func(c inbox.Conversation) string { return c.ID })
		if err != nil {
			return nil, fmt.Errorf("reading the queue: %w", err)
		}
		return newList("CONVERSATION\tCHANNEL\tSTATE\tATTENTION\tSINCE", all, newStandingAnswer), nil
	})
}

type retriedTurnAnswer struct {
	ID      string `json:"id"`
	Retried bool   `json:"retried"`
}

func (r retriedTurnAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "Turn %s is in the queue again.\n", r.ID)
}

// oneOrFlag accepts exactly one argument, which errors call what, or in its place the flag.
func oneOrFlag(what, flag string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed(flag) {
			return exactly(what)(cmd, args)
		}
		return noArguments(cmd, args)
	}
}

// changedAnswer says how many conversations were changed; done is the verb for people.
type changedAnswer struct {
	Changed int `json:"changed"`

	done string
}

func (c changedAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "%d conversations %s.\n", c.Changed, c.done)
}

// eachStanding changes all conversations that the flags select, page by page.
func (e *commandEnv) eachStanding(
	ctx context.Context, queue *inbox.Queue, flags *standingFlags, done string,
	act func(ctx context.Context, actor, orgID, id, code string) error,
) (answer, error) {
	if _, err := e.organization(ctx, flags.org); err != nil {
		return nil, err
	}
	result := changedAnswer{done: done}
	for page := (store.Page{}); ; {
		changed, last, err := queue.ForEachStanding(ctx, e.actor, flags.org, flags.filter(), page, act)
		result.Changed += changed
		if err != nil {
			return nil, fmt.Errorf("changing conversations, of which %d are changed: %w", result.Changed, err)
		}
		if last == "" {
			return result, nil
		}
		page.After = last
	}
}

func (f *commandFlags) queueRetry() *cobra.Command {
	var flags standingFlags
	command := &cobra.Command{
		Use:   "retry TURN_ID | --org ORG_ID [--channel CHANNEL_ID] [--code CODE]",
		Short: "Puts a turn that was given up into the queue again, or all that stand",
		Long: `Puts a turn that was given up into the queue again, or with --org all turns that were given up or wait, in the
conversations that queue standing lists with the same flags. If a turn was charged already, it is not charged again: the
model's answer is kept under the turn's id.`,
		Example: `  $ caddy svc queue retry trn_…
  $ caddy svc queue retry --org org_… --code provider_error`,
		Args: oneOrFlag("the turn's id", "org"),
	}
	flags.add(command)
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		queue := inbox.New(e.db, nil)
		if flags.org != "" {
			return e.eachStanding(ctx, queue, &flags, "retried", queue.RetryStanding)
		}
		id := e.args[0]
		err := queue.Retry(ctx, e.actor, id)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, inbox.ErrEnded) {
			return nil, fmt.Errorf("there is no turn with the id %q that was given up; `caddy svc queue dead` shows them", id)
		}
		if err != nil {
			return nil, fmt.Errorf("retrying the turn: %w", err)
		}
		return retriedTurnAnswer{ID: id, Retried: true}, nil
	})
}

func (f *commandFlags) queueDismiss() *cobra.Command {
	var flags standingFlags
	command := &cobra.Command{
		Use:   "dismiss --org ORG_ID [CONVERSATION_ID] [--channel CHANNEL_ID] [--code CODE]",
		Short: "Leaves what stands in a conversation unanswered, or in all",
		Long: `Ends the attention of one conversation, or of all that queue standing lists with the same flags: their customers get no
answer to what stands there, and the assistant answers what they write next.`,
		Example: `  $ caddy svc queue dismiss --org org_… cnv_…
  $ caddy svc queue dismiss --org org_… --channel chn_…`,
		Args: cobra.MaximumNArgs(1),
	}
	flags.add(command)
	required(command, "org")
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		queue := inbox.New(e.db, nil)
		if len(e.args) == 0 {
			return e.eachStanding(ctx, queue, &flags, "dismissed", queue.Dismiss)
		}
		err := queue.Dismiss(ctx, e.actor, flags.org, e.args[0], flags.code)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, inbox.ErrEnded) {
			return nil, fmt.Errorf("nothing stands in a conversation %q of this organization; `caddy svc queue standing` shows them", e.args[0])
		}
		if err != nil {
			return nil, fmt.Errorf("dismissing: %w", err)
		}
		return changedAnswer{Changed: 1, done: "dismissed"}, nil
	})
}

type resentAnswer struct {
	ID     string `json:"id"`
	Resent bool   `json:"resent"`
}

func (r resentAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "Message %s is in the queue again.\n", r.ID)
}

func (f *commandFlags) queueResend() *cobra.Command {
	var conversation string
	var twice bool
	command := &cobra.Command{
		Use:   "resend MESSAGE_ID --org ORG_ID --conversation CONVERSATION_ID [--may-arrive-twice]",
		Short: "Sends a message again that was not delivered, or perhaps not",
		Long: `Sends a message to a customer again that failed, and with it the later parts of the same answer that failed with it. One
whose delivery is unknown may be there already: it is sent only with --may-arrive-twice.`,
		Example: "  $ caddy svc queue resend --org org_… --conversation cnv_… msg_… --may-arrive-twice",
		Args:    exactly("the message's id"),
	}
	command.Flags().StringVar(&conversation, "conversation", "", "the `id` of its conversation")
	command.Flags().BoolVar(&twice, "may-arrive-twice", false, "send it even if the customer may have it already")
	required(command, "conversation")
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		id := e.args[0]
		err := inbox.New(e.db, nil).Resend(ctx, e.actor, orgID, conversation, id, twice)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, fmt.Errorf("the organization has no message %q in a conversation %q", id, conversation)
		case errors.Is(err, inbox.ErrMayArriveTwice):
			return nil, errors.New("it is unknown whether the customer has this message; send it with --may-arrive-twice if it may arrive twice")
		case errors.Is(err, inbox.ErrEnded):
			return nil, errors.New("only a message that failed, or whose delivery is unknown, can be sent again")
		case err != nil:
			return nil, fmt.Errorf("sending the message again: %w", err)
		}
		return resentAnswer{ID: id, Resent: true}, nil
	})
}
