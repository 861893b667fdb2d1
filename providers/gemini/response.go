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
	text   providers.Joined
	finish jsonscan.Literal
	// counts are the tokens so far.
	counts counts
	// textAt is the offset of the only part of the text in the document, or 0.
	textAt int
	// numbers are the places of the first numbered counts in the document. repeated is set if a count is there twice.
	numbers  [countsEnd]number
	numbered int
	repeated bool
	// blocked is set if the prompt was refused. Such a response has no candidate.
	blocked bool
	// model is the name of the answering model. It may be nil.
	model jsonscan.Literal
	// fault is the JSON value of a non-null error.
	fault []byte
	// malformed is set if a relevant member has a type that it can't have.
	malformed bool
}

// readResponse reads one document in a single pass. ok is false if data isn't one valid JSON object.
func readResponse(data []byte) (r response, ok bool) {
	s := newScanner(data)
	r.counts = noCounts
	for more := s.Enter('{'); more; more = s.More('{') {
		switch string(s.Name()) {
		case "candidates":
			s.candidates(&r)
		case "usageMetadata":
			s.usage(&r)
		case "promptFeedback":
			r.blocked = s.feedback()
		case "modelVersion":
			r.model = s.StringOrSkip()
		case "error":
			r.fault = s.UnlessNull()
		}
	}
	return r, s.End()
}

// scanner reads the parts of a document.
type scanner struct{ jsonscan.Scanner }

func newScanner(data []byte) scanner { return scanner{jsonscan.Lenient(data, providers.MaxDepth)} }

// enter is like [jsonscan.Scanner.EnterOrSkip]. A skipped value is malformed unless it is null.
func (s *scanner) enter(open byte, r *response) bool {
	r.malformed = r.malformed || s.Peek() != open && s.Peek() != 'n'
	return s.EnterOrSkip(open)
}

// candidates reads the first candidate. No more are requested.
func (s *scanner) candidates(r *response) {
	first := true
	for more := s.enter('[', r); more; more = s.More('[') {
		if first {
			s.candidate(r)
		}
		first = false
	}
}

func (s *scanner) candidate(r *response) {
	for more := s.enter('{', r); more; more = s.More('{') {
		switch string(s.Name()) {
		case "content":
			s.content(r)
		case "finishReason":
			r.finish = s.StringOrSkip()
		}
	}
}

// content reads the parts of a candidate. The last response of a stream may have no content, or content without parts.
func (s *scanner) content(r *response) {
	for more := s.enter('{', r); more; more = s.More('{') {
		if string(s.Name()) != "parts" {
			continue
		}
		if s.Peek() == '[' {
			r.text, r.textAt = providers.Joined{}, 0
		}
		for more := s.enter('[', r); more; more = s.More('[') {
			s.part(r)
		}
	}
}

// part reads one part. Parts that aren't text and thoughts don't belong to the answer.
func (s *scanner) part(r *response) {
	var text providers.JSONString
	at, thought := 0, false
	for more := s.enter('{', r); more; more = s.More('{') {
		switch string(s.Name()) {
		case "text":
			r.malformed = r.malformed || s.Peek() != '"' && s.Peek() != 'n'
			text = providers.JSONString(s.StringOrSkip())
			at = s.Offset() - len(text)
		case "thought":
			thought = string(s.Value()) == "true"
		}
	}
	if thought || text == nil {
		return
	}
	r.text.Add(text)
	if r.textAt = at; r.text.Copied {
		r.textAt = 0
	}
}

// feedback reports whether promptFeedback has a reason for which the prompt was refused.
func (s *scanner) feedback() (blocked bool) {
	for more := s.EnterOrSkip('{'); more; more = s.More('{') {
		if string(s.Name()) == "blockReason" {
			blocked = len(s.StringOrSkip().Inner()) > 0
		}
	}
	return blocked
}

// counts are the members of usageMetadata, as results of [jsonscan.Scanner.Count].
type counts [countsEnd]int64

const (
	promptCount = iota
	toolsCount
	cachedCount
	candidatesCount
	thoughtsCount
	totalCount
	countsEnd
)

// countNames are the members of usageMetadata that have a count.
var countNames = map[string]int{
	"promptTokenCount": promptCount, "toolUsePromptTokenCount": toolsCount, "cachedContentTokenCount": cachedCount,
	"candidatesTokenCount": candidatesCount, "thoughtsTokenCount": thoughtsCount, "totalTokenCount": totalCount,
}

