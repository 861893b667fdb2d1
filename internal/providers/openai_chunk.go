package providers

import "slices"

// chunk is what counts in one JSON document of an OpenAI-compatible answer: an event of a stream, or the whole body
// of a non-stream answer. Everything else in it (reasoning, tool calls, refusals, ids, other choices) is dropped.
type chunk struct {
	choice
	// chosen: there is a choice with index 0.
	chosen bool
	// usage is the vendor's count, if counted is true, from any of the places where vendors put it.
	usage   Usage
	counted bool
	// fault is the JSON value of a non-null error.
	fault []byte
	// malformed: a part that matters has a type it can't have.
	malformed bool
}

// choice is one element of "choices".
type choice struct {
	content   JSONString
	finish    JSONString
	usage     Usage // Moonshot counts in the choice
	counted   bool
	filled    bool // the delta or message is there
	malformed bool
}

// Where the text of a choice is: streams carry pieces, other answers the whole.
const (
	pieces = "delta"
	whole  = "message"
)

// readChunk reads one document in a single pass; part is where the text is expected. Names are matched exactly and
// of repeated members the last one counts, as with encoding/json. ok is false if data isn't one valid JSON object.
func readChunk(data []byte, part string) (c chunk, ok bool) {
	s := jsonScan{data: data}
	var groq Usage
	var groqCounted, isError bool
	var groqFault []byte
	for more := s.enter('{'); more; more = s.more('{') {
		switch key := s.key(); {
		case is(key, "choices"):
			c.choice, c.chosen, c.malformed = s.choices(part)
		case is(key, "usage"):
			c.usage, c.counted = s.usage()
		case is(key, "error"):
			c.fault = s.unlessNull()
		case is(key, "x_groq"):
			groq, groqCounted, groqFault = s.groq()
		case is(key, "object"):
			value := s.skip()
			isError = string(value) == `"error"`
		default:
			s.skip()
		}
	}
	if !s.end() {
		return chunk{}, false
	}
	if !c.counted {
		c.usage, c.counted = groq, groqCounted
	}
	if !c.counted {
		c.usage, c.counted = c.choice.usage, c.choice.counted
	}
	if c.fault == nil {
		c.fault = groqFault
	}
	if c.fault == nil && isError {
		// Older vLLM sends the error object itself instead of wrapping it.
		c.fault = data
	}
	c.malformed = c.malformed || c.choice.malformed
	return c, true
}

// unlessNull returns the raw value, nil for null.
func (s *jsonScan) unlessNull() []byte {
	if s.null() {
		return nil
	}
	return s.skip()
}

// choices returns the first element with index 0 (or none given: that is the first of a single answer).
func (s *jsonScan) choices(part string) (first choice, found, malformed bool) {
	if s.null() {
		return choice{}, false, false
	}
	if s.peek() != '[' {
		s.skip()
		return choice{}, false, true
	}
	for more := s.enter('['); more; more = s.more('[') {
		if s.peek() != '{' {
			s.skip()
			malformed = true
			continue
		}
		one, index := s.choice(part)
		if index == 0 && !found {
			first, found = one, true
		}
	}
	return first, found, malformed
}

func (s *jsonScan) choice(part string) (c choice, index int64) {
	for more := s.enter('{'); more; more = s.more('{') {
		switch key := s.key(); {
		case is(key, "index"):
			if index = s.count(); index == absent {
				index = 0
			}
		case is(key, part):
			c.content, c.filled, c.malformed = s.content()
		case is(key, "finish_reason"):
			c.finish = s.textOrSkip()
		case is(key, "usage"):
			c.usage, c.counted = s.usage()
		default:
			s.skip()
		}
	}
	return c, index
}

// content reads a delta or message and returns the literal of its content, nil if that is absent or null.
func (s *jsonScan) content() (text JSONString, filled, malformed bool) {
	if s.null() {
		return nil, false, false
	}
	if s.peek() != '{' {
		s.skip()
		return nil, false, true
	}
	for more := s.enter('{'); more; more = s.more('{') {
		if !is(s.key(), "content") {
			s.skip()
			continue
		}
		text, malformed = nil, false
		switch {
		case s.peek() == '"':
			text = s.text()
		case s.peek() == '[':
			text, malformed = s.parts()
		case s.null():
		default:
			s.skip()
			malformed = true
		}
	}
	return text, true, malformed
}

