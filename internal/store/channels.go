package store

import (
	"cmp"
	"context"
	"strings"
)

// The states of a channel.
const (
	// ChannelPending: the organization has not shown yet that the external id is its own. The channel's deliveries are
	// dropped.
	ChannelPending = "pending"
	// ChannelActive: messages come in and go out.
	ChannelActive = "active"
	// ChannelNeedsReauth: the platform refuses the credentials; messages come in and wait.
	ChannelNeedsReauth = "needs_reauth"
)

// Channel connects an organization to a platform, or to its own site (widget). The store treats only widgets in a way of their own, so it
// keeps channels of platforms that the program doesn't contain.
type Channel struct {
	ID, OrgID  string
	Type       string
	Name       string // unique within the organization
	ExternalID string // the platform's id of the page, account, number or shop; unique for its type; empty means none
	AgentID    string `db:"null"` // empty means no agent
	State      string // ChannelPending, ChannelActive or ChannelNeedsReauth
	// LostExternalID is the external id that a pending channel lost, see [Channels.TakeOver]. The channel stays pending.
	LostExternalID string
	// Credentials are sealed by their owner. nil means none.
	Credentials []byte
	// CredentialsVersion counts the credentials, from 1, so that a refreshed token isn't overwritten.
	CredentialsVersion int64
	// Widget is set for channels of type widget, and for no others.
	Widget *WidgetSettings `db:"-"`
	// Answers are the rules for the assistant on this channel.
	Answers AnswerRules `db:"-"`
	// CreatedAt and UpdatedAt are epoch milliseconds. A CreatedAt of 0 becomes the transaction's clock.
	CreatedAt, UpdatedAt int64
}

var channels = newTable("channels", func(c *Channel) []field { return answerRules.fields(&c.Answers) })

// Channels reads and writes channels.
type Channels struct{ db *DB }

// Create adds a channel with version 1 of its credentials. UpdatedAt becomes CreatedAt. limit is the number of channels of the
// organization's plan; 0 or less means unlimited. Create returns [ErrLimit] if the organization has as many, also of concurrent calls,
// [ErrConflict] if the organization has a channel of this name or any organization has the external id, [ErrNotFound] for an unknown
// organization, and [ErrAgentNotFound] for an agent of another organization.
func (c Channels) Create(ctx context.Context, actor string, channel Channel, limit int64) error {
	return c.db.Exec(ctx, func(ctx context.Context, tx Tx) error { return createChannel(ctx, tx, actor, channel, limit) })
}

func createChannel(ctx context.Context, tx Tx, actor string, channel Channel, limit int64) error {
	if limit > 0 {
		if err := checkRoom(ctx, tx, channel.OrgID, limit, `SELECT count(*) FROM channels WHERE org_id = $1`); err != nil {
			return err
		}
	}
	if channel.AgentID != "" {
		if err := lockAgent(ctx, tx, channel.OrgID, channel.AgentID); err != nil {
			return err
		}
	}
	channel.LostExternalID, channel.CredentialsVersion = "", 1
	channel.CreatedAt = orNow(tx, channel.CreatedAt)
	channel.UpdatedAt = channel.CreatedAt
	channels.queueInsert(tx, &channel)
	if channel.Widget != nil {
		queueWidgetSettings(tx, channel.OrgID, channel.ID, channel.Widget)
	}
	audit(tx, actor, "channel.create", channel.ID, channel.OrgID, strings.TrimSpace(channel.Type+" "+channel.ExternalID))
	return nil
}

// ChannelChange is a change of a channel: a nil field stays unchanged.
type ChannelChange struct {
	Name    *string
	AgentID *string // empty removes the agent
	State   *string
	// Credentials are sealed, and replace those there are, whatever their version.
	Credentials []byte
	// Widget replaces all settings, of a channel of type widget.
	Widget *WidgetSettings
	// Answers replaces all rules.
	Answers *AnswerRules
}

// Update changes an organization's channel. It returns [ErrNotFound] when there is none, [ErrConflict] when
// another channel has the name, and [ErrAgentNotFound] for an agent that isn't the organization's.
func (c Channels) Update(ctx context.Context, actor, orgID, id string, update ChannelChange) error {
	return c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		if update.AgentID != nil && *update.AgentID != "" {
			if err := lockAgent(ctx, tx, orgID, *update.AgentID); err != nil {
				return err
			}
		}
		channel, err := channels.lock(ctx, tx, orgID, id)
		if err != nil {
			return err
		}
		changed := update.apply(&channel)
		if len(changed) == 0 {
			return nil
		}
		channel.UpdatedAt = tx.Now()
		channels.queueUpdate(tx, &channel, orgID, id)
		if update.Credentials != nil {
			tx.Queue(1, `UPDATE channels SET expiry_told = 0 WHERE id = $1 AND org_id = $2`, id, orgID)
		}
		if update.Widget != nil {
			queueWidgetSettings(tx, orgID, id, update.Widget)
		}
		audit(tx, actor, "channel.update", id, orgID, strings.Join(changed, " "))
		return nil
	})
}

