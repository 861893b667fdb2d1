package api

import "github.com/caddy-svc/caddy-svc/internal/store"

// The modes of a channel's answers.
const (
	answersAutomatic = "automatic"
	answersDraft     = "draft"
)

// AnswerRulesChange is the part of a channel's body that says when its assistant answers: what is absent stays as it is, or has its
// default in a new channel. It is exported because the framework passes over what isn't.
type AnswerRulesChange struct {
	AnswerMode    *string          `json:"answerMode,omitempty" enum:"automatic,draft" doc:"automatic, the default: the agent answers by itself; draft: it proposes, and a person sends"`                                                                             //nolint:lll // a struct tag can't be broken
	MaxAgeMinutes clearable[int64] `json:"maxAgeMinutes,omitzero" minimum:"1" maximum:"10080" doc:"For how long after the customer's last message the agent still answers; later the conversation has the attention message_too_old. null, the default: at any time"` //nolint:lll // as above
}

// of returns the rules after the change; nil when nothing changes.
func (c *AnswerRulesChange) of(rules store.AnswerRules) *store.AnswerRules {
	if c.AnswerMode == nil && !c.MaxAgeMinutes.given {
		return nil
	}
	if c.AnswerMode != nil {
		rules.Drafts = *c.AnswerMode == answersDraft
	}
	if c.MaxAgeMinutes.given {
		rules.MaxAgeMinutes = 0
		set(&rules.MaxAgeMinutes, c.MaxAgeMinutes.value)
	}
	return &rules
}

// AnswerRulesObject shows a channel's rules. It is exported for the framework, see [AnswerRulesChange].
type AnswerRulesObject struct {
	AnswerMode    string `json:"answerMode"    enum:"automatic,draft" doc:"automatic: the agent answers by itself; draft: it proposes, people send"`
	MaxAgeMinutes *int64 `json:"maxAgeMinutes" doc:"For how long after the customer's last message the agent still answers; null: at any time"`
}

func showAnswerRules(rules *store.AnswerRules) (object AnswerRulesObject) {
	object.AnswerMode = answersAutomatic
	if rules.Drafts {
		object.AnswerMode = answersDraft
	}
	if rules.MaxAgeMinutes > 0 {
		object.MaxAgeMinutes = &rules.MaxAgeMinutes
	}
	return object
}
