package gemini_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/gemini"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	response := func(text, finish string, usage providers.Usage) string {
		if finish != "" {
			finish = `,"finishReason":` + map[string]string{"stop": `"STOP"`, "length": `"MAX_TOKENS"`, "content_filter": `"SAFETY"`}[finish]
		}
		return fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":%s}],"role":"model"}%s,"index":0}],`+
			`"usageMetadata":{"promptTokenCount":%d,"cachedContentTokenCount":%d,"candidatesTokenCount":%d,"thoughtsTokenCount":%d}}`,
			providers.Quote(text), finish, usage.PromptTokens, usage.CachedPromptTokens, usage.CompletionTokens-usage.ReasoningTokens, usage.ReasoningTokens)
	}
	providertest.Run(t, providertest.Suite{Driver: gemini.Driver{}, Vendor: &providertest.Vendor{
		Read: readRequest,
		Adjust: func(req *providers.Request) {
			for i := range req.Messages {
				if req.Messages[i].Role == "tool" { // Gemini answers calls of functions only
					req.Messages[i].Role = "user"
				}
			}
		},
		Unwritable: []func(*providers.Request){func(req *providers.Request) { req.Messages[0].Content = providers.Quote("") }},
		Thinking:   []string{"minimal", "0"},
		UsageParts: providers.Usage{CachedPromptTokens: 1, ReasoningTokens: 1},
		Report:     func(usage providers.Usage) string { return "data: " + response("", "", usage) + "\r\n\r\n" },
		Answer:     response,
		Stream: func(pieces []string, finish string, usage providers.Usage) (parts []string) {
			for _, piece := range pieces {
				parts = append(parts, "data: "+response(piece, "", usage)+"\r\n\r\n")
			}
			return append(parts, "data: "+response("", finish, usage)+"\r\n\r\n")
		},
		Error: func(message string) string {
			return fmt.Sprintf(`{"error":{"code":400,"message":%q,"status":"INVALID_ARGUMENT"}}`, message)
		},
	}})
}

func readRequest(r *http.Request, body []byte) (req providers.Request, err error) {
	type turn struct {
		Role  string
		Parts []struct{ Text json.RawMessage }
	}
	var asked struct {
		SystemInstruction turn
		Contents          []turn
		GenerationConfig  struct {
			MaxOutputTokens   int64
			Temperature, TopP *float64
			StopSequences     []string
			ThinkingConfig    struct {
				ThinkingLevel  string
				ThinkingBudget *int
			}
		}
	}
	known := json.NewDecoder(bytes.NewReader(body))
	known.DisallowUnknownFields()
	if err = known.Decode(&asked); err != nil {
		return req, err
	}
	config := asked.GenerationConfig
	req = providers.Request{
		MaxTokens: config.MaxOutputTokens, Temperature: config.Temperature, TopP: config.TopP, Stop: config.StopSequences,
		Thinking: config.ThinkingConfig.ThinkingLevel,
	}
	if budget := config.ThinkingConfig.ThinkingBudget; budget != nil {
		req.Thinking += strconv.Itoa(*budget)
	}
	asked.SystemInstruction.Role = "system"
	for _, turn := range append([]turn{asked.SystemInstruction}, asked.Contents...) {
		for _, part := range turn.Parts {
			role := strings.Replace(turn.Role, "model", "assistant", 1)
			req.Messages = append(req.Messages, providers.Message{Role: role, Content: providers.JSONString(part.Text)})
		}
	}
	_, method, _ := strings.Cut(r.URL.Path, "/models/")
	req.Model, method, _ = strings.Cut(method, ":")
	switch method + "?" + r.URL.RawQuery {
	case "generateContent?":
	case "streamGenerateContent?alt=sse":
		req.Stream = true
	default:
		err = fmt.Errorf("the method is %s", method)
	}
	return req, err
}
