package openapi

import (
	"cmp"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// The types of POST /v1/chat/completions exist for the description only: [v1.DecodeChat], [v1.ChunkWriter] and the writer of whole
// answers do without them, for speed. Tests compare both.

// chatBody is the body of POST /v1/chat/completions.
type chatBody struct {
	Model       string        `json:"model" doc:"An id of GET /v1/models"`
	Messages    []chatMessage `json:"messages" minItems:"1" maxItems:"10000" nullable:"false" doc:"The conversation, oldest first"`
	Temperature *float64      `json:"temperature,omitzero" minimum:"0" maximum:"2" doc:"The model's default when absent"`
	MaxTokens   *int64        `json:"max_tokens,omitzero" minimum:"1" maximum:"200000" doc:"Bound of the answer, and of the cost that is reserved for it. max_completion_tokens is taken in its place"` //nolint:lll // a struct tag can't be broken
	TopP        *float64      `json:"top_p,omitzero" minimum:"0" maximum:"1" doc:"Nucleus sampling"`
	Stop        []string      `json:"stop,omitzero" maxItems:"10000" doc:"Stop sequences. One string is taken for an array of one"`
	Stream      *bool         `json:"stream,omitzero" doc:"Answer with a stream of events"`
}

type chatMessage struct {
	Role    string `json:"role"    enum:"system,user,assistant,tool"`
	Content string `json:"content" maxLength:"200000" doc:"Text. Other kinds of content are not supported"`
}

// chatCompletion is the answer that isn't streamed.
type chatCompletion struct {
	ID      string       `json:"id"      pattern:"^chatcmpl-" doc:"Starts with chatcmpl-"`
	Object  string       `json:"object"  enum:"chat.completion"`
	Created int64        `json:"created" doc:"Unix time in seconds"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices" nullable:"false"`
	Usage   chatUsage    `json:"usage"`
	SVC     chatCharge   `json:"svc"`
}

type chatChoice struct {
	Index        int64      `json:"index"`
	Message      chatAnswer `json:"message"`
	FinishReason string     `json:"finish_reason" doc:"stop, length, …"`
}

type chatAnswer struct {
	Role    string `json:"role" enum:"assistant"`
	Content string `json:"content"`
}

type chatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// chatCharge is the member svc: the charge of the call.
type chatCharge struct {
	ChargedMicros string `json:"charged_micros" pattern:"^[0-9]+$" doc:"What the wallet paid, in micros"`
	BYOK          bool   `json:"byok"           doc:"The organization's own provider key was used"`
}

// chatChunk is an event of a stream.
type chatChunk struct {
	ID      string            `json:"id"      pattern:"^chatcmpl-" doc:"The same in all chunks"`
	Object  string            `json:"object"  enum:"chat.completion.chunk"`
	Created int64             `json:"created"`
	Model   string            `json:"model"`
	Choices []chatChunkChoice `json:"choices" nullable:"false" doc:"One; none in the last chunk"`
	Usage   *chatUsage        `json:"usage,omitzero" doc:"In the last chunk only"`
	SVC     *chatCharge       `json:"svc,omitzero"   doc:"In the last chunk only"`
}

type chatChunkChoice struct {
	Index        int64     `json:"index"`
	Delta        chatDelta `json:"delta"`
	FinishReason *string   `json:"finish_reason" doc:"null until the next-to-last chunk"`
}

type chatDelta struct {
	Role    *string `json:"role,omitzero"    enum:"assistant" doc:"In the first chunk only"`
	Content *string `json:"content,omitzero"`
}

// streamText describes the events of a stream, for which OpenAPI has no syntax.
const streamText = "`stream`: events of one line `data: ` and JSON (schema ChatChunk) and a blank line. The first has the role, " +
	"the next the text piece by piece, the next-to-last finish_reason, the last usage and svc; then `data: [DONE]`. A stream that " +
	"fails after its first byte ends with one event that has the error body instead."

func describeChat(d *describer) *huma.Operation {
	answer := d.jsonResponse("The answer, whole. "+streamText, reflect.TypeFor[chatCompletion]())
	answer.Headers = map[string]*huma.Param{replayedHeader: headerRef(replayedHeader)}
	// OpenAPI 3.1 has no word for the events of a stream; contentSchema of JSON Schema is the nearest.
	answer.Content["text/event-stream"] = &huma.MediaType{Schema: &huma.Schema{
		Type: huma.TypeString, Description: streamText,
		Extensions: map[string]any{"contentMediaType": "text/event-stream", "contentSchema": d.schema(reflect.TypeFor[chatChunk]())},
	}}
	return &huma.Operation{
		OperationID: "createChatCompletion",
		Parameters: []*huma.Param{
			{
				Name: "x-svc-use-byok", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
				Description: "true: use the organization's own provider key; nothing is deducted from credits.",
			},
			{
				Name: handlers.HeaderIdempotencyKey, In: "header",
				Schema: &huma.Schema{Type: huma.TypeString, MaxLength: new(handlers.MaxIdempotencyKey)},
				Description: "Makes it safe to send the request again after a network failure: the same key with the same content " +
					"gets the same answer and is charged once, within 24 hours. Visible ASCII.",
			},
		},
		RequestBody: jsonBody(d.schema(reflect.TypeFor[chatBody]())),
		Responses:   map[string]*huma.Response{"200": answer},
	}
}

func jsonBody(schema *huma.Schema) *huma.RequestBody {
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}

// modelListObject is the answer of GET /v1/models, as [v1.Models] renders it.
type modelListObject struct {
	Object string           `json:"object" enum:"list"`
	Data   []v1.ModelObject `json:"data"   nullable:"false"`
}

// acknowledgement is the answer to an accepted delivery, as receive writes it.
type acknowledgement struct {
	OK     bool  `json:"ok"`
	Queued int64 `json:"queued" minimum:"0" doc:"How many messages were put on the queue; 0 when the event matches no channel"`
}

// delivery describes a webhook. The body is the platform's own; docs/channels.md lists the members that are read.
func (d *describer) delivery(id, scheme string, parameters ...*huma.Param) *huma.Operation {
	anything := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: "The event as the platform sends it"}
	return &huma.Operation{
		OperationID: id, Parameters: parameters, RequestBody: jsonBody(anything), Security: []map[string][]string{{scheme: {}}},
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

const (
	docsPath   = "/docs"
	jsonSuffix = "/openapi.json"
	yamlSuffix = "/openapi.yaml"
)

// ownRoutes are the routes of the description itself, which exist only where `/docs` is mounted, and the addresses of the widget that
// browsers load. The operations that these call are registered by [widget.Register].
func ownRoutes() []handlers.Route {
	return []handlers.Route{
		{Method: http.MethodGet, Path: docsPath, Public: true, Summary: "This description: a page for browsers, otherwise JSON"},
		{Method: http.MethodGet, Path: docsPath + jsonSuffix, Public: true, Summary: "This description as JSON"},
		{Method: http.MethodGet, Path: docsPath + yamlSuffix, Public: true, Summary: "This description as YAML"},
		{Method: http.MethodGet, Path: "/widget/{channelId}", Public: true, Summary: "The page in the widget's frame"},
		{Method: http.MethodGet, Path: "/widget/{channelId}/widget.js", Public: true, Summary: "The script that a site embeds"},
	}
}

func descriptionResponse() *huma.Response {
	anything := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
	return &huma.Response{
		Description: "OpenAPI 3.1",
		Content:     map[string]*huma.MediaType{"application/json": {Schema: anything}},
	}
}

// visitorOperations are the widget's operations that need a visitor's token.
var visitorOperations = map[string][]map[string][]string{
	"writeAsVisitor": {{schemeVisitor: {}}},
	"listVisit":      {{schemeVisitor: {}}},
}
