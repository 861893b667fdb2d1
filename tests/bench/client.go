package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// client is one connection that asks the same again and again. It speaks raw HTTP/1.1, so that the load costs the
// shared cores little beside what is measured.
type client struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
	body    bytes.Buffer
}

func dial(address, path, key string, v variant, stream bool) (*client, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dialling: %w", err)
	}
	return &client{conn: conn, reader: bufio.NewReaderSize(conn, 32<<10), request: request(address, path, key, v, stream)}, nil
}

func request(address, path, key string, v variant, stream bool) []byte {
	prompt := bytes.Repeat([]byte("Tell me more. "), 14) // some 200 bytes
	body := fmt.Appendf(nil, `{"model":"bench/m","messages":[{"role":"user","content":%q}],"max_tokens":200,"stream":%t}`, prompt, stream)
	b := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n",
		path, address, key, len(body))
	if v == free {
		b = append(b, "X-Svc-Use-Byok: true\r\n"...)
	}
	b = append(b, "\r\n"...)
	return append(b, body...)
}

var chargedMark = []byte(`"charged_micros":"`)

// ask sends one request and checks the whole answer; it returns what the answer says was charged.
func (c *client) ask(v variant, stream bool) (charged int64, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return 0, fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, fmt.Errorf("sending: %w", err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, fmt.Errorf("reading the head: %w", err)
	}
	c.body.Reset()
	_, err = io.Copy(&c.body, response.Body)
	_ = response.Body.Close()
	if err != nil {
		return 0, fmt.Errorf("reading the body: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %d: %.200s", response.StatusCode, c.body.Bytes())
	}
	if stream && !bytes.HasSuffix(c.body.Bytes(), []byte("data: [DONE]\n\n")) {
		return 0, errors.New("the stream has no end")
	}
	if v == proxied {
		return 0, nil
	}
	return charge(c.body.Bytes())
}

func charge(body []byte) (int64, error) {
	_, after, ok := bytes.Cut(body, chargedMark)
	if !ok {
		return 0, errors.New("the answer has no svc block")
	}
	digits, _, _ := bytes.Cut(after, []byte(`"`))
	return strconv.ParseInt(string(digits), 10, 64) //nolint:wrapcheck // the text says enough
}
