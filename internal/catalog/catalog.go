// Package catalog reads the price lists of models that LiteLLM (`model_prices_and_context_window.json`) and models.dev (`api.json`)
// publish, and writes selected models as rows of a Caddyfile.
//
// Invariants:
//   - A model without an exact, positive price is skipped, with the reason. No price is guessed.
//   - A price is decimal text until it is a whole number of micros, rounded up. No price is ever a float64.
//   - Memory is bounded by [maxFile]. A file that is cut off or isn't JSON is an error, so nothing of it is written.
//
// The package makes no request and converts no currency. Both files have US dollars.
package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// maxFile limits a file in bytes. LiteLLM's has 1.4 MB, models.dev's 3 MB.
const maxFile = 16 << 20

// Price has the prices of a million tokens in micros of the file's currency. 0 means that the file doesn't have the price.
type Price struct{ Input, CachedInput, CacheWrite, LongCacheWrite, Output int64 }

// maxTiers is the largest number of tiers that a Caddyfile accepts.
const maxTiers = 3

// Tier is the price of a whole call whose prompt is longer than Above tokens.
type Tier struct {
	Above int64
	Price
}

// Model is a model of a file.
type Model struct {
	// Vendor and Name are the file's name of the vendor and the vendor's name of the model.
	Vendor, Name string
	// Window and MaxOutput are the limits in tokens. MaxOutput is at most Window.
	Window, MaxOutput int64
	// Reasoning reports hidden tokens, NoSampling a model that refuses temperature and top_p.
	Reasoning, NoSampling bool
	// Shutdown is the day on which the vendor ends the model, as YYYY-MM-DD. Empty means unknown.
	Shutdown string
	Price    Price
	// Tiers are sorted by their sizes, which differ.
	Tiers []Tier
}

// Skipped is a model that was asked for and can't be sold.
type Skipped struct {
	Model  string `json:"model"`
	Reason string `json:"reason"`
}

// File is the content of a file that was asked for.
type File struct {
	// Source is the project that publishes files of this form.
	Source string
	// Vendors are all vendors of the file, sorted.
	Vendors []string
	// Models are sorted by vendor and name, which together are unique.
	Models  []Model
	Skipped []Skipped
}

// reader collects the models of a file.
type reader struct {
	wanted  func(vendor, name string) bool
	source  string
	vendors map[string]bool
	models  map[[2]string]Model
	skipped map[[2]string]string
}

// Read reads the models for which wanted returns true. The form of the file is detected.
func Read(from io.Reader, wanted func(vendor, name string) bool) (*File, error) {
	r := &reader{wanted: wanted, vendors: map[string]bool{}, models: map[[2]string]Model{}, skipped: map[[2]string]string{}}
	limited := &io.LimitedReader{R: from, N: maxFile + 1}
	decoder := json.NewDecoder(limited)
	err := each(decoder, r.entry)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("something follows the JSON object")
		}
	}
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("the file has more than %d MiB", maxFile>>20)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("the file is cut off; download it again")
	case err != nil:
		return nil, err
	case r.source == "":
		return nil, errForm
	}
	f := &File{Source: r.source, Vendors: slices.Sorted(maps.Keys(r.vendors))}
	f.Models = slices.SortedFunc(maps.Values(r.models), func(a, b Model) int { return strings.Compare(a.Vendor+"/"+a.Name, b.Vendor+"/"+b.Name) })
	for key, reason := range r.skipped {
		f.Skipped = append(f.Skipped, Skipped{Model: key[0] + "/" + key[1], Reason: reason})
	}
	slices.SortFunc(f.Skipped, func(a, b Skipped) int { return strings.Compare(a.Model, b.Model) })
	return f, nil
}

var errForm = errors.New("the file is neither LiteLLM's model_prices_and_context_window.json nor models.dev's api.json")

// each calls visit for the members of the object that follows in the decoder's input.
func each(decoder *json.Decoder, visit func(name string, value json.RawMessage) error) error {
	begin, err := decoder.Token()
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) || err == nil && begin != json.Delim('{') {
		return errForm
	}
	if err != nil {
		return err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("reading the name of a model: %w", err)
		}
		text, _ := name.(string) // a member's name is a string
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return fmt.Errorf("reading %.100q: %w", text, err)
		}
		if err := visit(text, value); err != nil {
			return err
		}
	}
	_, err = decoder.Token()
	return err
}

