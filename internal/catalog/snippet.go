package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// header is the first line of a snippet. A file without it isn't replaced.
const header = "# Written by caddy svc catalog import, which replaces the whole file. Prices are micros of a US dollar per million tokens."

// Snippet returns models as rows of the catalogue for the svc block of a Caddyfile. vendors are the vendors of the models by the names of
// the providers that sell them.
func Snippet(models []Model, vendors map[string]string) string {
	var text strings.Builder
	text.WriteString(header + "\n")
	for _, provider := range slices.Sorted(maps.Keys(vendors)) {
		for i := range models {
			if models[i].Vendor == vendors[provider] {
				models[i].write(&text, provider)
			}
		}
	}
	return text.String()
}

func (m *Model) write(text *strings.Builder, provider string) {
	fmt.Fprintf(text, "catalog_model %s/%s {\n\tcontext_window %d\n\tmax_output_tokens %d\n", provider, m.Name, m.Window, m.MaxOutput)
	if m.NoSampling {
		text.WriteString("\tdrop_sampling\n")
	}
	if m.Reasoning {
		text.WriteString("\treasoning\n")
	}
	if m.Shutdown != "" {
		text.WriteString("\tshutdown_date " + m.Shutdown + "\n")
	}
	m.Price.write(text, "\tprice_")
	for _, tier := range m.Tiers {
		fmt.Fprintf(text, "\tprice_tier %d {\n", tier.Above)
		tier.write(text, "\t\t")
		text.WriteString("\t}\n")
	}
	text.WriteString("}\n")
}

func (p *Price) write(text *strings.Builder, before string) {
	for _, part := range []struct {
		word  string
		price int64
	}{
		{"input", p.Input},
		{"output", p.Output},
		{"cached_input", p.CachedInput},
		{"cache_write", p.CacheWrite},
		{"cache_write_long", p.LongCacheWrite},
	} {
		if part.price > 0 {
			fmt.Fprintf(text, "%s%s %d\n", before, part.word, part.price)
		}
	}
}

// IsSnippet reports whether text was written by [Snippet], or is empty.
func IsSnippet(text string) bool { return text == "" || strings.HasPrefix(text, header+"\n") }

// Change is a difference between two snippets. An empty Before or After means that the option or the model isn't there.
type Change struct {
	Model  string `json:"model"`
	Option string `json:"option"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Jump is set if a price becomes more than 3 times as high or as low, or if the model's price goes.
	Jump bool `json:"jump,omitempty"`
}

// jump is the factor above which a changed price is more likely a fault of the file.
const jump = 3

// Compare returns the differences between two snippets, sorted by model and option.
func Compare(before, after string) []Change {
	old, made := options(before), options(after)
	all := maps.Clone(old)
	maps.Copy(all, made)
	var changes []Change
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		was, is := old[key], made[key]
		if was == is {
			continue
		}
		c := Change{Model: key[0], Option: key[1], Before: was, After: is}
		if strings.Contains(key[1], "price") {
			from, _ := strconv.ParseInt(was, 10, 64)
			to, _ := strconv.ParseInt(is, 10, 64)
			c.Jump = from > 0 && to > 0 && (to > jump*from || from > jump*to)
		}
		c.Jump = c.Jump || key[1] == "price_input" && is == ""
		changes = append(changes, c)
	}
	return changes
}

// options returns the options of a snippet by model and name. An option in a block has the words of the block before its own.
func options(text string) map[[2]string]string {
	found := map[[2]string]string{}
	var model, block string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case words[0] == "catalog_model" && len(words) > 1:
			model, block = words[1], ""
		case words[len(words)-1] == "{":
			block = strings.Join(words[:len(words)-1], " ") + " "
		case words[0] == "}":
			block = ""
		default:
			found[[2]string{model, block + words[0]}] = cmp.Or(strings.Join(words[1:], " "), "true")
		}
	}
	return found
}