var noCounts = counts{
	jsonscan.NoCount, jsonscan.NoCount, jsonscan.NoCount, jsonscan.NoCount, jsonscan.NoCount, jsonscan.NoCount,
}

// number is the place of a count in a document.
type number struct{ count, at, end int }

// usage reads usageMetadata.
func (s *scanner) usage(r *response) {
	r.counts, r.numbered, r.repeated = noCounts, 0, false
	for more := s.EnterOrSkip('{'); more; more = s.More('{') {
		which, known := countNames[string(s.Name())]
		if !known {
			continue
		}
		r.repeated = r.repeated || slices.ContainsFunc(r.numbers[:r.numbered], func(n number) bool { return n.count == which })
		isNumber := jsonscan.IsNumber(s.Peek())
		at := s.Offset()
		r.counts[which] = s.Count()
		if isNumber && !r.repeated {
			r.numbers[r.numbered] = number{which, at, s.Offset()}
			r.numbered++
		}
	}
}

// usage returns the usage. The prompt's count includes cached tokens, but not the tokens of tools. The candidates' count excludes
// thoughts. Zeros are left out, and so may the count of the candidates be while only the total has the thoughts. A report with a count
// that isn't a whole number is ignored, and so is a report without the prompt.
func (c *counts) usage() (u providers.Usage, counted bool) {
	if c[promptCount] < 0 || min(c[toolsCount], c[candidatesCount], c[thoughtsCount]) == jsonscan.InvalidCount {
		return u, false
	}
	u.PromptTokens = c[promptCount] + max(c[toolsCount], 0)
	u.ReasoningTokens = max(c[thoughtsCount], 0)
	u.CompletionTokens = max(max(c[candidatesCount], 0)+u.ReasoningTokens, c[totalCount]-u.PromptTokens)
	if cached := c[cachedCount]; cached > 0 && cached <= u.PromptTokens {
		u.CachedPromptTokens = cached
	}
	return u, true
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

// frame is a response that contains only text and usage: the bytes before the text, and the bytes before, between and after the
// numbers of the usage. Of the next response with the same bytes in these places only the text and the numbers are read.
type frame struct {
	head     []byte
	between  [countsEnd + 1][]byte
	numbers  [countsEnd]number
	numbered int
}

// remember stores the frame of a response, unless its text has no part or several, its usage comes before its text, or a count is
// there twice.
func (f *frame) remember(data []byte, r *response) {
	at := r.textAt + len(r.text.Text)
	early := r.numbered > 0 && r.numbers[0].at < at
	if r.textAt == 0 || early || r.repeated || r.blocked || len(data)-len(r.text.Text) > maxFrame {
		return
	}
	f.head = append(f.head[:0], data[:r.textAt]...)
	f.numbers, f.numbered = r.numbers, r.numbered
	for i, n := range r.numbers[:r.numbered] {
		f.between[i] = append(f.between[i][:0], data[at:n.at]...)
		at = n.end
	}
	f.between[r.numbered] = append(f.between[r.numbered][:0], data[at:]...)
}

// content returns the literal of a response's text and its counts, or nil if the response must be parsed.
func (f *frame) content(data []byte) (providers.JSONString, counts) {
	c := noCounts
	rest, same := bytes.CutPrefix(data, f.head)
	if !same || len(f.head) == 0 {
		return nil, c
	}
	s := newScanner(rest)
	text := s.String()
	rest = rest[s.Offset():]
	for i, n := range f.numbers[:f.numbered] {
		if rest, same = bytes.CutPrefix(rest, f.between[i]); !same {
			return nil, c
		}
		count, size := cutCount(rest)
		if size == 0 {
			return nil, c
		}
		c[n.count], rest = count, rest[size:]
	}
	if text == nil || !bytes.Equal(rest, f.between[f.numbered]) {
		return nil, c
	}
	return providers.JSONString(text), c
}

// cutCount returns the count that begins with the first byte, and its length. The length is 0 if it isn't in the usual form.
func cutCount(b []byte) (count int64, size int) {
	const longest = 15
	for size < len(b) && b[size] >= '0' && b[size] <= '9' {
		count = 10*count + int64(b[size]-'0')
		size++
		if size > longest || b[0] == '0' && size > 1 {
			return 0, 0
		}
	}
	return count, size
}
