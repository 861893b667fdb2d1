package store

// AnswerRules decide which messages of a channel its assistant answers, and whether by itself. The zero value answers every message.
type AnswerRules struct {
	// MaxAgeMinutes is for how many minutes after the customer's last message the assistant still answers; 0 is for any time.
	MaxAgeMinutes int64
	// Drafts: the assistant proposes its answers, and a person sends them.
	Drafts bool
	// OpeningHours are when the assistant answers, line by line as package hours reads them, in TimeZone; "" is at any time.
	OpeningHours, TimeZone string
	// ClosedNotice is sent once in a conversation while the business is closed; "" is nothing.
	ClosedNotice string
	// MediaNotice answers a customer who sends no text; "" leaves them to people.
	MediaNotice string
}

const answerRulesColumns = `c.max_age_minutes, c.drafts, c.opening_hours, c.time_zone, c.closed_notice, c.media_notice`

func (r *AnswerRules) into() []any {
	return []any{&r.MaxAgeMinutes, &r.Drafts, &r.OpeningHours, &r.TimeZone, &r.ClosedNotice, &r.MediaNotice}
}

// queueAnswerRules writes the rules of a channel that the transaction has made or found.
func queueAnswerRules(tx Tx, channelID string, rules *AnswerRules) {
	tx.Queue(1, `UPDATE channels SET max_age_minutes = $2, drafts = $3, opening_hours = $4, time_zone = $5, closed_notice = $6,
		media_notice = $7 WHERE id = $1`,
		channelID, rules.MaxAgeMinutes, rules.Drafts, rules.OpeningHours, rules.TimeZone, rules.ClosedNotice, rules.MediaNotice)
}
