package anthropic

import (
	"bytes"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Answer implements [providers.Dialect].
func (d *dialect) Answer(raw []byte) (providers.Event, error) {
	var doc document
	s := newScanner(raw)
	doc.message(&s)
	switch {
	case !s.End():
		return providers.Event{}, providers.NotAnAnswer("the answer is no JSON object")
	case doc.fault != nil:
		return providers.Event{}, classify(providers.ReadFault(doc.fault), 0, nil)
	case doc.malformed || !doc.filled:
		return providers.Event{}, providers.NotAnAnswer("the answer has no list of content")
	}
	var total tokens
	total.add(&doc.tokens)
	return providers.Event{
		Text: doc.text.Text(), FinishReason: finishReason(doc.stop), Usage: total.usage(), Model: doc.model.Text(),
	}, nil
}

// finishReason returns OpenAI's word for a stop reason, https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons.
func finishReason(stop jsonscan.Literal) string {
	var buf [jsonscan.MaxWord]byte
	switch string(stop.Word(&buf)) {
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "refusal":
		return "content_filter"
	}
	return "stop"
}

// Stream implements [providers.Dialect].
func (d *dialect) Stream() providers.StreamReader { return &events{} }

// events reads the events of one stream. Most of them differ from the previous one only in their text.
type events struct {
	// head is the beginning of the last event of text, up to the text.
	head   []byte
	tokens tokens
	finish string
}

// Event implements [providers.StreamReader]. The finish reason is withheld until message_stop, because an answer without it was broken
// off. Unknown events are ignored, as the API's documentation demands.
func (e *events) Event(data []byte) (providers.Piece, error) {
	if text := e.textOf(data); text != nil {
		return providers.Piece{Text: text}, nil
	}
	doc, ok := readEvent(data)
	switch {
	case !ok:
		return providers.Piece{}, providers.NotAnAnswer("an event of the stream is no JSON object")
	case doc.fault != nil:
		return providers.Piece{}, classify(providers.ReadFault(doc.fault), 0, nil)
	case doc.malformed || doc.kind == nil:
		return providers.Piece{}, providers.NotAnAnswer("an event of the stream has an unexpected form")
	}
	var buf [jsonscan.MaxWord]byte
	var piece providers.Piece
	switch string(doc.kind.Word(&buf)) {
	case "message_start":
		piece.Model = doc.model.Text()
		doc.tokens.output = jsonscan.NoCount // here it is a placeholder
	case "content_block_start", "content_block_delta":
		// The next event with the same beginning is compared instead of parsed. The ends aren't compared, because the API pads its events with
		// blanks.
		if doc.text != nil && doc.textAt <= maxHead && endsEvent(data[doc.textAt+len(doc.text):]) {
			e.head = append(e.head[:0], data[:doc.textAt]...)
		}
		piece.Text = doc.text
	case "message_delta":
		if doc.stop != nil {
			e.finish = finishReason(doc.stop)
		}
	case "message_stop":
		piece.FinishReason, piece.End = e.finish, true
	case "error":
		return piece, providers.NotAnAnswer("the vendor ended the answer with an error")
	}
	if doc.tokens.counted {
		e.tokens.add(&doc.tokens)
		if piece.Usage = e.tokens.usage(); doc.tokens.output < 0 { // the count of an earlier event has not the text since
			piece.Usage.CompletionTokens, piece.Usage.ReasoningTokens = 0, 0
		}
	}
	return piece, nil
}

// maxHead limits the bytes of an event that a stream remembers.
const maxHead = 1 << 10

// textOf returns the literal of an event's text, or nil if the event must be parsed.
func (e *events) textOf(data []byte) providers.JSONString {
	rest, ok := bytes.CutPrefix(data, e.head)
	if !ok || len(e.head) == 0 || len(rest) == 0 || rest[0] != '"' {
		return nil
	}
	s := newScanner(rest)
	if text := s.String(); endsEvent(rest[len(text):]) {
		return providers.JSONString(text)
	}
	return nil
}

// endsEvent reports whether rest closes an event and the delta in it, and has nothing else.
func endsEvent(rest []byte) bool {
	closed := 0
	for _, b := range rest {
		switch b {
		case '}':
			closed++
		case ' ':
		default:
			return false
		}
	}
	return closed == 2
}

// document contains the relevant members of an event, or of a message, which is the whole answer or the beginning of a stream. All
// other members (thinking, signatures, tools) are dropped.
type document struct {
	// kind is the type of the event.
	kind jsonscan.Literal
	// text is nil if there is none. textAt is its offset in the event.
	text   providers.JSONString
	textAt int
	// filled is set if a message has a list of content.
	filled bool
	stop   jsonscan.Literal
	model  jsonscan.Literal
	tokens tokens
	// fault is the JSON value of a non-null error.
	fault []byte
	// malformed is set if a relevant member has a type that it can't have.
	malformed bool
}

type scanner struct{ jsonscan.Scanner }

func newScanner(data []byte) scanner { return scanner{jsonscan.Lenient(data, providers.MaxDepth)} }

// readEvent reads one event of a stream in a single pass. ok is false if data isn't one valid JSON object.
func readEvent(data []byte) (doc document, ok bool) {
	s := newScanner(data)
	for more := s.Enter('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "type":
			doc.kind = s.StringOrSkip()
		case "delta", "content_block":
			doc.block(&s)
		case "message":
			var message document
			message.message(&s)
			doc.model, doc.tokens = message.model, message.tokens
			doc.malformed = doc.malformed || message.malformed
		case "usage":
			doc.tokens = s.tokens()
		case "error":
			doc.fault = s.UnlessNull()
		}
	}
	return doc, s.End()
}

