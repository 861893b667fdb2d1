package openaitest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// script is the answer that the vendor is going to send; a scenario changes the good one.
type script struct {
	contentType string
	encoding    string // Content-Encoding, with the body to match for gzip
	pieces      []string
	usage       string // JSON, empty: none
	finish      string // empty: none
	textIn      string // name of the member with the text

	// Of streams only.
	lineEnd, tag    string // "\n", "data: "
	mark            bool   // byte order mark first
	comments        bool   // comments, ids and retries between the events
	splitRunes      bool   // each write ends inside a character, if there is one
	role            rolePlace
	usagePlace      usagePlace
	finishOnPiece   bool   // the last piece carries the finish reason
	finishEachPiece bool   // every piece does
	between         string // JSON event before each piece
	otherChoice     bool   // every event has a choice with index 1, too
	splitPairs      bool   // characters beyond 16 bits are escapes, with each half in a piece of its own
	halfPair        bool   // the last half doesn't come
	done            bool   // [DONE] at the end
	linger          bool   // the connection stays open at the end
	raw             string // sent instead of all events, as it is
	first           string // sent as it is before the events
	tail            string // sent as it is before the end
	inParts         bool   // content is an array of a thinking part and text parts
	fault           func(x *exchange) (goOn bool)
	faultAt         int // before this piece

	// Of other answers only.
	content   string // JSON of the content instead of the pieces
	document  string // the whole body instead
	truncated bool   // the body is shorter than announced
}

type rolePlace uint8

const (
	roleFirst rolePlace = iota // an event of its own
	roleNull                   // the same with content null
	roleNowhere
	roleWithContent
	roleOnEach
)

type usagePlace uint8

const (
	usageLast      usagePlace = iota // an event of its own without choices
	usageNull                        // the same, and usage null in all others
	usageOnFinish                    // in the event of the finish reason
	usageOnXGroq                     // there, in Groq's extension
	usageFirstWins                   // an own event; a smaller one came before it
	usageInChoice                    // in the choice that has the finish reason, as Kimi does
)

func newScript(o options) *script {
	s := &script{
		contentType: "application/json",
		finish:      cmp.Or(o["finish"], "stop"),
		textIn:      "content",
		lineEnd:     "\n",
		tag:         "data: ",
		done:        true,
		faultAt:     o.number("at", 2),
	}
	switch {
	case o["n"] != "":
		for i := range o.number("n", 0) {
			s.pieces = append(s.pieces, fmt.Sprintf("w%d ", i))
		}
	case o["size"] != "":
		s.pieces = []string{strings.Repeat("A", o.number("size", 0))}
	case o["text"] != "":
		s.pieces = strings.SplitAfter(o["text"], " ")
	default:
		s.pieces = []string{"Hello", " from", " upstream", "."}
	}
	pt, ct := o.number("pt", 11), o.number("ct", 7)
	s.usage = fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, pt, ct, pt+ct)
	if o["cached"] != "" {
		s.usage = fmt.Sprintf(`%s,"prompt_tokens_details":{"cached_tokens":%d,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":3}}`,
			strings.TrimSuffix(s.usage, "}"), o.number("cached", 0))
	}
	s.usage = cmp.Or(o["usage"], s.usage)
	return s
}

// answer is the body of a non-stream answer.
func (s *script) answer() string {
	if s.document != "" {
		return s.document
	}
	content := s.content
	if content == "" {
		content = s.inForm(strings.Join(s.pieces, ""))
	}
	finish := "null"
	if s.finish != "" {
		finish = quoted(s.finish)
	}
	usage, usageIn := "", ""
	if s.usage != "" {
		usage = `,"usage":` + s.usage
	}
	if s.usagePlace == usageInChoice {
		usage, usageIn = "", usage
	}
	return `{"id":"gen-1","object":"chat.completion","created":1700000000,"model":"upstream-model-x","system_fingerprint":"fp",` +
		`"choices":[{"index":0,"message":{"role":"assistant","` + s.other() + `":null,"` + s.textIn + `":` + content + `},"logprobs":null,"finish_reason":` +
		finish + usageIn + `}]` + usage + `}`
}

// other is the name of the member that has no text.
func (s *script) other() string {
	if s.textIn == "content" {
		return "refusal"
	}
	return "content"
}

// inForm is a piece of the text as a value of content.
func (s *script) inForm(piece string) string {
	if !s.inParts {
		return quoted(piece)
	}
	half := len(piece) / 2
	return `[{"type":"thinking","thinking":[{"type":"text","text":"hm"}],"closed":true},{"type":"text","text":` +
		quoted(piece[:half]) + `},{"text":` + quoted(piece[half:]) + `,"type":"text"}]`
}

// halves are the values of content of a piece whose surrogate pairs are cut.
func (s *script) halves(piece string) (contents []string) {
	begun := ""
	for _, r := range piece {
		high, low := utf16.EncodeRune(r)
		if high == utf8.RuneError {
			whole := quoted(string(r))
			begun += whole[1 : len(whole)-1]
			continue
		}
		contents = append(contents, fmt.Sprintf(`"%s\u%04x"`, begun, high), `""`)
		begun = fmt.Sprintf(`\u%04X`, low)
	}
	if s.halfPair {
		return contents
	}
	return append(contents, `"`+begun+`"`)
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// event is the JSON of one event of a stream; delta is empty for one without choices.
func (s *script) event(delta, finish, more string) string {
	choices := ""
	if delta != "" {
		if finish == "" {
			finish = "null"
		} else {
			finish = quoted(finish)
		}
		usage := ""
		if s.usagePlace == usageInChoice && finish != "null" {
			usage = `,"usage":` + s.usage
		}
		choices = `{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + finish + usage + `}`
		if s.otherChoice {
			choices = `{"index":1,"delta":{"content":"WRONG"},"finish_reason":"length"},` + choices
		}
	}
	if s.usagePlace == usageNull && more == "" {
		more = `,"usage":null`
	}
	return `{"id":"gen-1","object":"chat.completion.chunk","created":1700000000,"model":"upstream-model-x","choices":[` +
		choices + `]` + more + `}`
}
