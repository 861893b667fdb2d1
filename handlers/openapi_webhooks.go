package handlers

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// acknowledgement is the answer to an accepted delivery (spec §2.8), as receive writes it.
type acknowledgement struct {
	OK     bool  `json:"ok"`
	Queued int64 `json:"queued" minimum:"0" doc:"How many messages were put on the queue; 0 when the event matches no channel"`
}

// delivery describes a webhook. The body is the platform's own; what is read of it is in docs/channels.md.
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

func describeBotWebhook(d *describer) *huma.Operation {
	return d.delivery("receiveBot", schemeBot, pathParameter("channelId", "The channel"))
}

func describeSocialWebhook(d *describer) *huma.Operation {
	return d.delivery("receiveSocial", schemeSocial)
}

func describeLocalChatWebhook(d *describer) *huma.Operation {
	return d.delivery("receiveLocalChat", schemeLocalChat)
}

func describeMarketAWebhook(d *describer) *huma.Operation {
	return d.delivery("receiveMarketA", schemeMarketA)
}

func describeMarketBWebhook(d *describer) *huma.Operation {
	return d.delivery("receiveMarketB", schemeMarketB)
}

func describeHandshake(*describer) *huma.Operation {
	query := func(name, text string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Required: true, Description: text, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return &huma.Operation{
		OperationID: "verifySocial",
		Parameters: []*huma.Param{
			query("hub.mode", "subscribe"),
			query("hub.verify_token", "The token that was configured for the platform"),
			query("hub.challenge", "What the answer repeats"),
		},
		Responses: map[string]*huma.Response{"200": textResponse("The challenge as it came", "text/plain")},
	}
}
