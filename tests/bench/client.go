package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// client is one connection that asks the same again and again. It speaks raw HTTP/1.1, so that the load costs the
// shared cores little beside what is measured.
type client struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
	body    bytes.Buffer
	began   time.Time // when the body of the last answer began
	// renew makes the request's Idempotency-Key another one before each request.
	renew func(request []byte)
	// response is the one of a stream that is read in pieces.
	response *http.Response
}

func dial(address string, request []byte) (*client, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dialling: %w", err)
	}
	return &client{conn: conn, reader: bufio.NewReaderSize(conn, 32<<10), request: request}, nil
}

var (
	// prompt has some 200 bytes, longPrompt 200,000.
	prompt     = strings.Repeat("Tell me more. ", 14)
	longPrompt = strings.Repeat("Tell me more. ", 14_285)
)

// idempotencyMark is the value of a new Idempotency-Key, whose digits renewKey counts up.
const idempotencyMark = "bench-0000000000000000"

// renewKey returns what gives a request another Idempotency-Key each time it is called.
func renewKey(request []byte) func([]byte) {
	at := bytes.Index(request, []byte(idempotencyMark)) + len("bench-")
	n := rand.Uint64() //nolint:gosec // keys only have to differ
	return func(request []byte) {
		n++
		copy(request[at:], fmt.Sprintf("%016x", n))
	}
}

func request(address, path, key, prompt string, v variant, stream bool) []byte {
	model := "bench/m"
	switch v {
	case paidAnthropic:
		model = "anthropic/m"
	case paidGemini:
		model = "gemini/m"
	default:
	}
	body := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%q}],"max_tokens":200,"stream":%t}`, model, prompt, stream)
	b := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n",
		path, address, key, len(body))
	if v == free {
		b = append(b, "X-Svc-Use-Byok: true\r\n"...)
	}
	b = append(b, "\r\n"...)
	return append(b, body...)
}

var (
	chargedMark = []byte(`"charged_micros":"`)
	tokensMark  = []byte(`"total_tokens":`)
)

// reported are the charge and the tokens in an answer.
type reported struct{ chargedMicros, tokens int64 }

// ask sends one request and checks the whole answer; it returns what the answer says was used and charged.
func (c *client) ask(v variant, stream bool) (reported, error) {
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return reported{}, fmt.Errorf("setting a deadline: %w", err)
	}
	if c.renew != nil {
		c.renew(c.request)
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return reported{}, fmt.Errorf("sending: %w", err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return reported{}, fmt.Errorf("reading the head: %w", err)
	}
	c.body.Reset()
	_, err = io.CopyN(&c.body, response.Body, 1)
	c.began = time.Now()
	if err == nil {
		_, err = io.Copy(&c.body, response.Body)
	}
	_ = response.Body.Close()
	if err != nil {
		return reported{}, fmt.Errorf("reading the body: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return reported{}, fmt.Errorf("status %d: %.200s", response.StatusCode, c.body.Bytes())
	}
	if stream && !bytes.HasSuffix(c.body.Bytes(), []byte("data: [DONE]\n\n")) {
		return reported{}, errors.New("the stream has no end")
	}
	return c.read(v)
}

// read reads the charge and the tokens from the answer in the buffer.
func (c *client) read(v variant) (reported, error) {
	if !v.isCall() {
		return reported{}, nil
	}
	charged, err := number(c.body.Bytes(), chargedMark)
	if err != nil {
		return reported{}, err
	}
	tokens, err := number(c.body.Bytes(), tokensMark)
	return reported{charged, tokens}, err
}

// number reads the digits behind a mark.
func number(body, mark []byte) (int64, error) {
	_, after, ok := bytes.Cut(body, mark)
	if !ok {
		return 0, fmt.Errorf("the answer has no %s", mark)
	}
	end := bytes.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })
	return strconv.ParseInt(string(after[:max(0, end)]), 10, 64)
}
