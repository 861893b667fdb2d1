package handlers

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// meteredBody charges what is read of a body, as it arrives: headers alone take nothing.
type meteredBody struct {
	io.Closer

	in      *PacedBody
	budget  *ByteBudget
	account Account
	charged int64
}

// Meter returns the body of r for a caller that reads it to the end and keeps it in memory. Its bytes are charged to the
// organization, or to the client's address when orgID is empty, and must arrive at the budget's pace: the errors of Read
// are those of [ReadBody]. release gives the bytes back and may be called more than once.
func (b *ByteBudget) Meter(w http.ResponseWriter, r *http.Request, orgID string) (body io.ReadCloser, release func()) {
	account := accountOf(r, orgID)
	grace, rate := b.paceOf(account.Share)
	m := &meteredBody{Closer: r.Body, budget: b, account: account}
	before := *r // the caller puts the metered body into r
	m.in = NewPacedBody(w, &before, grace, rate)
	return m, sync.OnceFunc(func() {
		m.in.Finish()
		b.Give(account, m.charged)
	})
}

func (m *meteredBody) Read(into []byte) (int, error) {
	n, err := m.in.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, m.in.fault(err, 0)
	}
	if !m.budget.Take(m.account, int64(n)) {
		return 0, noRoom(m.account.Share)
	}
	m.charged += int64(n)
	if err != nil {
		m.in.Finish()
	}
	return n, err
}
