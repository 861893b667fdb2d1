package abuse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// streamPiece is how much of a body one frame has, in bytes.
const streamPiece = 16 << 10

// unread is a connection over HTTP/2 without TLS whose streams have windows of no size: the answers' heads come, their bodies can't.
type unread struct {
	conn   *Conn
	framer *http2.Framer
	block  bytes.Buffer
	fields *hpack.Encoder
	began  uint32
}

// unread connects from the i-th address.
func (c *Crowd) unread(ctx context.Context, target string, i int) (*unread, error) {
	conn, err := c.Dial(ctx, target, i)
	if err != nil {
		return nil, err
	}
	u := &unread{conn: conn, framer: http2.NewFramer(conn, conn.reader)}
	u.fields = hpack.NewEncoder(&u.block)
	u.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, fmt.Errorf("beginning HTTP/2: %w", err)
	}
	if err := u.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		return nil, fmt.Errorf("setting windows of no size: %w", err)
	}
	return u, nil
}

// begin sends a request on a stream of its own.
func (u *unread) begin(r *request) error {
	u.block.Reset()
	write := func(name, value string) { _ = u.fields.WriteField(hpack.HeaderField{Name: name, Value: value}) } // a buffer takes everything
	write(":method", r.method)
	write(":scheme", "http")
	write(":authority", "127.0.0.1")
	write(":path", r.path)
	for i := 0; i < len(r.header); i += 2 {
		write(strings.ToLower(r.header[i]), r.header[i+1])
	}
	id := 2*u.began + 1
	u.began++
	err := u.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: u.block.Bytes(), EndStream: r.body == "", EndHeaders: true})
	for body := r.body; body != "" && err == nil; {
		piece := body[:min(len(body), streamPiece)]
		body = body[len(piece):]
		err = u.framer.WriteData(id, body == "", []byte(piece))
	}
	if err != nil {
		return fmt.Errorf("beginning %s %s: %w", r.method, r.path, err)
	}
	return nil
}

// heads reads the heads of the answers to all streams begun. Each must have one of the statuses, except that one in [mostBusy] may say that the
// product is busy. A stream ended by the server has no head.
func (u *unread) heads(statuses ...int) error {
	if err := u.conn.SetReadDeadline(time.Now().Add(answerWait)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	for left, busy := u.began, u.began/mostBusy; left > 0; {
		frame, err := u.framer.ReadFrame()
		if err != nil {
			return fmt.Errorf("the heads of %d answers that nobody reads: %w", left, err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = u.framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			left--
			if err = allowed(frame, statuses); errors.Is(err, errBusy) && busy > 0 {
				busy, err = busy-1, nil
			}
		case *http2.RSTStreamFrame:
			left--
		case *http2.GoAwayFrame:
			return fmt.Errorf("the connection was ended: %v", frame.ErrCode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// allowed returns an error unless the head has one of the statuses. It is [errBusy] for the answer of a busy product.
func allowed(head *http2.MetaHeadersFrame, statuses []int) error {
	status, retryAfter := head.PseudoValue("status"), ""
	for _, field := range head.RegularFields() {
		if field.Name == "retry-after" {
			retryAfter = field.Value
		}
	}
	code, _ := strconv.Atoi(status) // 0 is in no list
	switch {
	case slices.Contains(statuses, code):
		return nil
	case isBusy(code, retryAfter):
		return errBusy
	default:
		return fmt.Errorf("an answer that nobody reads has the status %s, not one of %v", status, statuses)
	}
}
