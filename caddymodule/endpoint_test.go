package caddymodule

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// An endpoint without options has the model's, and its names may have slashes.
func TestEndpointsOfAModel(t *testing.T) {
	t.Parallel()
	three := int64(3)
	m := &Model{
		Name: "house/large", UpstreamModel: "large-1", MaxTokensField: "max_completion_tokens", Thinking: "minimal",
		Endpoints: []*Endpoint{{Name: "one"}, {
			Name: "two/vendor/large", Order: &three, Weight: new(int64), MaxTokensField: "max_tokens", Thinking: "none",
			Cost: &EndpointCost{Rates{Input: &three, Output: new(int64(4)), CachedInput: new(int64)}, []*PriceTier{{Above: "9", Rates: Rates{Input: &three, Output: &three}}}},
		}},
	}
	caddyfile.Fill(m.Rules())
	require.Equal(t, []gateway.Endpoint{
		{Provider: "one", Upstream: "large-1", MaxTokensField: "max_completion_tokens", Thinking: "minimal", Weight: 1},
		{Provider: "two", Upstream: "vendor/large", MaxTokensField: "max_tokens", Thinking: "none", Order: 3, Cost: billing.Price{
			Input: 3, Output: 4, CacheWrite: 3, LongCacheWrite: 3,
			Tiers: billing.NewTiers([billing.MaxTiers]billing.Tier{{Above: 9, Rates: billing.Rates{Input: 3, Output: 3, CachedInput: 3, CacheWrite: 3, LongCacheWrite: 3}}}),
		}},
	}, m.endpoints())
}
