package abuse

import (
	"bytes"
	"context"
	"fmt"
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

// heads reads the heads of the answers to all streams that were begun, each of which must have one of the statuses. A stream that the
// server ends has none.
func (u *unread) heads(statuses ...int) error {
	if err := u.conn.SetReadDeadline(time.Now().Add(answerWait)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	for left := u.began; left > 0; {
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
			err = allowed(frame.PseudoValue("status"), statuses)
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

func allowed(status string, statuses []int) error {
	for _, one := range statuses {
		if status == strconv.Itoa(one) {
			return nil
		}
	}
	return fmt.Errorf("an answer that nobody reads has the status %s, not one of %v", status, statuses)
}
