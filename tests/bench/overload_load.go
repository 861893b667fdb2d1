package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// overloadConns bounds the connections of a load: more calls than that at a time are not offered.
const overloadConns = 6000

var errManyCalls = errors.New("as many calls wait as the bench has connections")

// loader offers calls and keeps their connections for the next ones.
type loader struct {
	product *product
	request []byte
	start   time.Time // when the warming up is over

	mu      sync.Mutex
	idle    []*client
	dialled int
	load    offered
	charged int64
	faults  []error
}

// offer asks so many times a second whatever the answers do, or, with a rate of 0, in a closed loop of overloadProbers.
// What happens while it warms up doesn't count, and what was asked until the end is waited for.
func (o *overload) offer(ctx context.Context, rate float64, lasts, warm time.Duration) (*offered, error) {
	l := &loader{product: o.product, request: o.product.request(paid, row{}), start: time.Now().Add(warm)}
	defer l.close()
	end := l.start.Add(lasts)
	var calls sync.WaitGroup
	if rate == 0 {
		for range overloadProbers {
			calls.Go(func() {
				for time.Now().Before(end) && ctx.Err() == nil {
					if refused := l.call(); refused {
						<-time.After(200 * time.Millisecond)
					}
				}
			})
		}
	} else {
		interval := time.Duration(float64(time.Second) / rate)
		for due := time.Now(); due.Before(end) && ctx.Err() == nil; due = due.Add(interval) {
			if wait := time.Until(due); wait > time.Millisecond {
				<-time.After(wait)
			}
			calls.Go(func() { l.call() })
		}
	}
	calls.Wait()
	o.charged += l.charged
	return &l.load, errors.Join(context.Cause(ctx), errors.Join(l.faults...))
}

// call asks once on a connection that is free, or a new one.
func (l *loader) call() (refused bool) {
	asked := time.Now()
	c, err := l.connection()
	charged := int64(0)
	if err == nil {
		refused, charged, err = l.ask(c)
	}
	at := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, errManyCalls) {
		l.load.dropped++
		return false
	}
	if err != nil {
		if len(l.faults) < 3 {
			l.faults = append(l.faults, err)
		}
		return refused
	}
	l.idle = append(l.idle, c)
	l.charged += charged
	l.load.ended = append(l.load.ended, attempt{asked: asked.Sub(l.start), at: at.Sub(l.start), refused: refused})
	return refused
}

func (l *loader) connection() (*client, error) {
	l.mu.Lock()
	if n := len(l.idle); n > 0 {
		c := l.idle[n-1]
		l.idle = l.idle[:n-1]
		l.mu.Unlock()
		return c, nil
	}
	many := l.dialled >= overloadConns
	if !many {
		l.dialled++
	}
	l.mu.Unlock()
	if many {
		return nil, errManyCalls
	}
	return dial(l.product.address, l.request)
}

// ask sends the request. An answer is whole and says what it charged; a refusal is a 500 that says when to come back.
func (l *loader) ask(c *client) (refused bool, charged int64, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return false, 0, fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return false, 0, fmt.Errorf("sending: %w", err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return false, 0, fmt.Errorf("reading the head: %w", err)
	}
	c.body.Reset()
	_, err = io.Copy(&c.body, response.Body)
	_ = response.Body.Close()
	switch {
	case err != nil:
		return false, 0, fmt.Errorf("reading the body: %w", err)
	case response.StatusCode == http.StatusOK:
		charged, err = number(c.body.Bytes(), chargedMark)
		return false, charged, err
	case response.StatusCode == http.StatusInternalServerError && response.Header.Get("Retry-After") != "" &&
		bytes.Contains(c.body.Bytes(), []byte("internal_error")):
		return true, 0, nil
	}
	return false, 0, fmt.Errorf("status %d: %.200s", response.StatusCode, c.body.Bytes())
}

func (l *loader) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.idle {
		_ = c.conn.Close()
	}
}
