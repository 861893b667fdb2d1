package catalog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"strconv"
	"time"
)

// priceNames are the names of a file's prices, and the power of ten between its unit and micros per million tokens.
type priceNames struct {
	input, cachedInput, cacheWrite, longCacheWrite, output, reasoning string
	shift                                                             int
}

var (
	// liteLLMPrices are dollars per token.
	liteLLMPrices = priceNames{
		"input_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr",
		"output_cost_per_token", "output_cost_per_reasoning_token", 12,
	}
	// modelsDevPrices are dollars per million tokens.
	modelsDevPrices = priceNames{"input", "cache_read", "cache_write", "", "output", "reasoning", 6}
)

// read returns the prices whose names end in suffix.
func (n priceNames) read(from object, suffix string) (p Price, err error) {
	var reasoning int64
	for _, part := range []struct {
		name string
		to   *int64
	}{
		{n.input, &p.Input},
		{n.cachedInput, &p.CachedInput},
		{n.cacheWrite, &p.CacheWrite},
		{n.longCacheWrite, &p.LongCacheWrite},
		{n.output, &p.Output},
		{n.reasoning, &reasoning},
	} {
		if *part.to, err = from.price(part.name+suffix, n.shift); err != nil {
			return Price{}, err
		}
	}
	if reasoning != 0 && reasoning != p.Output {
		return Price{}, errors.New("its reasoning tokens have a price of their own")
	}
	return p, nil
}

// dearest is the highest price that is believed, in micros per million tokens: 2,000 dollars. The dearest model so far costs 600, and
// known faults of the files are 1,000 and 100,000 times too dear.
const dearest = 2_000_000_000

// price returns a price in micros per million tokens. It returns 0 if the member is missing or null.
func (o object) price(name string, shift int) (int64, error) {
	price, err := o.number(name, shift, dearest)
	if err != nil {
		return 0, fmt.Errorf("its price %s %w", name, err)
	}
	return price, nil
}

// tokens returns a number of tokens. It returns 0 if the member is missing or null.
func (o object) tokens(name string) (int64, error) {
	tokens, err := o.number(name, 0, 100_000_000)
	if err != nil {
		return 0, fmt.Errorf("its limit %s %w", name, err)
	}
	return tokens, nil
}

var (
	decimal = regexp.MustCompile(`^(-?)([0-9]{1,60})(?:\.([0-9]{1,60}))?(?:[eE]([+-]?[0-9]{1,3}))?$`)
	ten     = big.NewInt(10)
)

// number returns a member × 10^shift, rounded up to a whole number from 0 to highest.
func (o object) number(name string, shift int, highest int64) (int64, error) {
	text := string(o[name])
	if text == "" || text == "null" {
		return 0, nil
	}
	parts := decimal.FindStringSubmatch(text)
	if parts == nil {
		return 0, errors.New("is no number")
	}
	digits, _ := new(big.Int).SetString(parts[2]+parts[3], 10)
	exponent, _ := strconv.Atoi(parts[4]) // it has up to 3 digits
	exponent += shift - len(parts[3])
	switch {
	case parts[1] != "" && digits.Sign() != 0:
		return 0, errors.New("is negative")
	case exponent >= 0:
		digits.Mul(digits, new(big.Int).Exp(ten, big.NewInt(int64(exponent)), nil))
	default:
		unit := new(big.Int).Exp(ten, big.NewInt(int64(-exponent)), nil)
		rest := new(big.Int)
		if digits.QuoRem(digits, unit, rest); rest.Sign() > 0 {
			digits.Add(digits, big.NewInt(1))
		}
	}
	if !digits.IsInt64() || digits.Int64() > highest {
		return 0, errors.New("is absurdly large")
	}
	return digits.Int64(), nil
}

// tierName matches the ends of the names of LiteLLM's prices for long prompts.
var tierName = regexp.MustCompile(`^[a-z_]+_cost(?:_per_token|_above_1hr)?(_above_([0-9]{1,5})k_tokens)$`)

