package api

import (
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/widget"
	"github.com/caddy-svc/caddy-svc/internal/hours"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The modes of a channel's answers.
const (
	answersAutomatic = "automatic"
	answersDraft     = "draft"
)

// AnswerRulesChange is the part of a channel's body that says when its assistant answers. An absent member changes nothing, or has
// its default in a new channel. The type is exported because huma skips unexported ones.
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
	c.MaxAgeMinutes.set(&rules.MaxAgeMinutes)
	if c.OpeningHours != nil {
		rules.OpeningHours = strings.Join(*c.OpeningHours, "\n")
	}
	c.TimeZone.set(&rules.TimeZone)
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
	given.set(notice)
	if given.given && *notice != "" && strings.TrimSpace(*notice) == "" {
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
		return noSuchZone()
	}
}

// AnswerRulesObject shows a channel's rules. It is exported for huma, see [AnswerRulesChange].
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
		AnswerMode: answersAutomatic, MaxAgeMinutes: endpoint.OrNull(rules.MaxAgeMinutes), OpeningHours: []string{},
		TimeZone: endpoint.OrNull(rules.TimeZone), ClosedNotice: endpoint.OrNull(rules.ClosedNotice),
		MediaNotice: endpoint.OrNull(rules.MediaNotice),
	}
	if rules.Drafts {
		object.AnswerMode = answersDraft
	}
	if rules.OpeningHours != "" {
		object.OpeningHours = strings.Split(rules.OpeningHours, "\n")
	}
	return object
}

// WidgetChange is the part of a channel's body that only widgets have. An absent member changes nothing, or has its
// default in a new channel. The type is exported because huma skips unexported ones.
type WidgetChange struct {
	Origins           *[]string         `json:"origins,omitempty" maxItems:"20" doc:"widget: the sites that may show it, each scheme://host[:port] or https://*.example.com; none: nobody yet"`                                                     //nolint:lll // a struct tag can't be broken
	DailySpendMicros  clearable[string] `json:"dailySpendMicros,omitzero" pattern:"^[0-9]{1,18}$" patternDescription:"a whole number of micros" doc:"widget: what the answers of one day (UTC) may cost; null, the default: a tenth of the wallet"` //nolint:lll // as above
	RequestsPerMinute *int64            `json:"requestsPerMinute,omitempty" minimum:"1" maximum:"6000" doc:"widget: how many messages a minute it takes from all visitors together; 30 unless it is said"`                                          //nolint:lll // as above
}

// of returns the widget settings of a channel of the type after the change. was are its settings before, nil if it had
// none. of returns nil if nothing changes, and for other types, which must not have any of these members.
func (c *WidgetChange) of(kind string, was *store.WidgetSettings) (*store.WidgetSettings, error) {
	field := c.given()
	if kind != string(messaging.Widget) {
		if field != "" {
			return nil, handlers.InvalidRequest(field, "%s is of no use to a channel of type %s.", field, kind)
		}
		return nil, nil //nolint:nilnil // it has none
	}
	if was != nil && field == "" {
		return nil, nil //nolint:nilnil // nothing changes
	}
	settings := store.WidgetSettings{RequestsPerMinute: store.DefaultWidgetRequests}
	if was != nil {
		settings = *was
	}
	set(&settings.RequestsPerMinute, c.RequestsPerMinute)
	if c.DailySpendMicros.given {
		settings.DailySpendMicros = sql.NullInt64{}
		if text := c.DailySpendMicros.value; text != nil {
			micros, err := strconv.ParseInt(*text, 10, 64)
			if err != nil {
				return nil, handlers.InvalidRequest("dailySpendMicros", "dailySpendMicros must be a whole number of micros.")
			}
			settings.DailySpendMicros = sql.NullInt64{Int64: micros, Valid: true}
		}
	}
	if c.Origins != nil {
		origins, err := widget.CleanOrigins(*c.Origins)
		if err != nil {
			return nil, err
		}
		settings.Origins = origins
	}
	return &settings, nil
}

// given returns the first member that the body has, or an empty text.
func (c *WidgetChange) given() string {
	switch {
	case c.Origins != nil:
		return "origins"
	case c.DailySpendMicros.given:
		return "dailySpendMicros"
	case c.RequestsPerMinute != nil:
		return "requestsPerMinute"
	default:
		return ""
	}
}

func noCredentials() *handlers.Error {
	return handlers.InvalidRequest("credentials", "credentials are of no use to a channel of type widget.")
}
