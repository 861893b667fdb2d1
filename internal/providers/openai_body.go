package providers

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const (
	// maxAnswerBytes bounds a non-stream answer after decompression: the largest answer of 200,000 tokens, with each
	// character escaped, is half of it.
	maxAnswerBytes = 16 << 20
	// smallAnswerBytes of each answer, or event of a stream, that is being read are its own; what goes beyond shares
	// maxLargeBytes with the vendor's other answers. Usual answers have some KiB.
	smallAnswerBytes = 256 << 10
	// maxLargeBytes is for two of the largest answers: a vendor that sends megabytes to every call doesn't fill the memory.
	maxLargeBytes = 2 * maxAnswerBytes
	// maxStreamBytes bounds a whole stream after decompression: the largest answer of 200,000 tokens in the most
	// talkative dialect is a third of it.
	maxStreamBytes = 256 << 20
	// maxErrorBytes is how much of an error body is read.
	maxErrorBytes = 64 << 10
)

var (
	errAnswerTooLarge  = errors.New("the answer is too large")
	errManyLarge       = errors.New("too many large answers of the vendor are being read at once")
	errUnknownEncoding = errors.New("the answer has an encoding that was not asked for")
)

// decodedBody returns the body in plain. We ask for identity; vendors that gzip in spite of it are read, anything
// else is an error.
func decodedBody(resp *http.Response) (io.Reader, error) {
	switch encoding := strings.ToLower(strings.TrimSpace(strings.Join(resp.Header["Content-Encoding"], ","))); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		plain, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("decompress the answer: %w", err)
		}
		return plain, nil
	default:
		return nil, errUnknownEncoding
	}
}

// unreadable tells why decodedBody failed.
func (c *call) unreadable(err error) *Error {
	if errors.Is(err, errUnknownEncoding) || errors.Is(err, gzip.ErrHeader) {
		return &Error{Failure: FailureRefused, Status: http.StatusOK, Cause: err}
	}
	return c.failure(err)
}

// cappedReader fails with errAnswerTooLarge when there is more than left bytes.
type cappedReader struct {
	src  io.Reader
	left int64
}

// Read implements io.Reader.
func (r *cappedReader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	r.left -= int64(n)
	if r.left < 0 {
		return 0, errAnswerTooLarge
	}
	return n, err
}

// heldReader reads an answer that is kept as a whole, and has its call hold what was read.
type heldReader struct {
	src  io.Reader
	call *call
	read int
}

// Read implements io.Reader. It fails with errManyLarge when the vendor's answers have too much together.
func (r *heldReader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	r.read += n
	if r.read > smallAnswerBytes {
		if err := r.call.hold(r.read); err != nil {
			return 0, err
		}
	}
	return n, err
}