// apply changes a channel, and returns the names of the changed fields. A channel that lost its external id keeps its state.
func (c *ChannelChange) apply(channel *Channel) (changed []string) {
	if c.Name != nil {
		channel.Name, changed = *c.Name, append(changed, "name")
	}
	if c.AgentID != nil {
		channel.AgentID, changed = *c.AgentID, append(changed, "agent")
	}
	if c.State != nil {
		changed = append(changed, "state")
		if channel.LostExternalID == "" {
			channel.State = *c.State
		}
	}
	if c.Credentials != nil {
		channel.Credentials, channel.CredentialsVersion = c.Credentials, channel.CredentialsVersion+1
		changed = append(changed, "credentials")
	}
	if c.Widget != nil {
		changed = append(changed, "widget")
	}
	if c.Answers != nil {
		channel.Answers, changed = *c.Answers, append(changed, "answers")
	}
	return changed
}

// SetState changes the state of an organization's channel. It returns [ErrNotFound] if there is none. A pending channel doesn't change to
// needs_reauth: only an approval ends the pending state, and nothing ends it for a channel that lost its external id. A call that changes
// nothing writes no audit entry.
func (c Channels) SetState(ctx context.Context, actor, orgID, id, state string) error {
	return c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		was, err := Changed(ctx, tx, `UPDATE channels SET state = $3, updated_at = $4
			WHERE id = $1 AND org_id = $2 AND state <> $3 AND NOT (state = $5 AND $3 = $6) AND lost_external_id = ''
			RETURNING id`,
			id, orgID, state, tx.Now(), ChannelPending, ChannelNeedsReauth)
		if err != nil {
			return err
		}
		if !was {
			return change(ctx, tx, `SELECT id FROM channels WHERE id = $1 AND org_id = $2`, id, orgID)
		}
		queueChannelState(tx, actor, orgID, id, state)
		return nil
	})
}

// queueChannelState writes a changed state into the audit log. For needs_reauth, which only people can end, it also writes an event.
func queueChannelState(tx Tx, actor, orgID, id, state string) {
	audit(tx, actor, "channel.set_state", id, orgID, state)
	if state == ChannelNeedsReauth {
		QueueEvent(tx, &Event{OrgID: orgID, Type: EventChannelReauth, ChannelID: id})
	}
}

var channelColumns = `SELECT ` + channels.list("c.", nil) + `, ` + widgetSettings.list("w.", nil) + `
	FROM channels c LEFT JOIN widget_settings w ON w.org_id = c.org_id AND w.channel_id = c.id`

func scanChannel(row Row) (channel Channel, err error) {
	var widget storedWidget
	if err := scanFields(row, append(channels.fields(&channel), widgetSettings.fields(&widget)...)); err != nil {
		return channel, err
	}
	channel.Widget, err = widget.settings()
	return channel, err
}

// ByID reads an organization's channel. It returns [ErrNotFound] if there is none.
func (c Channels) ByID(ctx context.Context, orgID, id string) (Channel, error) {
	return ReadRow(ctx, c.db, "read a channel", scanChannel, selectChannel, id, orgID)
}

// ChannelAgent is a channel with its agent.
type ChannelAgent struct {
	Channel Channel
	Agent   *Agent // nil when the channel has none
	// Err is [ErrNotFound] for a channel that doesn't exist, or the reason why a row can't be read.
	Err error
}

// ofChannel selects the agent of an organization's channel.
const ofChannel = ` = (SELECT agent_id FROM channels WHERE id = $1 AND org_id = $2) AND org_id = $2`

var (
	selectChannel        = channelColumns + ` WHERE c.id = $1 AND c.org_id = $2`
	selectAgentOfChannel = agents.selected + ` WHERE id` + ofChannel
	selectBasesOfChannel = `SELECT knowledge_base_id FROM agent_knowledge_bases WHERE agent_id` + ofChannel + ` ORDER BY knowledge_base_id`
)

// QueueWithAgent queues the reading of an organization's channel and its agent. The result is complete after the transaction's next
// Flush or Query, or after its commit. It never fails the transaction for a row that can't be read: see [ChannelAgent.Err].
func (Channels) QueueWithAgent(tx Tx, orgID, id string) *ChannelAgent {
	read := &ChannelAgent{Err: ErrNotFound}
	tx.QueueQuery(func(row Row) error {
		read.Channel, read.Err = scanChannel(row)
		return nil
	}, selectChannel, id, orgID)
	tx.QueueQuery(func(row Row) error {
		agent, err := agents.scan(row)
		read.Agent, read.Err = &agent, cmp.Or(read.Err, err)
		return nil
	}, selectAgentOfChannel, id, orgID)
	tx.QueueQuery(func(row Row) error {
		base, err := ScanValue[string](row)
		if read.Err = cmp.Or(read.Err, err); read.Err == nil && read.Agent != nil {
			read.Agent.KnowledgeBaseIDs = append(read.Agent.KnowledgeBaseIDs, base)
		}
		return nil
	}, selectBasesOfChannel, id, orgID)
	return read
}

