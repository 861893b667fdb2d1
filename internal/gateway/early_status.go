package gateway

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// DefaultEarlyStatus is the default of [Config.EarlyStatus].
const DefaultEarlyStatus = 10 * time.Second

// earlyStatus flushes the status and the first chunk of a stream if the vendor's first text is slow: a model may think for minutes, and proxies
// give up on a response that doesn't begin. Until the flush a failure has a status of its own.
type earlyStatus struct {
	timer *time.Timer

	// mu is held while the timer's goroutine uses the sink.
	mu sync.Mutex
	// over: the sink belongs to Call's goroutine alone.
	over bool
	// err is the sink's error, panicked the value of its panic; both are passed to Call's goroutine.
	err      error
	panicked any
}

// begin begins the client's response, which writes nothing yet, and starts the timer.
func (c *call) begin() error {
	if c.sink == nil {
		c.delivered.keep = math.MaxInt
		return nil
	}
	err := c.toClient(func() error {
		return c.sink.Begin(Head{ID: c.completionID(), Created: c.started.Unix(), Model: c.model.ID})
	})
	if err == nil {
		c.early.timer = time.AfterFunc(c.EarlyStatus, c.flushEarly)
	}
	return err
}

// flushEarly runs on the timer's goroutine.
func (c *call) flushEarly() {
	e := &c.early
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || c.draining.Load() {
		return
	}
	defer func() { e.panicked = recover() }()
	e.err = c.sink.Flush()
}

// endEarly stops the timer and returns the error of an early flush. After it only Call's goroutine uses the sink. It may be
// called more than once.
func (c *call) endEarly() error {
	e := &c.early
	if e.timer == nil {
		return nil
	}
	e.timer.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if p := e.panicked; p != nil {
		e.panicked = nil
		panic(p)
	}
	if e.err != nil {
		return fmt.Errorf("beginning the answer early: %w", e.err)
	}
	return nil
}
