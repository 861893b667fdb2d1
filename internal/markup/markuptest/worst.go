// Package markuptest has the Markdown that costs most to show.
package markuptest

import "strings"

// Worst returns texts of about so many bytes, and one three times as long, whose rendering costs the most time or memory, or gives the
// most messages, by their kind.
func Worst(size int) map[string]string {
	repeat := func(text string, bytes int) string { return strings.Repeat(text, bytes/len(text)) }
	lazy := func(text string) string { return repeat(text, size/3) + "\na\n" + repeat("a\n", size/2) }
	return map[string]string{
		"table":      repeat("a|", size/4) + "a\n" + repeat("-|", size/4) + "-\n" + repeat("b\n", size/2),
		"quotes":     lazy(">"),
		"lists":      lazy("- "),
		"numbers":    lazy("1. "),
		"both":       lazy("> - "),
		"references": "[a]: " + repeat("b", size/2) + "\n\n" + repeat("[a]", size/2),
		"HTML":       repeat("a <?\n", size),
		"emphasis":   repeat("*a_ ", size),
		"lines":      repeat("a\n\n", size),
		"length":     repeat("A sentence. ", 3*size),
	}
}
