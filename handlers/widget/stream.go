package widget

import (
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/providers"
)

// visitModel replaces the model in a visitor's stream: a business doesn't show its visitors which model it uses.
const visitModel = "assistant"

// visitStream writes an answer to a visitor in the form of [v1.ChunkWriter]. Model, usage and charge are the
// business's: a visitor gets a word for the first and zeros for the others. It implements [gateway.Sink].
type visitStream struct {
	*v1.ChunkWriter

	// head is the same for every try of the message, whether this process or a worker answers it.
	head gateway.Head
	// text is the part of the answer that was sent to the visitor.
	text strings.Builder
	// held is called when the answer's hold, if it has one, is committed.
	held func()
}

var _ gateway.QuotedSink = (*visitStream)(nil)

func newVisitStream(w http.ResponseWriter, r *http.Request, message *inbox.Reply, held func()) *visitStream {
	return &visitStream{ChunkWriter: v1.NewChunkWriter(w, r), held: held, head: gateway.Head{
		ID: "chatcmpl-" + strings.TrimPrefix(message.MessageID, "msg_"), Created: message.ReceivedAt / 1000, Model: visitModel,
	}}
}

// Begin writes nothing: until the first text the answer may still become a receipt.
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

// Quoted adds a piece of the answer.
func (s *visitStream) Quoted(piece providers.JSONString) error { return s.Text(piece.Text()) }

// end writes the missing rest of the stored answer, and the end of the stream. It writes nothing and returns false when the
// visitor has seen another text. Errors of writing are ignored: the visitor has left.
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