// message reads a message.
func (doc *document) message(s *scanner) {
	doc.malformed = doc.malformed || s.Peek() != '{'
	for more := s.EnterOrSkip('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "content":
			doc.content(s)
		case "stop_reason":
			doc.stop = s.StringOrSkip()
		case "model":
			doc.model = s.StringOrSkip()
		case "usage":
			doc.tokens = s.tokens()
		case "error":
			doc.fault = s.UnlessNull()
		}
	}
}

// content reads the blocks of a message and joins their texts.
func (doc *document) content(s *scanner) {
	doc.filled = s.Peek() == '['
	var joined providers.Joined
	for more := s.EnterOrSkip('['); more; more = s.More('[') {
		doc.block(s)
		joined.Add(doc.text)
		doc.text = nil
	}
	doc.text = joined.Text
}

// block reads a block of content or a change of one. Only the types text and text_delta have a text. The delta of an event
// message_delta has no type.
func (doc *document) block(s *scanner) {
	doc.malformed = doc.malformed || s.Peek() != '{'
	var kind, text jsonscan.Literal
	at := 0
	for more := s.EnterOrSkip('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "type":
			kind = s.StringOrSkip()
		case "text":
			text = s.StringOrSkip()
			at = s.Offset() - len(text)
		case "stop_reason":
			doc.stop = s.StringOrSkip()
		}
	}
	switch string(s.Word(kind)) {
	case "text", "text_delta":
		doc.text, doc.textAt = providers.JSONString(text), at
		doc.malformed = doc.malformed || text == nil
	}
}

// tokens are the counts of a usage object. A report in a stream has only some of them, which replace earlier ones.
type tokens struct {
	// input excludes tokens that were read from or written to the cache. written are all writes, short and long the parts for
	// 5 minutes and for an hour.
	input, read, written, short, long int64
	// output includes thinking.
	output, thinking int64
	// counted is set if there was a report.
	counted bool
}

// tokens reads a usage object. It is ignored if a count is negative or not whole.
func (s *scanner) tokens() (t tokens) {
	const none = jsonscan.NoCount
	t = tokens{none, none, none, none, none, none, none, s.Peek() == '{'}
	for more := s.EnterOrSkip('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "input_tokens":
			t.input = s.Count()
		case "cache_read_input_tokens":
			t.read = s.Count()
		case "cache_creation_input_tokens":
			t.written = s.Count()
		case "output_tokens":
			t.output = s.Count()
		case "cache_creation", "output_tokens_details":
			s.details(&t)
		}
	}
	t.counted = t.counted && min(t.input, t.read, t.written, t.output) != jsonscan.InvalidCount
	return t
}

// details reads the parts of the tokens that were written to the cache or generated. Invalid ones are ignored.
func (s *scanner) details(t *tokens) {
	for more := s.EnterOrSkip('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "ephemeral_5m_input_tokens":
			t.short = s.Count()
		case "ephemeral_1h_input_tokens":
			t.long = s.Count()
		case "thinking_tokens":
			t.thinking = s.Count()
		}
	}
}

// add replaces counts by the counts of a later report.
func (t *tokens) add(later *tokens) {
	if !later.counted {
		return
	}
	t.counted = true
	for _, count := range []struct{ to, from *int64 }{
		{&t.input, &later.input},
		{&t.read, &later.read},
		{&t.written, &later.written},
		{&t.short, &later.short},
		{&t.long, &later.long},
		{&t.output, &later.output},
		{&t.thinking, &later.thinking},
	} {
		if *count.from >= 0 {
			*count.to = *count.from
		}
	}
}

// usage returns the counts as a report, or nil if there was none. The prompt is everything that the vendor read.
func (t *tokens) usage() *providers.Usage {
	if !t.counted {
		return nil
	}
	written := max(t.written, t.short+t.long)
	return &providers.Usage{
		PromptTokens: t.input + t.read + written, CachedPromptTokens: t.read,
		CacheWriteTokens: written - t.long, LongCacheWriteTokens: t.long,
		CompletionTokens: t.output, ReasoningTokens: min(t.thinking, t.output),
	}
}