// List reads a page of an organization's channels, oldest first.
func (c Channels) List(ctx context.Context, orgID string, page Page) ([]Channel, error) {
	return readPage(ctx, c.db, "list channels", scanChannel, channelColumns+` WHERE c.org_id = $1`, "c.id", page, orgID)
}

// ChannelTypes is how many channels there are of a type.
type ChannelTypes struct {
	Type     string
	Channels int64
}

// ChannelTrouble is a channel that needs a person.
type ChannelTrouble struct {
	ID, OrgID, Type, State string
	// ExpiresAt is the end of a token that isn't renewed, in epoch milliseconds, of which people were told. 0 means none.
	ExpiresAt int64
}

// Troubles reads up to limit channels, in order of id, that aren't active, or have a token that isn't renewed and ends after now, in epoch
// milliseconds.
func (c Channels) Troubles(ctx context.Context, now int64, limit int) ([]ChannelTrouble, error) {
	return ReadRows(ctx, c.db, "look for channels that need a person", ScanFields[ChannelTrouble](), selectTroubles, now, limit)
}

const selectTroubles = `SELECT id, org_id, type, state, expiry_told FROM channels WHERE (state <> 'active' OR expiry_told > 0)
	AND (state <> 'active' OR expiry_told > $1) ORDER BY id LIMIT $2`

// ClosedUntil reads until when platforms take no messages, because they have asked for a pause that isn't over: in epoch milliseconds,
// by the id of the organization's channel.
func (c Channels) ClosedUntil(ctx context.Context, orgID string) (map[string]int64, error) {
	now, err := c.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	return ReadMap[string, int64](ctx, c.db, "read the pauses of channels", `SELECT c.id, p.closed_until
		FROM channels c JOIN channel_paces p ON p.org_id = c.org_id AND p.channel_id = c.id
		WHERE c.org_id = $1 AND p.closed_until > $2`, orgID, now)
}

// Types reads the types that channels of any organization have. It reads all channels.
func (c Channels) Types(ctx context.Context) ([]ChannelTypes, error) {
	return ReadRows(ctx, c.db, "list the types of channels", ScanFields[ChannelTypes](),
		`SELECT type, count(*) FROM channels GROUP BY type ORDER BY type`)
}

// TakeOverPossible reports whether [Channels.Create] refuses the channel only because a pending channel of another organization claims its
// external id, so that [Channels.TakeOver] would succeed.
func (c Channels) TakeOverPossible(ctx context.Context, channel Channel) (bool, error) {
	rows, err := ReadRows(ctx, c.db, "look for a pending claim", ScanValue[int],
		`SELECT 1 FROM channels WHERE type = $1 AND external_id = $2 AND external_id <> '' AND state = $3 AND org_id <> $4
		AND NOT EXISTS (SELECT 1 FROM channels WHERE org_id = $4 AND name = $5)`,
		channel.Type, channel.ExternalID, ChannelPending, channel.OrgID, channel.Name)
	return len(rows) > 0, err
}

// ConfirmedBy names who has confirmed that an external id is an organization's, as audit logs show it.
type ConfirmedBy string

// Who confirms external ids.
const (
	PlatformConfirmed ConfirmedBy = "the platform"
	OperatorConfirmed ConfirmedBy = "the operator"
)

// TakeOver is [Channels.Create] for a channel after a confirmation that its external id is the organization's. A pending channel of another
// organization that claims the id loses it in the same transaction: it stays pending permanently, with its LostExternalID, and the audit
// log of its organization has an entry without the winner's name. TakeOver returns [ErrConflict] if a channel that isn't pending, or a
// channel of the same organization, has the id.
func (c Channels) TakeOver(ctx context.Context, actor string, confirmed ConfirmedBy, channel Channel, limit int64) error {
	return c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		var id, orgID string
		err := tx.Query(ctx, func(row Row) error { return row.Scan(&id, &orgID) },
			`UPDATE channels SET lost_external_id = external_id, external_id = '', updated_at = $5
			WHERE type = $1 AND external_id = $2 AND external_id <> '' AND state = $3 AND org_id <> $4 RETURNING id, org_id`,
			channel.Type, channel.ExternalID, ChannelPending, channel.OrgID, tx.Now())
		if err != nil {
			return err
		}
		if id != "" {
			audit(tx, "channels", "channel.lose_external_id", id, orgID,
				channel.Type+" "+channel.ExternalID+": "+string(confirmed)+" confirmed it for another organization")
		}
		return createChannel(ctx, tx, actor, channel, limit)
	})
}

