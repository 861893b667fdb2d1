package gateway

import "strings"

// maxDeliveredText bounds what one call keeps of its answer for an estimate. Vendors report usage nearly always;
// an answer longer than this without usage is estimated from its length.
const maxDeliveredText = 1 << 20

// bytesPerToken is the rough rule for text that was not kept; most languages are above it.
const bytesPerToken = 3

// delivered is the text of an answer so far.
type delivered struct {
	text strings.Builder
	// beyond counts bytes that were handed out but not kept.
	beyond int64
	// keepAll is set for answers that are returned whole.
	keepAll bool
}

func (d *delivered) add(piece string) {
	if !d.keepAll && d.text.Len()+len(piece) > maxDeliveredText {
		d.beyond += int64(len(piece))
		return
	}
	d.text.WriteString(piece)
}

func (d *delivered) empty() bool { return d.text.Len() == 0 && d.beyond == 0 }
