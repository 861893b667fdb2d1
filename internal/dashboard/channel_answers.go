package dashboard

import (
	"encoding/json"
	"strings"
)

// modeDraft is the API's name of the mode in which people send.
const modeDraft = "draft"

// answerRules are the fields of a channel that say when its assistant answers.
type answerRules struct {
	AnswerMode    string      `json:"answerMode"`
	MaxAgeMinutes json.Number `json:"maxAgeMinutes"` // "" is any age
	OpeningHours  []string    `json:"openingHours"`
	TimeZone      string      `json:"timeZone"`
	ClosedNotice  string      `json:"closedNotice"`
	MediaNotice   string      `json:"mediaNotice"`
}

// fields returns the inputs of the rules.
func (r *answerRules) fields() []field {
	return []field{{
		Name: "answerMode", Kind: selectField, Label: "Answers are sent", Options: []option{
			{Value: "automatic", Label: "by the assistant", Selected: r.AnswerMode != modeDraft},
			{Value: modeDraft, Label: "by one of you, as the assistant proposes them", Selected: r.AnswerMode == modeDraft},
		},
		Hint: "Some platforms forbid answers without a person. What waits for you already stays with you.",
	}, {
		Name: "maxAgeMinutes", Kind: numberField, Label: "Oldest message that is still answered, in minutes", Value: r.MaxAgeMinutes.String(),
		Hint: "After an outage, older ones wait for you instead of being answered late. 1 to 10,080. Empty: any age.",
	}, {
		Name: "openingHours", Kind: areaField, Label: "Opening hours", Value: strings.Join(r.OpeningHours, "\n"), Rows: 3,
		Hint: "One line for days and a time: mon-fri 08:00-17:30. What customers write at other times is answered when you open. " +
			"Empty: answers at any time.",
	}, {
		Name: "timeZone", Kind: textField, Label: "Time zone of the opening hours", Value: r.TimeZone, MaxLength: 64,
		Hint: "Such as Asia/Ho_Chi_Minh or Europe/Berlin.",
	}, {
		Name: "closedNotice", Kind: areaField, Label: "Answer while you are closed", Value: r.ClosedNotice, MaxLength: 1000, Rows: 3,
		Hint: "Sent once to each customer who writes while you are closed, and costs nothing. Empty: nothing is sent.",
	}, {
		Name: "mediaNotice", Kind: areaField, Label: "Answer to pictures, voices and files without a text", Value: r.MediaNotice,
		MaxLength: 1000, Rows: 3,
		Hint: "Sent at most once in 15 minutes to each customer, and costs nothing. Empty: such messages wait for one of you.",
	}}
}

// addAnswerRules adds the input to a body for the API.
func (req *pageRequest) addAnswerRules(body object) {
	if mode := req.text("answerMode"); mode != "" {
		body["answerMode"] = mode
	}
	lines := []string{}
	for line := range strings.Lines(req.text("openingHours")) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	body["openingHours"] = lines
	body["timeZone"] = orNull(strings.TrimSpace(req.text("timeZone")))
	body["closedNotice"] = orNull(strings.TrimSpace(req.text("closedNotice")))
	body["mediaNotice"] = orNull(strings.TrimSpace(req.text("mediaNotice")))
	body["maxAgeMinutes"] = req.number("maxAgeMinutes")
}