// readLiteLLM reads a model of LiteLLM's file: https://docs.litellm.ai/docs/provider_registration/add_model_pricing.
func readLiteLLM(members object) (m Model, err error) {
	if mode := members.text("mode"); mode != "chat" {
		return m, fmt.Errorf("it is for %s, not for chat", cmp.Or(mode, "an unknown use"))
	}
	m.Reasoning = members.true("supports_reasoning")
	if day := members.text("deprecation_date"); day != "" {
		if _, err := time.Parse(time.DateOnly, day); err == nil {
			m.Shutdown = day
		}
	}
	window, err := members.tokens("max_input_tokens")
	largest, errOutput := members.tokens("max_output_tokens")
	either, errEither := members.tokens("max_tokens") // an older name of both
	if err := cmp.Or(err, errOutput, errEither); err != nil {
		return m, err
	}
	m.Window, m.MaxOutput = cmp.Or(window, either), cmp.Or(largest, either)
	if members["tiered_pricing"] != nil {
		err = m.readRanges(members["tiered_pricing"])
		return m, err
	}
	if m.Price, err = liteLLMPrices.read(members, ""); err != nil {
		return m, err
	}
	sizes := map[string]int64{}
	for name := range maps.Keys(members) {
		if parts := tierName.FindStringSubmatch(name); parts != nil {
			thousands, _ := strconv.ParseInt(parts[2], 10, 64) // it has up to 5 digits
			sizes[parts[1]] = thousands * 1000
		}
	}
	for suffix, size := range sizes {
		price, err := liteLLMPrices.read(members, suffix)
		if err != nil {
			return m, err
		}
		m.addTier(size, price)
	}
	return m, nil
}

// readRanges reads LiteLLM's prices by ranges of the prompt's length, the first of which begins at 0.
func (m *Model) readRanges(value json.RawMessage) error {
	var ranges []json.RawMessage
	if err := json.Unmarshal(value, &ranges); err != nil || len(ranges) == 0 {
		return errors.New("its tiered_pricing is no list")
	}
	for i, each := range ranges {
		members, err := readObject(each)
		if err != nil {
			return err
		}
		var edges []json.RawMessage
		if err := json.Unmarshal(members["range"], &edges); err != nil || len(edges) != 2 {
			return errors.New("its tiered_pricing has a range without two ends")
		}
		above, err := object{"range": edges[0]}.tokens("range")
		if err != nil {
			return err
		}
		price, err := liteLLMPrices.read(members, "")
		switch {
		case err != nil:
			return err
		case i == 0 && above != 0:
			return errors.New("its tiered_pricing doesn't begin at 0")
		case i == 0:
			m.Price = price
		default:
			m.addTier(above, price)
		}
	}
	return nil
}

// readModelsDev reads a model of models.dev's file: https://models.dev.
func readModelsDev(members object) (m Model, err error) {
	if members.text("status") == "deprecated" {
		return m, errors.New("its vendor ends it")
	}
	m.Reasoning, m.NoSampling = members.true("reasoning"), members.false("temperature")
	limit, err := readObject(members["limit"])
	if err != nil {
		return m, errors.New("its limits are missing")
	}
	window, err := limit.tokens("context")
	largest, errOutput := limit.tokens("output")
	if err := cmp.Or(err, errOutput); err != nil {
		return m, err
	}
	m.Window, m.MaxOutput = window, largest
	cost, err := readObject(members["cost"])
	if err != nil {
		return m, errors.New("its price is missing or 0")
	}
	if m.Price, err = modelsDevPrices.read(cost, ""); err != nil {
		return m, err
	}
	err = m.readModelsDevTiers(cost)
	return m, err
}

// readModelsDevTiers reads the prices of long prompts, which newer entries have as tiers, older ones as context_over_200k.
func (m *Model) readModelsDevTiers(cost object) error {
	if cost["tiers"] == nil && cost["context_over_200k"] != nil {
		members, err := readObject(cost["context_over_200k"])
		if err != nil {
			return err
		}
		price, err := modelsDevPrices.read(members, "")
		m.addTier(200_000, price)
		return err
	}
	var tiers []json.RawMessage
	if err := json.Unmarshal([]byte(cmp.Or(string(cost["tiers"]), "[]")), &tiers); err != nil {
		return errors.New("its tiers are no list")
	}
	for _, each := range tiers {
		members, err := readObject(each)
		if err != nil {
			return err
		}
		tier, err := readObject(members["tier"])
		if err != nil || tier.text("type") != "context" {
			return errors.New("its tiers aren't by the prompt's length")
		}
		size, err := tier.tokens("size")
		if err != nil {
			return err
		}
		price, err := modelsDevPrices.read(members, "")
		if err != nil {
			return err
		}
		m.addTier(size, price)
	}
	return nil
}

// addTier adds a tier, in which a missing input or output price is the model's own.
func (m *Model) addTier(above int64, price Price) {
	price.Input, price.Output = cmp.Or(price.Input, m.Price.Input), cmp.Or(price.Output, m.Price.Output)
	m.Tiers = append(m.Tiers, Tier{Above: above, Price: price})
}
