// Command oapi calls the service with a client that oapi-codegen generates from the interface description: api.go.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"

	_ "github.com/oapi-codegen/runtime" // api.go imports both, and go mod tidy must not wait for it
	_ "go.yaml.in/yaml/v3"
)

func main() {
	client, err := NewClientWithResponses(os.Getenv("BASE_URL"), WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Getenv("API_KEY"))
		return nil
	}))
	if err == nil {
		err = use(context.Background(), client, os.Getenv("MODEL"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("Go client: 0 failed")
}

func use(ctx context.Context, client *ClientWithResponses, model string) error {
	models, err := client.ListModelsWithResponse(ctx)
	if err != nil {
		return err
	}
	if models.JSON200 == nil || !slices.ContainsFunc(models.JSON200.Data, func(m Model) bool { return m.Id == model }) {
		return fmt.Errorf("the list has no %s: %s", model, models.Body)
	}
	if err := chat(ctx, client, model); err != nil {
		return err
	}
	return agents(ctx, client, model)
}

// chat asks the model twice: for a whole answer, and for a stream, whose events are ChatChunk.
func chat(ctx context.Context, client *ClientWithResponses, model string) error {
	ask := ChatBody{Model: model, Messages: []ChatMessage{{Role: ChatMessageRoleUser, Content: "Hello!"}}}
	whole, err := client.CreateChatCompletionWithResponse(ctx, &CreateChatCompletionParams{}, ask)
	if err != nil {
		return err
	}
	if whole.JSON200 == nil || whole.JSON200.Choices[0].Message.Content == "" || whole.JSON200.Svc.ChargedMicros == "0" {
		return fmt.Errorf("the call failed: %s", whole.Body)
	}
	ask.Stream = new(true)
	streamed, err := client.CreateChatCompletionWithResponse(ctx, &CreateChatCompletionParams{}, ask)
	if err != nil {
		return err
	}
	events := bytes.Split(bytes.TrimSuffix(streamed.Body, []byte("\n\n")), []byte("\n\n"))
	if len(events) < 3 || string(events[len(events)-1]) != "data: [DONE]" {
		return fmt.Errorf("the stream has no end: %s", streamed.Body)
	}
	var last ChatChunk
	if err := json.Unmarshal(bytes.TrimPrefix(events[len(events)-2], []byte("data: ")), &last); err != nil {
		return err
	}
	if last.Usage == nil || last.Svc == nil {
		return fmt.Errorf("the last chunk has no charge: %s", streamed.Body)
	}
	return nil
}

// agents makes an agent, finds it in the list, deletes it, and is refused when it asks for it again.
func agents(ctx context.Context, client *ClientWithResponses, model string) error {
	made, err := client.CreateAgentWithResponse(ctx, AgentCreation{Name: "Generated", Model: model, MaxTokens: new(int64(100))})
	if err != nil {
		return err
	}
	if made.JSON201 == nil {
		return fmt.Errorf("creating an agent failed: %s", made.Body)
	}
	id := made.JSON201.Id
	listed, err := client.ListAgentsWithResponse(ctx, &ListAgentsParams{Limit: new(int64(100))})
	if err != nil {
		return err
	}
	if listed.JSON200 == nil || listed.JSON200.NextCursor != nil || !slices.ContainsFunc(listed.JSON200.Data, func(a AgentSummary) bool { return a.Id == id }) {
		return fmt.Errorf("the list has no agent %s: %s", id, listed.Body)
	}
	if removed, err := client.DeleteAgentWithResponse(ctx, id); err != nil || removed.StatusCode() != http.StatusNoContent {
		return fmt.Errorf("deleting the agent failed: %w", err)
	}
	refused, err := client.GetAgentWithResponse(ctx, id)
	if err != nil {
		return err
	}
	if refused.JSON404 == nil || refused.JSON404.Error.Code != "not_found" || refused.JSON404.Error.DocsUrl == nil {
		return fmt.Errorf("the agent is still there: %s", refused.Body)
	}
	return nil
}
