package anthropic

import (
	"encoding/json"
	"net/url"

	"github.com/caddy-svc/caddy-svc/providers"
)

var _ providers.ListDialect = (*dialect)(nil)

// ListEndpoint implements [providers.ListDialect]: https://platform.claude.com/docs/en/api/models-list. One page has up to 1000 models.
func (d *dialect) ListEndpoint() *url.URL {
	address := d.endpoint.JoinPath("..", "models")
	query := address.Query()
	query.Set("limit", "1000")
	address.RawQuery = query.Encode()
	return address
}

// ReadList implements [providers.ListDialect]. The list names no day on which a model ends.
func (d *dialect) ReadList(body []byte) ([]providers.ListedModel, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil || list.Data == nil {
		return nil, providers.NotAnAnswer("the list of models has an unexpected form")
	}
	models := make([]providers.ListedModel, len(list.Data))
	for i, model := range list.Data {
		models[i].Name = model.ID
	}
	return models, nil
}