// object holds the members of a JSON object as they are written.
type object map[string]json.RawMessage

// readObject returns the members of an object. The error says that value isn't an object, or which name it has twice.
func readObject(value json.RawMessage) (object, error) {
	members := object{}
	var twice error
	err := each(json.NewDecoder(bytes.NewReader(value)), func(name string, value json.RawMessage) error {
		if _, known := members[name]; known {
			twice = fmt.Errorf("it has %.100q twice", name)
		}
		members[name] = value
		return nil
	})
	if err != nil {
		return nil, errors.New("it has a member that is no JSON object")
	}
	return members, twice
}

// text returns a member that is a string, else an empty one.
func (o object) text(name string) (text string) {
	_ = json.Unmarshal(o[name], &text)
	return text
}

// true reports whether a member is true, and false whether it is false. Both are false for a member that is missing.
func (o object) true(name string) bool  { return string(o[name]) == "true" }
func (o object) false(name string) bool { return string(o[name]) == "false" }

// entry reads a member of the file: in LiteLLM's a model, in models.dev's a vendor.
func (r *reader) entry(name string, value json.RawMessage) error {
	if name == "sample_spec" { // LiteLLM's description of its own form
		return nil
	}
	members, err := readObject(value)
	if members["litellm_provider"] != nil {
		r.source = "LiteLLM"
		vendor := members.text("litellm_provider")
		name = strings.TrimPrefix(name, vendor+"/")
		r.vendors[vendor] = true
		if r.wanted(vendor, name) {
			r.add(vendor, name, err, func() (Model, error) { return readLiteLLM(members) })
		}
		return nil
	}
	if err != nil || members["models"] == nil {
		return errForm
	}
	r.source = "models.dev"
	r.vendors[name] = true
	return each(json.NewDecoder(bytes.NewReader(members["models"])), func(model string, value json.RawMessage) error {
		if r.wanted(name, model) {
			members, err := readObject(value)
			r.add(name, model, err, func() (Model, error) { return readModelsDev(members) })
		}
		return nil
	})
}

// modelName matches the names that a Caddyfile accepts after PROVIDER/.
var modelName = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]{1,128}$`)

// add adds a model, or the reason why it is skipped. Two different entries with one name are both skipped.
func (r *reader) add(vendor, name string, err error, read func() (Model, error)) {
	key := [2]string{vendor, name}
	var model Model
	if err == nil && !modelName.MatchString(name) {
		err = errors.New("a Caddyfile can't have its name")
	}
	if err == nil {
		model, err = read()
		model.Vendor, model.Name = vendor, name
	}
	if err == nil {
		err = model.check()
	}
	known, twice := r.models[key]
	_, skipped := r.skipped[key]
	switch {
	case twice && (err != nil || !reflect.DeepEqual(known, model)), skipped && err == nil:
		delete(r.models, key)
		r.skipped[key] = "the file has it twice, with different entries"
	case err != nil:
		r.skipped[key] = err.Error()
	default:
		r.models[key] = model
	}
}

// check returns the reason why the model can't be sold, or nil. It limits the largest output to the window.
func (m *Model) check() error {
	if m.Window <= 0 || m.MaxOutput <= 0 {
		return errors.New("its context window or largest output is missing")
	}
	m.MaxOutput = min(m.MaxOutput, m.Window)
	if len(m.Tiers) > maxTiers {
		return fmt.Errorf("it has more than %d tiers", maxTiers)
	}
	slices.SortFunc(m.Tiers, func(a, b Tier) int { return int(a.Above - b.Above) })
	prices := []Price{m.Price}
	for i, tier := range m.Tiers {
		if tier.Above <= 0 || i > 0 && tier.Above == m.Tiers[i-1].Above {
			return errors.New("its tiers have no rising sizes")
		}
		prices = append(prices, tier.Price)
	}
	for _, price := range prices {
		switch {
		case price.Input == 0 || price.Output == 0:
			return errors.New("its price is missing or 0")
		case price.CachedInput > price.Input:
			return errors.New("its cached input costs more than its input")
		}
	}
	return nil
}
