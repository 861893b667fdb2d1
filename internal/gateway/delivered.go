package gateway

import "strings"

// bytesPerToken is the rough rule for uncounted text; most languages are above it.
const bytesPerToken = 3

// tokensOfBytes estimates the tokens of a text by its length.
func tokensOfBytes(n int64) int64 { return (n + bytesPerToken - 1) / bytesPerToken }

// delivered is the text of an answer so far.
type delivered struct {
	// keep is how many bytes of the text are kept; a piece that would exceed them is only counted.
	keep  int
	text  strings.Builder
	bytes int64
}

func (d *delivered) add(piece string) {
	d.bytes += int64(len(piece))
	if d.text.Len()+len(piece) <= d.keep {
		d.text.WriteString(piece)
	}
}

// whole reports whether text is all that was delivered.
func (d *delivered) whole() bool { return int64(d.text.Len()) == d.bytes }