// parts reads content that is an array and returns the literal of its text parts together. Parts of other types, such as the
// thinking of Mistral's models, are no text of the answer.
func (s *jsonScan) parts() (text JSONString, malformed bool) {
	copied := false
	for more := s.enter('['); more; more = s.more('[') {
		if s.peek() != '{' {
			s.skip()
			malformed = true
			continue
		}
		piece, ok := s.part()
		malformed = malformed || !ok
		switch {
		case piece == nil:
		case text == nil:
			text = piece
		default:
			if !copied { // the first piece is a part of the document
				text, copied = slices.Clone(text), true
			}
			text = append(text[:len(text)-1], piece[1:]...)
		}
	}
	return text, malformed
}

// part reads one part of content and returns the literal of its text, nil if it is no text part. ok is false if it has no
// type, or is a text part without a string.
func (s *jsonScan) part() (text JSONString, ok bool) {
	var kind JSONString
	for more := s.enter('{'); more; more = s.more('{') {
		switch key := s.key(); {
		case is(key, "type"):
			kind = s.textOrSkip()
		case is(key, "text"):
			text = s.textOrSkip()
		default:
			s.skip()
		}
	}
	if is(kind, "text") {
		return text, text != nil
	}
	return nil, kind != nil
}

// groq reads the extension in which Groq reports usage and why it stopped early.
func (s *jsonScan) groq() (u Usage, counted bool, fault []byte) {
	if s.peek() != '{' {
		s.skip()
		return u, false, nil
	}
	for more := s.enter('{'); more; more = s.more('{') {
		switch key := s.key(); {
		case is(key, "usage"):
			u, counted = s.usage()
		case is(key, "error"):
			fault = s.unlessNull()
		default:
			s.skip()
		}
	}
	return u, counted, fault
}

// usage reads a usage object. One that lacks a count, or has one that is negative or not whole, is no report.
func (s *jsonScan) usage() (u Usage, counted bool) {
	if s.peek() != '{' {
		s.skip()
		return u, false
	}
	prompt, completion, total := int64(absent), int64(absent), int64(absent)
	cached, hits := int64(absent), int64(absent)
	for more := s.enter('{'); more; more = s.more('{') {
		switch key := s.key(); {
		case is(key, "prompt_tokens"):
			prompt = s.count()
		case is(key, "completion_tokens"):
			completion = s.count()
		case is(key, "total_tokens"):
			total = s.count()
		case is(key, "prompt_tokens_details"):
			cached = s.cachedTokens()
		case is(key, "prompt_cache_hit_tokens"): // DeepSeek
			hits = s.count()
		default:
			s.skip()
		}
	}
	if completion == absent && prompt >= 0 && total >= prompt {
		completion = 0 // Gemini leaves a zero out
	}
	if prompt < 0 || completion < 0 {
		return Usage{}, false
	}
	if cached < 0 {
		cached = hits
	}
	if cached < 0 || cached > prompt {
		cached = 0
	}
	return Usage{
		PromptTokens: prompt, CompletionTokens: completion, CachedPromptTokens: cached,
		OnlyInTotal: max(0, total-prompt-completion),
	}, true
}

func (s *jsonScan) cachedTokens() int64 {
	if s.peek() != '{' {
		s.skip()
		return absent
	}
	cached := int64(absent)
	for more := s.enter('{'); more; more = s.more('{') {
		if is(s.key(), "cached_tokens") {
			cached = s.count()
		} else {
			s.skip()
		}
	}
	return cached
}

// maxFinishReason bounds a finish reason in bytes.
const maxFinishReason = 32

// finishReason returns the vendor's finish reason, "" if it gave none. One that is no plain word is "stop": it
// reaches the client as it is.
func finishReason(literal JSONString) string {
	word := literal.Text()
	if len(word) > maxFinishReason {
		return "stop"
	}
	for _, r := range word {
		plain := r == '_' || r == '-' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z')
		if !plain {
			return "stop"
		}
	}
	return word
}
