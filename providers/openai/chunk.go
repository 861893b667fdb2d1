package openai

import (
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

// chunk is what counts in one JSON document of an OpenAI-compatible answer: an event of a stream, or the whole body
// of a non-stream answer. Everything else in it (reasoning, tool calls, refusals, ids, other choices) is dropped.
type chunk struct {
	choice
	// chosen: there is a choice with index 0.
	chosen bool
	// usage is the vendor's count, if counted is true, from any of the places where vendors put it.
	usage   providers.Usage
	counted bool
	// fault is the JSON value of a non-null error.
	fault []byte
	// malformed: a part that matters has a type it can't have.
	malformed bool
}

// choice is one element of "choices".
type choice struct {
	content   providers.JSONString
	finish    providers.JSONString
	usage     providers.Usage // Moonshot counts in the choice
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
	s := scanner{jsonscan.New(data)}
	var groq providers.Usage
	var groqCounted, isError bool
	var groqFault []byte
	for more := s.Enter('{'); more; more = s.More('{') {
		switch key := s.Key(); {
		case jsonscan.Is(key, "choices"):
			c.choice, c.chosen, c.malformed = s.choices(part)
		case jsonscan.Is(key, "usage"):
			c.usage, c.counted = s.usage()
		case jsonscan.Is(key, "error"):
			c.fault = s.unlessNull()
		case jsonscan.Is(key, "x_groq"):
			groq, groqCounted, groqFault = s.groq()
		case jsonscan.Is(key, "object"):
			value := s.Skip()
			isError = string(value) == `"error"`
		default:
			s.Skip()
		}
	}
	if !s.End() {
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

// scanner reads the parts of a document.
type scanner struct{ jsonscan.Scanner }

// unlessNull returns the raw value, nil for null.
func (s *scanner) unlessNull() []byte {
	if s.Null() {
		return nil
	}
	return s.Skip()
}

// choices returns the first element with index 0 (or none given: that is the first of a single answer).
func (s *scanner) choices(part string) (first choice, found, malformed bool) {
	if s.Null() {
		return choice{}, false, false
	}
	if s.Peek() != '[' {
		s.Skip()
		return choice{}, false, true
	}
	for more := s.Enter('['); more; more = s.More('[') {
		if s.Peek() != '{' {
			s.Skip()
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

func (s *scanner) choice(part string) (c choice, index int64) {
	for more := s.Enter('{'); more; more = s.More('{') {
		switch key := s.Key(); {
		case jsonscan.Is(key, "index"):
			if index = s.Count(); index == jsonscan.Absent {
				index = 0
			}
		case jsonscan.Is(key, part):
			c.content, c.filled, c.malformed = s.content()
		case jsonscan.Is(key, "finish_reason"):
			c.finish = s.TextOrSkip()
		case jsonscan.Is(key, "usage"):
			c.usage, c.counted = s.usage()
		default:
			s.Skip()
		}
	}
	return c, index
}

// content reads a delta or message and returns the literal of its content, nil if that is absent or null.
func (s *scanner) content() (text providers.JSONString, filled, malformed bool) {
	if s.Null() {
		return nil, false, false
	}
	if s.Peek() != '{' {
		s.Skip()
		return nil, false, true
	}
	for more := s.Enter('{'); more; more = s.More('{') {
		if !jsonscan.Is(s.Key(), "content") {
			s.Skip()
			continue
		}
		text, malformed = nil, false
		switch {
		case s.Peek() == '"':
			text = s.Text()
		case s.Peek() == '[':
			text, malformed = s.parts()
		case s.Null():
		default:
			s.Skip()
			malformed = true
		}
	}
	return text, true, malformed
}

// parts reads content that is an array and returns the literal of its text parts together. Parts of other types, such as the
// thinking of Mistral's models, are no text of the answer.
func (s *scanner) parts() (text providers.JSONString, malformed bool) {
	copied := false
	for more := s.Enter('['); more; more = s.More('[') {
		if s.Peek() != '{' {
			s.Skip()
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
func (s *scanner) part() (text providers.JSONString, ok bool) {
	var kind providers.JSONString
	for more := s.Enter('{'); more; more = s.More('{') {
		switch key := s.Key(); {
		case jsonscan.Is(key, "type"):
			kind = s.TextOrSkip()
		case jsonscan.Is(key, "text"):
			text = s.TextOrSkip()
		default:
			s.Skip()
		}
	}
	if jsonscan.Is(kind, "text") {
		return text, text != nil
	}
	return nil, kind != nil
}

// groq reads the extension in which Groq reports usage and why it stopped early.
func (s *scanner) groq() (u providers.Usage, counted bool, fault []byte) {
	if s.Peek() != '{' {
		s.Skip()
		return u, false, nil
	}
	for more := s.Enter('{'); more; more = s.More('{') {
		switch key := s.Key(); {
		case jsonscan.Is(key, "usage"):
			u, counted = s.usage()
		case jsonscan.Is(key, "error"):
			fault = s.unlessNull()
		default:
			s.Skip()
		}
	}
	return u, counted, fault
}

// usage reads a usage object. One that lacks a count, or has one that is negative or not whole, is no report.
func (s *scanner) usage() (u providers.Usage, counted bool) {
	if s.Peek() != '{' {
		s.Skip()
		return u, false
	}
	prompt, completion, total := int64(jsonscan.Absent), int64(jsonscan.Absent), int64(jsonscan.Absent)
	cached, hits := int64(jsonscan.Absent), int64(jsonscan.Absent)
	for more := s.Enter('{'); more; more = s.More('{') {
		switch key := s.Key(); {
		case jsonscan.Is(key, "prompt_tokens"):
			prompt = s.Count()
		case jsonscan.Is(key, "completion_tokens"):
			completion = s.Count()
		case jsonscan.Is(key, "total_tokens"):
			total = s.Count()
		case jsonscan.Is(key, "prompt_tokens_details"):
			cached = s.cachedTokens()
		case jsonscan.Is(key, "prompt_cache_hit_tokens"): // DeepSeek
			hits = s.Count()
		default:
			s.Skip()
		}
	}
	if completion == jsonscan.Absent && prompt >= 0 && total >= prompt {
		completion = 0 // Gemini leaves a zero out
	}
	if prompt < 0 || completion < 0 {
		return providers.Usage{}, false
	}
	if cached < 0 {
		cached = hits
	}
	if cached < 0 || cached > prompt {
		cached = 0
	}
	return providers.Usage{
		PromptTokens: prompt, CompletionTokens: completion, CachedPromptTokens: cached,
		OnlyInTotal: max(0, total-prompt-completion),
	}, true
}

func (s *scanner) cachedTokens() int64 {
	if s.Peek() != '{' {
		s.Skip()
		return jsonscan.Absent
	}
	cached := int64(jsonscan.Absent)
	for more := s.Enter('{'); more; more = s.More('{') {
		if jsonscan.Is(s.Key(), "cached_tokens") {
			cached = s.Count()
		} else {
			s.Skip()
		}
	}
	return cached
}
