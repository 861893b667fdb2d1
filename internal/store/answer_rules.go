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

// answerRules are the columns of channels that have their rules.
var answerRules = newTable("channels", func(r *AnswerRules) []field {
	return []field{
		{"max_age_minutes", &r.MaxAgeMinutes},
		{"drafts", &r.Drafts},
		{"opening_hours", &r.OpeningHours},
		{"time_zone", &r.TimeZone},
		{"closed_notice", &r.ClosedNotice},
		{"media_notice", &r.MediaNotice},
	}
})

var updateAnswerRules = `UPDATE channels SET ` + assigned(answerRules.columns(), 1) + ` WHERE id = $1`
