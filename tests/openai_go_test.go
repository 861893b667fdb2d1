package tests

import (
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestOpenAIGo guarantees that the official Go client works after its base URL is changed: models, whole answers,
// streams with its accumulator, every error with its code and request id, its retries, and the own key header.
func TestOpenAIGo(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 1_000_000)
	official := func(key string, more ...option.RequestOption) openai.Client {
		return openai.NewClient(append([]option.RequestOption{
			option.WithBaseURL(p.BaseURL + "/v1"), option.WithAPIKey(key), option.WithMaxRetries(0), option.WithHTTPClient(p.clear),
		}, more...)...)
	}
	ask := func(model, text string) openai.ChatCompletionNewParams {
		return openai.ChatCompletionNewParams{
			Model:    model,
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
		}
	}
	client := official(c.Key)

	t.Run("models", func(t *testing.T) {
		var ids []string
		pages := client.Models.ListAutoPaging(t.Context())
		for pages.Next() {
			ids = append(ids, pages.Current().ID)
		}
		require.NoError(t, pages.Err())
		require.Contains(t, ids, modelStd)
		model, err := client.Models.Get(t.Context(), modelStd)
		require.NoError(t, err)
		require.Equal(t, "acme", model.OwnedBy)
	})
	t.Run("a whole answer", func(t *testing.T) {
		done, err := client.Chat.Completions.New(t.Context(), ask(modelStd, "hi"))
		require.NoError(t, err)
		require.Equal(t, usualText, done.Choices[0].Message.Content)
		require.EqualValues(t, 18, done.Usage.TotalTokens)
		require.JSONEq(t, `{"charged_micros":"25","byok":false}`, done.JSON.ExtraFields["svc"].Raw())
	})
	t.Run("a stream, accumulated", func(t *testing.T) {
		params := ask(modelStd, "hi")
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		var whole openai.ChatCompletionAccumulator
		var last openai.ChatCompletionChunk
		for stream.Next() {
			last = stream.Current()
			require.True(t, whole.AddChunk(last), "the accumulator takes every chunk")
		}
		require.NoError(t, stream.Err())
		require.Equal(t, usualText, whole.Choices[0].Message.Content)
		require.Equal(t, "stop", whole.Choices[0].FinishReason)
		require.EqualValues(t, 18, whole.Usage.TotalTokens)
		require.JSONEq(t, `{"charged_micros":"25","byok":false}`, last.JSON.ExtraFields["svc"].Raw())
	})
	t.Run("a stream that breaks", func(t *testing.T) {
		stream := client.Chat.Completions.NewStreaming(t.Context(), ask(modelStd, "scenario:reset"))
		var text string
		for stream.Next() {
			if chunk := stream.Current(); len(chunk.Choices) > 0 {
				text += chunk.Choices[0].Delta.Content
			}
		}
		require.NotEmpty(t, text)
		require.ErrorContains(t, stream.Err(), "provider_error")
	})
	t.Run("leaving a stream", func(t *testing.T) {
		stream := client.Chat.Completions.NewStreaming(t.Context(), ask(modelStd, "scenario:stall"))
		require.True(t, stream.Next())
		require.NoError(t, stream.Close())
		_, err := client.Chat.Completions.New(t.Context(), ask(modelStd, "hi"))
		require.NoError(t, err)
	})
	t.Run("errors", func(t *testing.T) {
		organizations := p.operator().db.Organizations
		poor, suspended := p.operator().customer(t, 0), p.operator().customer(t, 0)
		require.NoError(t, organizations.SetSuspended(t.Context(), actor, suspended.OrgID, true, ""))
		revokedID, revoked := c.newKey(t, identity.KeyRequest{})
		require.NoError(t, c.db.APIKeys.Revoke(t.Context(), actor, c.OrgID, revokedID))
		_, narrow := c.newKey(t, identity.KeyRequest{Scopes: []string{"models:read"}})
		hot := ask(modelStd, "hi")
		hot.Temperature = openai.Float(9)
		for code, call := range map[string]struct {
			key    string
			params openai.ChatCompletionNewParams
		}{
			"invalid_request":        {c.Key, hot},
			"unsupported_model":      {c.Key, ask("no/pe", "hi")},
			"context_too_long":       {c.Key, ask(modelStd, "scenario:context-openai")},
			"invalid_api_key":        {unknownKey(), ask(modelStd, "hi")},
			"api_key_revoked":        {revoked, ask(modelStd, "hi")},
			"insufficient_credits":   {poor.Key, ask(modelStd, "hi")},
			"organization_suspended": {suspended.Key, ask(modelStd, "hi")},
			"insufficient_scope":     {narrow, ask(modelStd, "hi")},
			"provider_error":         {c.Key, ask(modelStd, "scenario:500")},
			"provider_overloaded":    {c.Key, ask(modelStd, "scenario:503")},
			"provider_timeout":       {c.Key, ask(modelStd, "scenario:504")},
		} {
			client := official(call.key)
			_, err := client.Chat.Completions.New(t.Context(), call.params)
			requireOfficialError(t, err, code)
			stream := client.Chat.Completions.NewStreaming(t.Context(), call.params)
			require.False(t, stream.Next(), code)
			requireOfficialError(t, stream.Err(), code)
		}
		_, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: modelStd, Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("x")}})
		requireOfficialError(t, err, "not_found")
	})
	t.Run("retries", func(t *testing.T) {
		patient := official(c.Key, option.WithMaxRetries(2))
		var tries int
		s := up.script(func(call *upstreamCall) {
			tries++
			if tries == 1 {
				call.w.Header().Set("Retry-After", "1")
				call.json(http.StatusServiceUnavailable, `{}`)
				return
			}
			call.answer(usualText, usualUsage)
		})
		_, err := patient.Chat.Completions.New(t.Context(), ask(modelStd, s.Mark))
		require.NoError(t, err)
		require.Equal(t, 2, tries)
		permanent := up.script(vendorError(http.StatusUnauthorized))
		_, err = patient.Chat.Completions.New(t.Context(), ask(modelStd, permanent.Mark))
		requireOfficialError(t, err, "provider_error")
		permanent.only(t)
	})
	t.Run("X-Api-Key, and an own provider key", func(t *testing.T) {
		c.ownKey(t, "own", "sk-own")
		client := official("unused", option.WithHeader("X-Api-Key", c.Key), option.WithHeader("x-svc-use-byok", "true"))
		done, err := client.Chat.Completions.New(t.Context(), ask(modelKeyed, "hi"))
		require.NoError(t, err)
		require.JSONEq(t, `{"charged_micros":"0","byok":true}`, done.JSON.ExtraFields["svc"].Raw())
	})
}

func requireOfficialError(t testing.TB, err error, code string) {
	t.Helper()
	var failed *openai.Error
	require.ErrorAs(t, err, &failed, "%s: %T %v", code, err, err)
	require.Equal(t, code, failed.Code)
	require.Equal(t, statusOf[code], failed.StatusCode)
	require.Regexp(t, `^req_`, failed.Response.Header.Get("X-Request-Id"))
}
