package api

import (
	"database/sql"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/widget"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// WidgetChange is the part of a channel's body that only widgets have: what is absent stays as it is, or has its default
// in a new channel. It is exported because the framework passes over what isn't.
type WidgetChange struct {
	Origins           *[]string         `json:"origins,omitempty" maxItems:"20" doc:"widget: the sites that may show it, each scheme://host[:port] or https://*.example.com; none: nobody yet"`                                                     //nolint:lll // a struct tag can't be broken
	DailySpendMicros  clearable[string] `json:"dailySpendMicros,omitzero" pattern:"^[0-9]{1,18}$" patternDescription:"a whole number of micros" doc:"widget: what the answers of one day (UTC) may cost; null, the default: a tenth of the wallet"` //nolint:lll // as above
	RequestsPerMinute *int64            `json:"requestsPerMinute,omitempty" minimum:"1" maximum:"6000" doc:"widget: how many messages a minute it takes from all visitors together; 30 unless it is said"`                                          //nolint:lll // as above
}

// of is what a channel of the type has after the change; was is what it had, nil for a new one or one without. It is nil
// when nothing changes, and for other types, which must not be given any of it.
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

// given is the first member that the body has, "" for none.
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

func (o *ChannelObject) showWidget(settings *store.WidgetSettings) {
	origins := append([]string{}, settings.Origins...)
	o.Origins, o.RequestsPerMinute = &origins, &settings.RequestsPerMinute
	if settings.DailySpendMicros.Valid {
		micros := strconv.FormatInt(settings.DailySpendMicros.Int64, 10)
		o.DailySpendMicros = &micros
	}
}

func noCredentials() *handlers.Error {
	return handlers.InvalidRequest("credentials", "credentials are of no use to a channel of type widget.")
}
