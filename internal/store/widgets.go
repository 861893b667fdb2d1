package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// DefaultWidgetRequests is the default of [WidgetSettings].RequestsPerMinute.
const DefaultWidgetRequests = 30

// spendTime bounds the sum of a channel's day, because a visitor waits for it.
const spendTime = 2 * time.Second

var errSpendSlow = errors.New("store: adding up a channel's calls took longer than 2 s")

// WidgetSettings are the settings of a channel of type widget.
type WidgetSettings struct {
	// Origins are the sites that may show it: scheme://host[:port], or https://*.example.com.
	Origins []string
	// DailySpendMicros bounds the charges of one UTC day. Not valid means a share of the wallet.
	DailySpendMicros sql.NullInt64
	// RequestsPerMinute bounds the messages a minute of all visitors together. It is more than 0.
	RequestsPerMinute int64
}

// storedWidget is a row of widget_settings as a LEFT JOIN reads it: empty for a channel that is no widget.
type storedWidget struct {
	OrgID, ChannelID, Origins           string `db:"null"`
	DailySpendMicros, RequestsPerMinute sql.NullInt64
}

var (
	widgetSettings    = newTable[storedWidget]("widget_settings w", nil)
	putWidgetSettings = widgetSettings.upserts("org_id", "channel_id")
)

// settings returns the settings, nil if the channel has none.
func (s *storedWidget) settings() (*WidgetSettings, error) {
	if s.ChannelID == "" {
		return nil, nil //nolint:nilnil // most channels have none
	}
	settings := &WidgetSettings{DailySpendMicros: s.DailySpendMicros, RequestsPerMinute: s.RequestsPerMinute.Int64}
	return settings, Wrap("read the origins of a widget", json.Unmarshal([]byte(s.Origins), &settings.Origins))
}

// queueWidgetSettings writes the settings of a channel that the transaction has made or found.
func queueWidgetSettings(tx Tx, orgID, channelID string, settings *WidgetSettings) {
	origins, _ := json.Marshal(append([]string{}, settings.Origins...)) //nolint:errchkjson // texts only
	tx.Queue(1, putWidgetSettings, widgetSettings.values(&storedWidget{
		OrgID: orgID, ChannelID: channelID, Origins: string(origins), DailySpendMicros: settings.DailySpendMicros,
		RequestsPerMinute: sql.NullInt64{Int64: settings.RequestsPerMinute, Valid: true},
	})...)
}

// Widget has the columns of a channel of type widget that a visitor's request needs.
type Widget struct {
	ChannelID, OrgID string
	Settings         WidgetSettings
}

// Widgets reads the settings and the spending of widgets.
type Widgets struct{ db *DB }

// ByID reads a channel of type widget, of any state, or returns [ErrNotFound].
func (w Widgets) ByID(ctx context.Context, channelID string) (Widget, error) {
	if !driver.IsText(channelID) {
		return Widget{}, ErrNotFound
	}
	return ReadRow(ctx, w.db, "read a widget", func(row Row) (widget Widget, err error) {
		stored, err := widgetSettings.scan(row)
		if err != nil {
			return widget, err
		}
		settings, err := stored.settings()
		if err == nil {
			widget = Widget{ChannelID: stored.ChannelID, OrgID: stored.OrgID, Settings: *settings}
		}
		return widget, err
	}, widgetSettings.selected+` JOIN channels c ON w.org_id = c.org_id AND w.channel_id = c.id WHERE c.id = $1 AND c.type = 'widget'`,
		channelID)
}

// ChannelDay is the spending of a channel since a moment, in micros.
type ChannelDay struct {
	// SpentMicros is the sum of the charges, LargestMicros the largest one.
	SpentMicros, LargestMicros int64
	// Asking is the number of turns that are running, with a charge that isn't known yet. Turns of deleted conversations aren't among them.
	Asking int64
	// Calls is how many turns' last calls have ended, free ones among them.
	Calls int64
}

