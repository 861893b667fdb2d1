package widget

import (
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
)

// visitModel stands where a stream has its model: which one a business asks is not for its visitors.
const visitModel = "assistant"

// visitStream writes an answer to a visitor in the form of [v1.ChunkWriter]. Model, usage and charge are
// the business's: a visitor sees a word for the first and zeros for the others. It implements [gateway.Sink].
type visitStream struct {
	*v1.ChunkWriter

	// head is the same however often the message is sent, and whoever answers it.
	head gateway.Head
	// text is what the visitor has of the answer.
	text strings.Builder
	// held is called when the answer's hold, if it has one, is committed.
	held func()
}

var _ gateway.Sink = (*visitStream)(nil)

func newVisitStream(w http.ResponseWriter, r *http.Request, message *inbox.Reply, held func()) *visitStream {
	return &visitStream{ChunkWriter: v1.NewChunkWriter(w, r), held: held, head: gateway.Head{
		ID: "chatcmpl-" + strings.TrimPrefix(message.MessageID, "msg_"), Created: message.ReceivedAt / 1000, Model: visitModel,
	}}
}

// Begin writes nothing: until the first text it may still turn out that nobody answers now.
func (s *visitStream) Begin(gateway.Head) error {
	s.held()
	return nil
}

// Text adds a piece of the answer.
func (s *visitStream) Text(piece string) error {
	if !s.Begun {
		if err := s.ChunkWriter.Begin(s.head); err != nil {
			return err
		}
	}
	s.text.WriteString(piece)
	return s.ChunkWriter.Text(piece)
}

// end writes what is missing of the stored answer, and the end of the stream. It reports false, and writes nothing, when
// the visitor has seen something else. A visitor who left can't be told and needs no error.
func (s *visitStream) end(stored string) bool {
	rest, ok := strings.CutPrefix(stored, s.text.String())
	if stored == "" || !ok {
		return false
	}
	if rest != "" {
		_ = s.Text(rest)
	}
	_ = s.Finish(&gateway.Result{FinishReason: "stop"})
	return true
}
