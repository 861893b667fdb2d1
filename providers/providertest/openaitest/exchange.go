package openaitest

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

// exchange is one request and its answer.
type exchange struct {
	upstream *Upstream
	w        http.ResponseWriter
	ctx      context.Context
	req      *Request
	options  options
	stream   bool
	zip      *gzip.Writer
}

func (x *exchange) serve(name string) {
	if x.options["gate"] != "" && x.options["hold"] == "" && !x.upstream.wait(x.ctx, x.options["gate"]) {
		return
	}
	if status, err := strconv.Atoi(name); err == nil {
		x.serveStatus(status)
		return
	}
	if serve := answers[name]; serve != nil {
		serve(x)
		return
	}
	change := changes[name]
	if change == nil {
		x.send(http.StatusNotImplemented, "application/json", `{"error":{"message":"openaitest knows no scenario `+name+`"}}`)
		return
	}
	s := newScript(x.options)
	change(s)
	if x.stream {
		x.serveStream(s)
		return
	}
	x.serveAnswer(s)
}

// send answers at once.
func (x *exchange) send(status int, contentType, body string) {
	x.w.Header().Set("Content-Type", contentType)
	x.w.WriteHeader(status)
	_, _ = io.WriteString(x.w, body)
}

func (x *exchange) serveAnswer(s *script) {
	if s.fault != nil && !s.fault(x) {
		return
	}
	body := s.answer()
	x.begin(s.contentType, s.encoding)
	if s.truncated {
		x.w.Header().Set("Content-Length", strconv.Itoa(len(body)+1000))
	}
	if x.pause() {
		x.write(body)
	}
	x.finish()
}

// begin sets the headers; a vendor sends some that must not reach a client.
func (x *exchange) begin(contentType, encoding string) {
	h := x.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Set-Cookie", "up=1")
	h.Set("X-Ratelimit-Remaining-Requests", "99")
	if encoding != "" {
		h.Set("Content-Encoding", encoding)
	}
	if encoding == "gzip" {
		x.zip = gzip.NewWriter(x.w)
	}
}

func (x *exchange) serveStream(s *script) {
	contentType := s.contentType
	if contentType == "application/json" {
		contentType = "text/event-stream; charset=utf-8"
	}
	x.begin(contentType, s.encoding)
	x.flush()
	if s.mark {
		x.write("\uFEFF")
	}
	if x.events(s) {
		x.write(s.tail)
		if s.linger {
			x.flush()
			x.upstream.hang(x.ctx)
		}
	}
	x.finish()
}

// events sends the events up to [DONE]; it returns false if the script broke off.
func (x *exchange) events(s *script) bool {
	if s.raw != "" {
		x.write(s.raw)
		return true
	}
	if s.comments {
		x.write(": OPENROUTER PROCESSING\n\n: ping\n\nevent: message\nid: 1\nretry: 100\n")
	}
	x.write(s.first)
	switch s.role {
	case roleFirst:
		x.event(s, s.event(`{"role":"assistant","content":""}`, "", ""))
	case roleNull:
		x.event(s, s.event(`{"role":"assistant","content":null}`, "", ""))
	case roleNowhere, roleWithContent, roleOnEach:
	}
	for i, piece := range s.pieces {
		if !x.before(s, i) {
			return false
		}
		x.piece(s, i, piece)
	}
	if !x.before(s, len(s.pieces)) {
		return false
	}
	x.ending(s)
	return true
}

// before does what comes before piece i.
func (x *exchange) before(s *script, i int) bool {
	if x.options["hold"] == strconv.Itoa(i) && !x.upstream.wait(x.ctx, x.options["gate"]) {
		return false
	}
	if !x.pause() {
		return false
	}
	if s.comments {
		x.write(": ping\n\n")
	}
	if s.between != "" && i < len(s.pieces) {
		x.event(s, s.between)
	}
	if s.fault != nil && i == s.faultAt {
		return s.fault(x)
	}
	return true
}

func (x *exchange) piece(s *script, i int, piece string) {
	if s.splitPairs {
		for _, content := range s.halves(piece) {
			x.event(s, s.event(`{"content":`+content+`}`, "", ""))
		}
		return
	}
	delta, finish, more := `{"`+s.textIn+`":`+s.inForm(piece)+`}`, "", ""
	if s.role == roleOnEach || (s.role == roleWithContent && i == 0) {
		delta = `{"role":"assistant","content":` + quoted(piece) + `}`
	}
	last := i == len(s.pieces)-1
	if s.finishEachPiece || (s.finishOnPiece && last) {
		finish = s.finish
	}
	if s.finishOnPiece && last {
		more = s.usageOfFinish()
	}
	x.event(s, s.event(delta, finish, more))
}

func (s *script) usageOfFinish() string {
	switch {
	case s.usage == "":
		return ""
	case s.usagePlace == usageOnFinish:
		return `,"usage":` + s.usage
	case s.usagePlace == usageOnXGroq:
		return `,"x_groq":{"id":"req_1","usage":` + s.usage + `}`
	}
	return ""
}

func (x *exchange) ending(s *script) {
	if s.finish != "" && !s.finishOnPiece && !s.finishEachPiece {
		x.event(s, s.event(`{}`, s.finish, s.usageOfFinish()))
	}
	if s.usagePlace == usageFirstWins {
		x.event(s, s.event("", "", `,"usage":{"prompt_tokens":1,"completion_tokens":1}`))
	}
	if s.usage != "" && s.usagePlace != usageOnFinish && s.usagePlace != usageOnXGroq && s.usagePlace != usageInChoice {
		x.event(s, s.event("", "", `,"usage":`+s.usage))
	}
	if s.done {
		x.event(s, "[DONE]")
	}
}

// event sends one event and flushes.
func (x *exchange) event(s *script, data string) {
	line := s.tag + data + s.lineEnd + s.lineEnd
	if s.splitRunes {
		for i := 0; i < len(line); i++ {
			if line[i] >= utf8.RuneSelf && !utf8.RuneStart(line[i]) {
				x.write(line[:i])
				x.flush()
				line, i = line[i:], 0
			}
		}
	}
	x.write(line)
	x.flush()
}

// pause waits as long as the scenario says; it returns false when the client is gone.
func (x *exchange) pause() bool {
	d := x.options.delay()
	if d <= 0 {
		return x.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.ctx.Done():
		return false
	}
}

func (x *exchange) write(s string) {
	if x.zip != nil {
		_, _ = io.WriteString(x.zip, s)
		return
	}
	_, _ = io.WriteString(x.w, s)
}

func (x *exchange) flush() {
	if x.zip != nil {
		_ = x.zip.Flush()
	}
	_ = http.NewResponseController(x.w).Flush()
}

func (x *exchange) finish() {
	if x.zip != nil {
		_ = x.zip.Close()
	}
}
