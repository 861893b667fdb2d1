package openai

import (
	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

// chunk contains the relevant members of one JSON document of an OpenAI-compatible answer: an event of a stream, or the whole
// body of another answer. All other members (reasoning, tool calls, ids, other choices) are dropped.
type chunk struct {
	choice
	// chosen is set if there is a choice with index 0.
	chosen bool
	// usage is the vendor's count if counted is set, from any of the places where vendors put it.
	usage   providers.Usage
	counted bool
	// model is the name of the answering model. It may be nil.
	model jsonscan.Literal
	// fault is the JSON value of a non-null error.
	fault []byte
	// malformed is set if a relevant member has a type that it can't have.
	malformed bool
}

// choice is one element of "choices".
type choice struct {
	content providers.JSONString
	// contentAt is the offset of content in the document. 0 means that content was put together from several parts.
	contentAt int
	finish    providers.JSONString
	usage     providers.Usage // Moonshot counts in the choice
	counted   bool
	filled    bool // the delta or message is present
	malformed bool
}

// The member of a choice that contains the text: a piece of a stream, or the whole answer.
const (
	pieces = "delta"
	whole  = "message"
)

// readChunk reads one document in a single pass. part is the member with the text. As in encoding/json the last of repeated
// members counts, but names are matched exactly. ok is false if data isn't one valid JSON object.
func readChunk(data []byte, part string) (c chunk, ok bool) {
	s := newScanner(data)
	var groq providers.Usage
	var groqCounted, isError bool
	var groqFault []byte
	for more := s.Enter('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "choices":
			c.choice, c.chosen, c.malformed = s.choices(part)
		case "usage":
			c.usage, c.counted = s.usage()
		case "model":
			c.model = s.StringOrSkip()
		case "error":
			c.fault = s.UnlessNull()
		case "x_groq":
			groq, groqCounted, groqFault = s.groq()
		case "object":
			isError = string(s.Value()) == `"error"`
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
	if len(c.fault) > 0 && c.fault[0] == '"' && len(data) <= providers.MaxFault {
		c.fault = data // xAI's code is beside the text
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

func newScanner(data []byte) scanner { return scanner{jsonscan.Lenient(data, providers.MaxDepth)} }

// choices returns the first element with index 0. A missing index means 0.
func (s *scanner) choices(part string) (first choice, found, malformed bool) {
	if s.Null() {
		return choice{}, false, false
	}
	malformed = s.Peek() != '['
	for more := s.EnterOrSkip('['); more; more = s.More('[') {
		if s.Peek() != '{' {
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
		switch name := s.Name(); string(name) {
		case "index":
			if index = s.Count(); index == jsonscan.NoCount {
				index = 0
			}
		case pieces, whole:
			if string(name) == part {
				c.content, c.contentAt, c.filled, c.malformed = s.content()
			}
		case "finish_reason":
			c.finish = providers.JSONString(s.StringOrSkip())
		case "usage":
			c.usage, c.counted = s.usage()
		}
	}
	return c, index
}

// content reads a delta or message and returns the literal of its content, which is nil if the content is absent or null. A
// refusal replaces empty content: it is the answer, and the vendor charges for it. at is the offset of the literal, or 0 if it was
// put together from several parts.
func (s *scanner) content() (text providers.JSONString, at int, filled, malformed bool) {
	if s.Null() {
		return nil, 0, false, false
	}
	if s.Peek() != '{' {
		s.Skip()
		return nil, 0, false, true
	}
	var refusal providers.JSONString
	var refusalAt int
	for more := s.Enter('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "content":
		case "refusal":
			refusal = providers.JSONString(s.StringOrSkip())
			refusalAt = s.Offset() - len(refusal)
			continue
		default:
			continue
		}
		text, at, malformed = nil, 0, false
		switch {
		case s.Peek() == '"':
			text = providers.JSONString(s.String())
			at = s.Offset() - len(text)
		case s.Peek() == '[':
			text, malformed = s.parts()
		case s.Null():
		default:
			malformed = true
		}
	}
	if len(text) <= len(`""`) && len(refusal) > len(`""`) {
		text, at = refusal, refusalAt
	}
	return text, at, true, malformed
}

// parts reads content that is an array, and returns one literal with its text parts. Parts of other types, such as the thinking
// of Mistral's models, don't belong to the answer.
func (s *scanner) parts() (text providers.JSONString, malformed bool) {
	var joined providers.Joined
	for more := s.Enter('['); more; more = s.More('[') {
		if s.Peek() != '{' {
			malformed = true
			continue
		}
		piece, ok := s.part()
		malformed = malformed || !ok
		joined.Add(piece)
	}
	return joined.Text, malformed
}

// part reads one part of content and returns the literal of its text. A part of another type gives nil. ok is false if the part
// has no type, or is a text part without a string.
func (s *scanner) part() (text providers.JSONString, ok bool) {
	var kind jsonscan.Literal
	for more := s.Enter('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "type":
			kind = s.StringOrSkip()
		case "text":
			text = providers.JSONString(s.StringOrSkip())
		}
	}
	if string(s.Word(kind)) == "text" {
		return text, text != nil
	}
	return nil, kind != nil
}

// groq reads the extension in which Groq reports usage and the cause of an early end.
func (s *scanner) groq() (u providers.Usage, counted bool, fault []byte) {
	for more := s.EnterOrSkip('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "usage":
			u, counted = s.usage()
		case "error":
			fault = s.UnlessNull()
		}
	}
	return u, counted, fault
}

// usage reads a usage object. It is ignored if a count is missing, negative or not whole.
func (s *scanner) usage() (u providers.Usage, counted bool) {
	c := counts{prompt: jsonscan.NoCount, completion: jsonscan.NoCount, total: jsonscan.NoCount}
	for more := s.EnterOrSkip('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "prompt_tokens":
			c.prompt = s.Count()
		case "completion_tokens":
			c.completion = s.Count()
		case "total_tokens":
			c.total = s.Count()
		case "prompt_tokens_details", "completion_tokens_details":
			s.details(&c)
		case "prompt_cache_hit_tokens", "cached_tokens": // DeepSeek, Kimi
			c.cached = max(c.cached, s.Count())
		}
	}
	return c.usage()
}

// details reads an object of parts of the prompt or of the completion.
func (s *scanner) details(c *counts) {
	for more := s.EnterOrSkip('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "cached_tokens":
			c.cached = max(c.cached, s.Count())
		case "cache_write_tokens", "cache_creation_input_tokens": // OpenAI and OpenRouter, Qwen
			c.written = max(c.written, s.Count())
		case "reasoning_tokens":
			c.reasoning = max(c.reasoning, s.Count())
		}
	}
}

// counts are the numbers of a usage object, as results of [jsonscan.Scanner.Count]. The parts are 0 if the vendor doesn't report them.
type counts struct {
	prompt, completion, total  int64
	cached, written, reasoning int64
}

// usage returns the counts in the form of [providers.Usage]. counted is false if they can't be right.
func (c *counts) usage() (u providers.Usage, counted bool) {
	if c.completion == jsonscan.NoCount && c.prompt >= 0 && c.total >= c.prompt {
		c.completion = 0 // Gemini leaves a zero out
	}
	if c.prompt < 0 || c.completion < 0 {
		return providers.Usage{}, false
	}
	if c.cached > c.prompt {
		c.cached = 0
	}
	if c.written > c.prompt-c.cached {
		c.written = 0
	}
	// xAI and Gemini count reasoning, which is output, beside the completion: only the total has it. Other vendors' total shows that
	// the completion has it already.
	completion := max(c.completion, c.total-c.prompt)
	return providers.Usage{
		PromptTokens: c.prompt, CachedPromptTokens: c.cached, CacheWriteTokens: c.written,
		CompletionTokens: completion, ReasoningTokens: min(max(c.reasoning, completion-c.completion), completion),
	}, true
}
