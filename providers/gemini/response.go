package gemini

import (
	"bytes"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

// response contains the relevant members of one GenerateContentResponse: one of a stream, or a whole answer. All other members
// (thoughts, signatures, calls of functions, safety ratings, further candidates) are dropped.
type response struct {
	text   joined
	finish jsonscan.Literal
	// usage is the count of the tokens so far if counted is set.
	usage   providers.Usage
	counted bool
	// textAt, usageAt and usageEnd are the offsets of the only part of the text and of the usage in the document, or 0.
	textAt, usageAt, usageEnd int
	// blocked is set if the prompt was refused. Such a response has no candidate.
	blocked bool
	// model is the name of the answering model. It may be nil.
	model jsonscan.Literal
	// fault is the JSON value of a non-null error.
	fault []byte
	// malformed is set if a relevant member has a type that it can't have.
	malformed bool
}

// joined is a text of several literals. The first literal isn't copied.
type joined struct {
	literal providers.JSONString
	copied  bool
}

func (j *joined) add(piece providers.JSONString) {
	switch {
	case piece == nil:
	case j.literal == nil:
		j.literal = piece
	default:
		if !j.copied {
			j.literal, j.copied = slices.Clone(j.literal), true
		}
		j.literal = append(j.literal[:len(j.literal)-1], piece[1:]...)
	}
}

// readResponse reads one document in a single pass. ok is false if data isn't one valid JSON object.
func readResponse(data []byte) (r response, ok bool) {
	s := newScanner(data)
	var buf [jsonscan.MaxWord]byte
	for more := s.Enter('{'); more; more = s.More('{') {
		switch string(s.Key().Word(&buf)) {
		case "candidates":
			s.candidates(&r)
		case "usageMetadata":
			s.Peek()
			r.usageAt = s.Offset()
			r.usage, r.counted = s.usage()
			r.usageEnd = s.Offset()
		case "promptFeedback":
			r.blocked = s.feedback()
		case "modelVersion":
			r.model = s.stringOrSkip()
		case "error":
			r.fault = s.unlessNull()
		default:
			s.Skip()
		}
	}
	return r, s.End()
}

// maxDepth limits the nesting of a vendor's JSON. No answer of a model is deeper.
const maxDepth = 512

// scanner reads the parts of a document.
type scanner struct{ jsonscan.Scanner }

func newScanner(data []byte) scanner { return scanner{jsonscan.Lenient(data, maxDepth)} }

// stringOrSkip reads a string. It skips any other value and returns nil.
func (s *scanner) stringOrSkip() jsonscan.Literal {
	if s.Peek() == '"' {
		return s.String()
	}
	s.Skip()
	return nil
}

// unlessNull returns the raw value. Null gives nil.
func (s *scanner) unlessNull() []byte {
	if s.Null() {
		return nil
	}
	return s.Value()
}

// begins reports whether a value begins with the bracket open. It skips any other value, which is malformed unless it is null.
func (s *scanner) begins(open byte, r *response) bool {
	switch {
	case s.Peek() == open:
		return true
	case s.Null():
	default:
		s.Skip()
		r.malformed = true
	}
	return false
}

// candidates reads the first candidate. No more are requested.
func (s *scanner) candidates(r *response) {
	if !s.begins('[', r) {
		return
	}
	first := true
	for more := s.Enter('['); more; more = s.More('[') {
		if first {
			s.candidate(r)
		} else {
			s.Skip()
		}
		first = false
	}
}

func (s *scanner) candidate(r *response) {
	if !s.begins('{', r) {
		return
	}
	var buf [jsonscan.MaxWord]byte
	for more := s.Enter('{'); more; more = s.More('{') {
		switch string(s.Key().Word(&buf)) {
		case "content":
			s.content(r)
		case "finishReason":
			r.finish = s.stringOrSkip()
		default:
			s.Skip()
		}
	}
}

// content reads the parts of a candidate. The last response of a stream may have no content, or content without parts.
func (s *scanner) content(r *response) {
	if !s.begins('{', r) {
		return
	}
	var buf [jsonscan.MaxWord]byte
	for more := s.Enter('{'); more; more = s.More('{') {
		if string(s.Key().Word(&buf)) != "parts" {
			s.Skip()
			continue
		}
		if !s.begins('[', r) {
			continue
		}
		r.text, r.textAt = joined{}, 0
		for more := s.Enter('['); more; more = s.More('[') {
			s.part(r)
		}
	}
}

// part reads one part. Parts that aren't text and thoughts don't belong to the answer.
func (s *scanner) part(r *response) {
	if !s.begins('{', r) {
		return
	}
	var buf [jsonscan.MaxWord]byte
	var text providers.JSONString
	at, thought := 0, false
	for more := s.Enter('{'); more; more = s.More('{') {
		switch string(s.Key().Word(&buf)) {
		case "text":
			switch {
			case s.Peek() == '"':
				text = providers.JSONString(s.String())
				at = s.Offset() - len(text)
			case s.Null():
			default:
				s.Skip()
				r.malformed = true
			}
		case "thought":
			thought = string(s.Value()) == "true"
		default:
			s.Skip()
		}
	}
	if thought || text == nil {
		return
	}
	r.text.add(text)
	if r.textAt = at; r.text.copied {
		r.textAt = 0
	}
}

// feedback reports whether promptFeedback has a reason for which the prompt was refused.
func (s *scanner) feedback() (blocked bool) {
	if s.Peek() != '{' {
		s.Skip()
		return false
	}
	var buf [jsonscan.MaxWord]byte
	for more := s.Enter('{'); more; more = s.More('{') {
		if string(s.Key().Word(&buf)) == "blockReason" {
			blocked = len(s.stringOrSkip().Inner()) > 0
		} else {
			s.Skip()
		}
	}
	return blocked
}

const (
	// absent is the result of [scanner.count] for null.
	absent = -1
	// invalid is the result of [scanner.count] for anything but a count.
	invalid = -2
)

// count reads a token count: a whole number of 0 or more in any notation. It returns absent for null and invalid for anything
// else.
func (s *scanner) count() int64 {
	if s.Null() {
		return absent
	}
	if !jsonscan.IsNumber(s.Peek()) {
		s.Skip()
		return invalid
	}
	number := s.Number()
	if number == nil {
		return invalid
	}
	if n, ok := jsonscan.Integer(number); ok && n >= 0 {
		return n
	}
	return invalid
}

// usage reads usageMetadata. The prompt's count includes cached tokens, but not the tokens of tools. The candidates' count
// excludes thoughts. Zeros are left out, and so may the count of the candidates be while only the total has the thoughts. A report
// with a count that isn't a whole number is ignored, and so is a report without the prompt.
func (s *scanner) usage() (u providers.Usage, counted bool) {
	if s.Peek() != '{' {
		s.Skip()
		return u, false
	}
	prompt, tools, cached := int64(absent), int64(absent), int64(absent)
	candidates, thoughts, total := int64(absent), int64(absent), int64(absent)
	var buf [jsonscan.MaxWord]byte
	for more := s.Enter('{'); more; more = s.More('{') {
		switch string(s.Key().Word(&buf)) {
		case "promptTokenCount":
			prompt = s.count()
		case "toolUsePromptTokenCount":
			tools = s.count()
		case "cachedContentTokenCount":
			cached = s.count()
		case "candidatesTokenCount":
			candidates = s.count()
		case "thoughtsTokenCount":
			thoughts = s.count()
		case "totalTokenCount":
			total = s.count()
		default:
			s.Skip()
		}
	}
	if prompt < 0 || min(tools, candidates, thoughts) == invalid {
		return u, false
	}
	prompt += max(tools, 0)
	thoughts = max(thoughts, 0)
	if cached < 0 || cached > prompt {
		cached = 0
	}
	return providers.Usage{
		PromptTokens: prompt, CachedPromptTokens: cached,
		CompletionTokens: max(max(candidates, 0)+thoughts, total-prompt), ReasoningTokens: thoughts,
	}, true
}

// finishReason returns the finish reason in OpenAI's words, which may be empty. begun says that there was text. A reason that isn't
// listed (OTHER, LANGUAGE, MALFORMED_FUNCTION_CALL and others) ends an answer with text, and is a failure of the vendor's without.
func (r *response) finishReason(begun bool) (string, error) {
	var buf [jsonscan.MaxWord]byte
	switch reason := string(r.finish.Word(&buf)); {
	case len(r.finish.Inner()) == 0 || reason == "FINISH_REASON_UNSPECIFIED":
		if r.blocked {
			return "content_filter", nil
		}
		return "", nil
	case reason == "STOP":
		return "stop", nil
	case reason == "MAX_TOKENS":
		return "length", nil
	case slices.Contains(filtered, reason), strings.HasPrefix(reason, "IMAGE_"):
		return "content_filter", nil
	case begun:
		return "stop", nil
	default:
		return "", providers.NotAnAnswer("the vendor ended the answer without text: " + reason)
	}
}

// filtered are the finish reasons of an answer that the vendor withheld or cut for its content, beside those about images.
var filtered = []string{"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"}

// maxFrame limits the bytes of a response that a stream remembers.
const maxFrame = 2 << 10

// frame is a response that contains only text and usage: the bytes before the text, between it and the usage, and after the usage.
// Of the next response with the same bytes in these places only the text and the usage are read.
type frame struct {
	head, middle, tail []byte
	counted            bool
}

// remember stores the frame of a response, unless its text has no part or several, or its usage comes before its text.
func (f *frame) remember(data []byte, r *response) {
	end := r.textAt + len(r.text.literal)
	if r.textAt == 0 || r.blocked || len(data)-len(r.text.literal) > maxFrame || r.counted != (r.usageAt > end) {
		return
	}
	f.counted = r.counted
	f.head = append(f.head[:0], data[:r.textAt]...)
	if !f.counted {
		r.usageAt, r.usageEnd = len(data), len(data)
	}
	f.middle = append(f.middle[:0], data[end:r.usageAt]...)
	f.tail = append(f.tail[:0], data[r.usageEnd:]...)
}

// content returns the literal of a response's text and stores the usage, or returns nil if the response must be parsed.
func (f *frame) content(data []byte, usage *providers.Usage) providers.JSONString {
	rest, begins := bytes.CutPrefix(data, f.head)
	if !begins || len(f.head) == 0 {
		return nil
	}
	s := newScanner(rest)
	text := s.String()
	if text == nil {
		return nil
	}
	rest, same := bytes.CutPrefix(rest[s.Offset():], f.middle)
	if !same {
		return nil
	}
	var now providers.Usage
	if f.counted {
		s = newScanner(rest)
		if now, same = s.usage(); !same {
			return nil
		}
		rest = rest[s.Offset():]
	}
	if !bytes.Equal(rest, f.tail) {
		return nil
	}
	if f.counted {
		*usage = now
	}
	return providers.JSONString(text)
}
