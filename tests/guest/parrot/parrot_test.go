package parrot

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

func TestContract(t *testing.T) {
	whys := map[string]string{"stop": "done", "length": "asleep", "content_filter": "ashamed"}
	costs := func(u providers.Usage) string {
		return fmt.Sprintf(`"cost":{"heard":%d,"said":%d}`, u.PromptTokens, u.CompletionTokens)
	}
	phrase := func(text, finish string, usage providers.Usage) string {
		return fmt.Sprintf(`{"says":%s,"why":%q,%s}`, providers.Quote(text), whys[finish], costs(usage))
	}
	providertest.Run(t, providertest.Suite{
		Driver: Driver{}, Options: map[string]string{"cage": "7"},
		Vendor: &providertest.Vendor{
			Read: heard,
			Adjust: func(req *providers.Request) {
				for i := range req.Messages {
					if req.Messages[i].Role == "tool" {
						req.Messages[i].Role = "user"
					}
				}
			},
			Unwritable: []func(*providers.Request){func(req *providers.Request) {
				req.Messages = append(req.Messages, providers.Message{Role: "system", Content: providers.Quote("Be quiet.")})
			}},
			Thinking: []string{"drowsy"},
			Answer:   phrase,
			Stream: func(pieces []string, finish string, usage providers.Usage) (parts []string) {
				for _, piece := range pieces {
					parts = append(parts, fmt.Sprintf("data: {\"says\":%s}\n\n", providers.Quote(piece)))
				}
				return append(parts, "data: "+phrase("", finish, usage)+"\n\n")
			},
			Report: func(usage providers.Usage) string { return "data: {" + costs(usage) + "}\n\n" },
			Error:  func(message string) string { return fmt.Sprintf(`{"squawk":%q}`, message) },
		},
	})
}

// heard reads a request as the parrot does.
func heard(_ *http.Request, body []byte) (req providers.Request, err error) {
	var asked struct {
		Bird  string
		Heard []struct {
			By   string
			Says json.RawMessage
		}
		Most        int64
		Temperature *float64
		TopP        *float64 `json:"top_p"`
		Hush        []string
		Mood        string
		Piecewise   bool
	}
	err = json.Unmarshal(body, &asked)
	for _, line := range asked.Heard {
		req.Messages = append(req.Messages, providers.Message{Role: line.By, Content: providers.JSONString(line.Says)})
	}
	req.Model, req.MaxTokens, req.Stop, req.Thinking, req.Stream = asked.Bird, asked.Most, asked.Hush, asked.Mood, asked.Piecewise
	req.Temperature, req.TopP = asked.Temperature, asked.TopP
	return req, err
}
