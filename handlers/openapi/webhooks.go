package openapi

import (
	"cmp"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// acknowledgement is the answer to an accepted delivery, as receive writes it.
type acknowledgement struct {
	OK     bool  `json:"ok"`
	Queued int64 `json:"queued" minimum:"0" doc:"How many messages were put on the queue; 0 when the event matches no channel"`
}

// delivery describes a webhook. The body is the platform's own; docs/channels.md lists the members that are read.
func (d *describer) delivery(id, scheme string, parameters ...*huma.Param) *huma.Operation {
	anything := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: "The event as the platform sends it"}
	return &huma.Operation{
		OperationID: id,
		Parameters:  parameters,
		RequestBody: &huma.RequestBody{
			Required: true,
			Content:  map[string]*huma.MediaType{"application/json": {Schema: anything}},
		},
		Security: []map[string][]string{{scheme: {}}},
		Responses: map[string]*huma.Response{
			"200": d.jsonResponse("Received, not answered yet", reflect.TypeFor[acknowledgement]()),
		},
	}
}

// webhookOperations describe [webhook.Routes].
func webhookOperations(catalog *messaging.Catalog) map[string]handWritten {
	operations := map[string]handWritten{}
	for _, p := range catalog.Platforms() {
		path := messaging.WebhookPath(p)
		var parameters []*huma.Param
		if p.ChannelWebhooks {
			path += "{channelId}"
			parameters = append(parameters, pathParameter("channelId", "The channel"))
		}
		operations[http.MethodPost+" "+path] = func(d *describer) *huma.Operation {
			return d.delivery("receive"+cmp.Or(p.OperationName, upperCamel(p.Name)), webhookScheme(p), parameters...)
		}
		if p.Handshake != nil {
			operations[http.MethodGet+" "+path] = func(*describer) *huma.Operation { return describeHandshake(p) }
		}
	}
	return operations
}

// upperCamel returns a platform's name without underscores, each part with a capital: MarketA for market_a.
func upperCamel(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(part[:min(1, len(part))]) + part[min(1, len(part)):])
	}
	return b.String()
}

func describeHandshake(p *platforms.Description) *huma.Operation {
	operation := got("verify"+cmp.Or(p.OperationName, upperCamel(p.Name)), textResponse("The challenge as it came", "text/plain"))
	for _, q := range p.Handshake.Query {
		operation.Parameters = append(operation.Parameters, &huma.Param{
			Name: q.Name, In: "query", Required: true, Description: q.Help, Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	return operation
}