// dayTurns are the turns of a widget ($1) of an organization ($3) that began at a moment ($2) or later; deleted marks the turns of deleted
// conversations.
const dayTurns = `(SELECT id, call_id, state = 'awaiting' AS asking, FALSE AS deleted FROM turns
		WHERE widget_id = $1 AND created_at >= $2 AND org_id = $3
	UNION ALL SELECT id, call_id, FALSE, TRUE FROM deleted_turns WHERE channel_id = $1 AND created_at >= $2 AND org_id = $3)`

// Spend sums up the turns of an organization's channel that began at since or later. It returns an error after 2 s.
func (w Widgets) Spend(ctx context.Context, orgID, channelID string, since time.Time) (ChannelDay, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, spendTime, errSpendSlow)
	defer cancel()
	day, err := ReadRow(ctx, w.db, "add up a channel's calls", ScanFields[ChannelDay](),
		`SELECT CAST(COALESCE(sum(c.charged_micros), 0) AS BIGINT), COALESCE(max(c.charged_micros), 0),
			count(DISTINCT CASE WHEN t.asking THEN t.id END), count(c.id)
		FROM `+dayTurns+` AS t LEFT JOIN calls c ON c.id = t.call_id AND c.org_id = $3`,
		channelID, since.UnixMilli(), orgID)
	if err != nil && errors.Is(context.Cause(ctx), errSpendSlow) {
		err = fmt.Errorf("%w: %w", errSpendSlow, err)
	}
	return day, err
}

// Held sums up the holds on the organization's live wallet for the running calls of the turns of [Widgets.Spend], in micros.
func (w Widgets) Held(ctx context.Context, orgID, channelID string, since time.Time) (micros int64, err error) {
	return ReadRow(ctx, w.db, "add up what is held for a channel", ScanValue[int64],
		`SELECT CAST(COALESCE(sum(h.amount_micros), 0) AS BIGINT)
			FROM `+dayTurns+` AS t JOIN holds h ON h.org_id = $3 AND h.env = 'live' AND h.id = t.call_id WHERE t.asking OR t.deleted`,
		channelID, since.UnixMilli(), orgID)
}

// SelectSeqBefore reads the largest number that a charge or posting of a wallet ($1, $2) from before a moment ($3) has, or 0. Numbers have
// no gaps and their times don't fall, so it tries the bits of the number from the top: no index by time is needed, however long the
// history is.
const SelectSeqBefore = `WITH RECURSIVE search(bit, seq) AS (
		SELECT CAST(1099511627776 AS BIGINT), CAST(0 AS BIGINT)
		UNION ALL
		SELECT bit / 2, CASE WHEN coalesce(
				(SELECT ended_at FROM calls WHERE org_id = $1 AND env = $2 AND wallet_seq = seq + bit),
				(SELECT created_at FROM ledger_tx WHERE org_id = $1 AND env = $2 AND wallet_seq = seq + bit)) < $3
			THEN seq + bit ELSE seq END
		FROM search WHERE bit > 0)
	SELECT seq FROM search WHERE bit = 0`

// WalletSince reads the balance of an organization's live wallet now and at a moment, in micros. For a wallet that is younger, then is the
// balance after its first entry. It is 0 if the wallet has no entries.
func (w Widgets) WalletSince(ctx context.Context, orgID string, since time.Time) (now, then int64, err error) {
	type balances struct{ Now, Then int64 }
	read, err := ReadRow(ctx, w.db, "read the balances of a day", ScanFields[balances](),
		`SELECT COALESCE((SELECT balance_micros FROM wallets WHERE org_id = $1 AND env = $2), 0), COALESCE(
			(SELECT balance_micros FROM calls WHERE org_id = $1 AND env = $2 AND wallet_seq = number),
			(SELECT balance_micros FROM ledger_tx WHERE org_id = $1 AND env = $2 AND wallet_seq = number), 0)
		FROM (SELECT CASE WHEN seq > 0 THEN seq ELSE 1 END AS number FROM (`+SelectSeqBefore+`) AS search) AS day`,
		orgID, string(Live), since.UnixMilli())
	return read.Now, read.Then, err
}
