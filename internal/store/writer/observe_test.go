package writer

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRefusalsAreOneCondition guarantees that however many operations are refused, the log has one line when that begins,
// and one when it is over, with their number.
func TestRefusalsAreOneCondition(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	l := refusalLog{logger: slog.New(slog.NewTextHandler(&text, nil))}
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	for range 2 {
		text.Reset()
		l.note(now, 0, time.Millisecond)
		require.Empty(t, text.String())
		for range 100 {
			now = now.Add(calmAfter / 2)
			l.note(now, 5, time.Second)
			l.note(now, 0, time.Second)
		}
		l.note(now.Add(calmAfter-1), 0, time.Millisecond)
		require.Equal(t, 1, strings.Count(text.String(), "level=WARN"), text.String())
		for range 3 {
			now = now.Add(calmAfter)
			l.note(now, 0, time.Millisecond)
		}
		require.Equal(t, 2, strings.Count(text.String(), "level=WARN"), text.String())
		require.Contains(t, text.String(), "refused=500 ")
	}
}
