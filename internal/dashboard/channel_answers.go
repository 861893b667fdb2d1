package dashboard

import "encoding/json"

// modeDraft is the API's name of the mode in which people send.
const modeDraft = "draft"

// answerRules are the fields of a channel that say when its assistant answers.
type answerRules struct {
	AnswerMode    string      `json:"answerMode"`
	MaxAgeMinutes json.Number `json:"maxAgeMinutes"` // "" is any age
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
	}}
}

// addAnswerRules adds the input to a body for the API.
func (req *pageRequest) addAnswerRules(body object) {
	if mode := req.text("answerMode"); mode != "" {
		body["answerMode"] = mode
	}
	body["maxAgeMinutes"] = req.number("maxAgeMinutes")
}
