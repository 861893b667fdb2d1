package openai

import (
	"bytes"
	"encoding/json"
	"net/url"
	"time"

	"github.com/caddy-svc/caddy-svc/providers"
)

var _ providers.ListDialect = (*dialect)(nil)

// ListEndpoint implements [providers.ListDialect].
func (d *dialect) ListEndpoint() *url.URL { return d.endpoint.JoinPath("..", "..", "models") }

// listed is a model in a list. OpenAI's shutdown_date is a day, Mistral's deprecation a time; both may be null.
type listed struct {
	ID           string          `json:"id"`
	Aliases      []string        `json:"aliases"`
	ShutdownDate json.RawMessage `json:"shutdown_date"`
	Deprecation  json.RawMessage `json:"deprecation"`
}

// ReadList implements [providers.ListDialect]. Together's list is an array instead of an object.
func (d *dialect) ReadList(body []byte) ([]providers.ListedModel, error) {
	var list struct {
		Data []listed `json:"data"`
	}
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		err = json.Unmarshal(body, &list.Data)
	} else {
		err = json.Unmarshal(body, &list)
	}
	if err != nil || list.Data == nil {
		return nil, providers.NotAnAnswer("the list of models has an unexpected form")
	}
	models := make([]providers.ListedModel, 0, len(list.Data))
	for _, model := range list.Data {
		end := readDay(model.ShutdownDate)
		if deprecation := readDay(model.Deprecation); end.IsZero() || !deprecation.IsZero() && deprecation.Before(end) {
			end = deprecation
		}
		models = append(models, providers.ListedModel{Name: model.ID, Aliases: model.Aliases, Shutdown: end})
	}
	return models, nil
}

// readDay returns the time of a JSON string with a day or a time, and the zero time for anything else.
func readDay(value json.RawMessage) time.Time {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return time.Time{}
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339, "2006-01-02T15:04:05"} {
		if day, err := time.Parse(layout, text); err == nil {
			return day.UTC()
		}
	}
	return time.Time{}
}
