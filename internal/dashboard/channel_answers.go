package dashboard

import "encoding/json"

// answerRules are the fields of a channel that say when its assistant answers.
type answerRules struct {
	MaxAgeMinutes json.Number `json:"maxAgeMinutes"` // "" is any age
}

// fields returns the inputs of the rules.
func (r *answerRules) fields() []field {
	return []field{{
		Name: "maxAgeMinutes", Kind: numberField, Label: "Oldest message that is still answered, in minutes", Value: r.MaxAgeMinutes.String(),
		Hint: "After an outage, older ones wait for you instead of being answered late. 1 to 10,080. Empty: any age.",
	}}
}

// addAnswerRules adds the input to a body for the API.
func (req *pageRequest) addAnswerRules(body object) {
	body["maxAgeMinutes"] = req.number("maxAgeMinutes")
}