// ChannelCredentials replaces the sealed credentials of channels.
type ChannelCredentials struct{ db *DB }

// Replace replaces a channel's sealed credentials with refreshed ones if their version is still oldVersion, and increments the version. It
// reports false if they have another version or the channel is gone. It keeps updated_at and writes no audit entry.
func (c ChannelCredentials) Replace(ctx context.Context, orgID, id string, oldVersion int64, sealed []byte) (replaced bool, err error) {
	return execChanged(ctx, c.db, `UPDATE channels SET credentials = $4, credentials_version = credentials_version + 1, expiry_told = 0
		WHERE id = $1 AND org_id = $2 AND credentials_version = $3 RETURNING id`, id, orgID, oldVersion, sealed)
}

// Refuse marks a channel as in need of reauthorization, because its platform has refused the credentials of this version. It reports false
// and marks nothing if the credentials have another version or the channel is gone. A pending channel stays pending.
func (c ChannelCredentials) Refuse(ctx context.Context, actor, orgID, id string, version int64) (current bool, err error) {
	return Write(ctx, c.db, func(ctx context.Context, tx Tx) (bool, error) {
		const held = ` WHERE id = $1 AND org_id = $2 AND credentials_version = $3`
		marked, err := Changed(ctx, tx, `UPDATE channels SET state = $4, updated_at = $5`+held+` AND state NOT IN ($4, $6) RETURNING id`,
			id, orgID, version, ChannelNeedsReauth, tx.Now(), ChannelPending)
		if err != nil {
			return false, err
		}
		if marked {
			queueChannelState(tx, actor, orgID, id, ChannelNeedsReauth)
			return true, nil
		}
		return Changed(ctx, tx, `SELECT id FROM channels`+held, id, orgID, version)
	})
}

// RefuseReported marks an active channel as in need of reauthorization because its platform has reported so, in epoch milliseconds at; 0
// means now. It ignores a report from before the channel's last change, because its owner may have connected it again since.
func (c ChannelCredentials) RefuseReported(ctx context.Context, actor, orgID, id string, at int64) error {
	return c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		if at <= 0 {
			at = tx.Now()
		}
		marked, err := Changed(ctx, tx, `UPDATE channels SET state = $3, updated_at = $4
			WHERE id = $1 AND org_id = $2 AND state = $5 AND updated_at <= $6 RETURNING id`,
			id, orgID, ChannelNeedsReauth, tx.Now(), ChannelActive, at)
		if err == nil && marked {
			queueChannelState(tx, actor, orgID, id, ChannelNeedsReauth)
		}
		return err
	})
}

// Reseal replaces the sealed bytes of a channel's credentials with the same credentials under another master key. It reports false if the
// credentials have changed or the channel is gone. The version stays, because a refresh that is under way has used its old token and must
// be able to store the new one.
func (c ChannelCredentials) Reseal(ctx context.Context, orgID, id string, was, sealed []byte) (replaced bool, err error) {
	return execChanged(ctx, c.db, `UPDATE channels SET credentials = $4
		WHERE id = $1 AND org_id = $2 AND credentials = $3 RETURNING id`, id, orgID, was, sealed)
}

// Each calls each with every channel that has credentials, of every organization, in order of id. A channel that is written during the call
// is read before or after the change. The first error of each ends it.
func (c ChannelCredentials) Each(ctx context.Context, each func(Channel) error) error {
	return eachRow(ctx, c.db, "list channels", scanChannel,
		channelColumns+` WHERE c.id > $1 AND c.credentials IS NOT NULL ORDER BY c.id LIMIT $2`,
		func(channel *Channel) []any { return []any{channel.ID} }, each)
}

// AnswerRules decide which messages of a channel the assistant handles, and whether a person sends the result. The zero value allows all
// messages.
type AnswerRules struct {
	// MaxAgeMinutes bounds the age of the customer's last message to which the assistant still replies. 0 means unlimited.
	MaxAgeMinutes int64
	// Drafts: the assistant writes drafts, and a person sends them.
	Drafts bool
	// OpeningHours are the assistant's hours, line by line in the form of package hours, in TimeZone. Empty means always.
	OpeningHours, TimeZone string
	// ClosedNotice is sent once in a conversation while the business is closed. Empty means that nothing is sent.
	ClosedNotice string
	// MediaNotice is sent to a customer who sends no text. Empty means that a person handles the message.
	MediaNotice string
}

// answerRules are the columns of channels that have their rules.
var answerRules = newTable[AnswerRules]("channels", nil)
