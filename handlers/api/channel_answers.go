package api

import (
	"errors"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/hours"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The modes of a channel's answers.
const (
	answersAutomatic = "automatic"
	answersDraft     = "draft"
)

// AnswerRulesChange is the part of a channel's body that says when its assistant answers: what is absent stays as it is, or has its
// default in a new channel. It is exported because the framework passes over what isn't.
type AnswerRulesChange struct {
	AnswerMode    *string           `json:"answerMode,omitempty" enum:"automatic,draft" doc:"automatic, the default: the agent answers by itself; draft: it proposes, and a person sends"`                                                                                                              //nolint:lll // a struct tag can't be broken
	MaxAgeMinutes clearable[int64]  `json:"maxAgeMinutes,omitzero" minimum:"1" maximum:"10080" doc:"For how long after the customer's last message the agent still answers; later the conversation has the attention message_too_old. null, the default: at any time"`                                  //nolint:lll // as above
	OpeningHours  *[]string         `json:"openingHours,omitempty" maxItems:"50" doc:"When the agent answers, each line days and a time, like mon-fri 08:00-17:30; what customers write at other times is answered when the business opens. [], the default: at any time"`                              //nolint:lll // as above
	TimeZone      clearable[string] `json:"timeZone,omitzero" minLength:"1" maxLength:"64" doc:"Of openingHours, by its IANA name, like Asia/Ho_Chi_Minh; required with them"`                                                                                                                          //nolint:lll // as above
	ClosedNotice  clearable[string] `json:"closedNotice,omitzero" minLength:"1" maxLength:"1000" doc:"What a customer is sent who writes while the business is closed, once until it opens; it costs nothing. null, the default: nothing. Like a message by hand it has no Markdown"`                   //nolint:lll // as above
	MediaNotice   clearable[string] `json:"mediaNotice,omitzero" minLength:"1" maxLength:"1000" doc:"What a customer is sent who sends a picture, a voice or a file without a text, at most once in 15 minutes; it costs nothing. null, the default: people are told with the attention media_message"` //nolint:lll // as above
}

// of returns the rules after the change; nil when nothing changes.
func (c *AnswerRulesChange) of(rules store.AnswerRules) (*store.AnswerRules, error) {
	was := rules
	if c.AnswerMode != nil {
		rules.Drafts = *c.AnswerMode == answersDraft
	}
	if c.MaxAgeMinutes.given {
		rules.MaxAgeMinutes = 0
		set(&rules.MaxAgeMinutes, c.MaxAgeMinutes.value)
	}
	if c.OpeningHours != nil {
		rules.OpeningHours = strings.Join(*c.OpeningHours, "\n")
	}
	if c.TimeZone.given {
		rules.TimeZone = ""
		set(&rules.TimeZone, c.TimeZone.value)
	}
	if err := setNotice(&rules.ClosedNotice, "closedNotice", &c.ClosedNotice); err != nil {
		return nil, err
	}
	if err := setNotice(&rules.MediaNotice, "mediaNotice", &c.MediaNotice); err != nil {
		return nil, err
	}
	if rules == was {
		return nil, nil //nolint:nilnil // nothing changes
	}
	return &rules, c.checkHours(&rules)
}

// setNotice changes a text for customers, if it is given.
func setNotice(notice *string, field string, given *clearable[string]) error {
	if !given.given {
		return nil
	}
	*notice = ""
	set(notice, given.value)
	if *notice != "" && strings.TrimSpace(*notice) == "" {
		return handlers.InvalidRequest(field, "%s is blank.", field)
	}
	return nil
}

// checkHours refuses opening hours that can't be read.
func (c *AnswerRulesChange) checkHours(rules *store.AnswerRules) error {
	var lines []string
	switch {
	case c.OpeningHours != nil: // one of them may hold a line break
		lines = *c.OpeningHours
	case rules.OpeningHours != "":
		lines = strings.Split(rules.OpeningHours, "\n")
	}
	if len(lines) == 0 && rules.TimeZone == "" {
		return nil
	}
	_, err := hours.Parse(rules.TimeZone, lines)
	fault, ok := errors.AsType[*hours.LineError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		field := "openingHours[" + strconv.Itoa(fault.Line) + "]"
		return handlers.InvalidRequest(field, "%s %s.", field, fault.Problem)
	case rules.TimeZone == "":
		return handlers.InvalidRequest("timeZone", "timeZone is required with openingHours, like Asia/Ho_Chi_Minh.")
	default:
		return handlers.InvalidRequest("timeZone", "There is no time zone with this name. Name it like Asia/Ho_Chi_Minh.")
	}
}

// AnswerRulesObject shows a channel's rules. It is exported for the framework, see [AnswerRulesChange].
type AnswerRulesObject struct {
	AnswerMode    string   `json:"answerMode"    enum:"automatic,draft" doc:"automatic: the agent answers; draft: it proposes, a person sends"`
	MaxAgeMinutes *int64   `json:"maxAgeMinutes" doc:"For how long after the customer's last message the agent still answers; null: at any time"`
	OpeningHours  []string `json:"openingHours"  nullable:"false" doc:"When the agent answers; []: at any time"`
	TimeZone      *string  `json:"timeZone"      doc:"Of openingHours"`
	ClosedNotice  *string  `json:"closedNotice"  doc:"What a customer is sent who writes while the business is closed; null: nothing"`
	MediaNotice   *string  `json:"mediaNotice"   doc:"What a customer is sent who sends something without a text; null: people are told"`
}

func showAnswerRules(rules *store.AnswerRules) AnswerRulesObject {
	object := AnswerRulesObject{
		AnswerMode: answersAutomatic, OpeningHours: []string{},
		TimeZone: endpoint.TextOrNull(rules.TimeZone), ClosedNotice: endpoint.TextOrNull(rules.ClosedNotice),
		MediaNotice: endpoint.TextOrNull(rules.MediaNotice),
	}
	if rules.Drafts {
		object.AnswerMode = answersDraft
	}
	if rules.MaxAgeMinutes > 0 {
		object.MaxAgeMinutes = &rules.MaxAgeMinutes
	}
	if rules.OpeningHours != "" {
		object.OpeningHours = strings.Split(rules.OpeningHours, "\n")
	}
	return object
}
