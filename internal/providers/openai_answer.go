package providers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
)

// readAnswer reads a non-stream answer to its end and ends the call.
func readAnswer(c *call, resp *http.Response, body io.Reader, apiKey string) (Events, *Error) {
	raw, err := readAll(&heldReader{src: &cappedReader{body, maxAnswerBytes}, call: c}, min(resp.ContentLength, smallAnswerBytes))
	switch {
	case errors.Is(err, errManyLarge):
		return nil, &Error{Failure: FailureOverloaded, Status: resp.StatusCode, Cause: err}
	case errors.Is(err, errAnswerTooLarge):
		return nil, &Error{Failure: FailureRefused, Status: resp.StatusCode, Cause: err}
	case err != nil:
		return nil, c.failure(err)
	}
	event, failure := parseAnswer(raw, apiKey)
	if failure != nil {
		failure.Status = resp.StatusCode
		return nil, failure
	}
	c.end()
	return &answer{event: event}, nil
}

// parseAnswer turns the body of a non-stream answer into one event with everything.
func parseAnswer(raw []byte, apiKey string) (Event, *Error) {
	doc, ok := readChunk(raw, whole)
	if !ok {
		if isErrorList(raw) {
			return Event{}, classify(readVendorFault(raw), 0, apiKey)
		}
		return Event{}, notAnAnswer("the answer is no JSON object")
	}
	if doc.fault != nil {
		return Event{}, classify(readVendorFault(doc.fault), 0, apiKey)
	}
	if doc.malformed || !doc.chosen || !doc.filled {
		return Event{}, notAnAnswer("the answer has no choice with a message")
	}
	event := Event{Text: doc.content.Text(), FinishReason: finishReason(doc.finish)}
	switch event.FinishReason {
	case "error":
		return Event{}, notAnAnswer("the vendor ended the answer with an error")
	case "":
		event.FinishReason = "stop"
	}
	if doc.counted {
		event.Usage = &doc.usage
	}
	return event, nil
}

// isErrorList: Gemini wraps its error object into an array.
func isErrorList(raw []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("["))
}

func notAnAnswer(detail string) *Error {
	return &Error{Failure: FailureRefused, Detail: detail}
}

// readAll reads src; size is a hint, -1 if unknown.
func readAll(src io.Reader, size int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(max(size, 2048), 1<<20)) + bytes.MinRead)
	_, err := b.ReadFrom(src)
	return b.Bytes(), err
}

// answer is a non-stream answer: one event.
type answer struct {
	event Event
	given bool
}

// Next implements [Events].
func (a *answer) Next() (Event, error) {
	if a.given {
		return Event{}, io.EOF
	}
	a.given = true
	return a.event, nil
}

// Buffered implements [Events].
func (a *answer) Buffered() bool { return true }

// Close implements [Events]; the connection is free already.
func (a *answer) Close() {}

// refusal turns an answer with another status than 200 into an error. The status is known, so whatever happens
// while its body is read changes nothing.
func (p *OpenAI) refusal(c *call, resp *http.Response, apiKey string) *Error {
	cause := context.Cause(c.ctx)
	if cause != nil {
		return c.failure(nil)
	}
	c.arm(min(p.timeouts.Idle, maxErrorWait), p.idleTimeout)
	var raw []byte
	if body, err := decodedBody(resp); err == nil {
		raw, _ = readAll(io.LimitReader(body, maxErrorBytes), resp.ContentLength)
	}
	c.disarm()
	fault := readVendorFault(raw)
	fault.header = resp.Header
	return classify(fault, resp.StatusCode, apiKey)
}
