package store

// AnswerRules decide which messages of a channel its assistant answers. The zero value answers every message.
type AnswerRules struct {
	// MaxAgeMinutes is for how many minutes after the customer's last message the assistant still answers; 0 is for any time.
	MaxAgeMinutes int64
}

const answerRulesColumns = `c.max_age_minutes`

func (r *AnswerRules) into() []any { return []any{&r.MaxAgeMinutes} }

// queueAnswerRules writes the rules of a channel that the transaction has made or found.
func queueAnswerRules(tx Tx, channelID string, rules *AnswerRules) {
	tx.Queue(1, `UPDATE channels SET max_age_minutes = $2 WHERE id = $1`, channelID, rules.MaxAgeMinutes)
}
