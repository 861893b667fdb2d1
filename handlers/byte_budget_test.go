package handlers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// pending is a body of which a part has arrived.
type pending struct {
	writer *io.PipeWriter
	done   chan error
}

// arrive begins to read a body that declares its limit, and returns when n bytes of it have been read.
func arrive(t *testing.T, budget *ByteBudget, orgID, address string, n int) *pending {
	t.Helper()
	reader, writer := io.Pipe()
	p := &pending{writer: writer, done: make(chan error, 1)}
	go func() {
		r := from(bodyRequest(reader, MaxChatBody), orgID, address)
		_, release, err := readBody(httptest.NewRecorder(), r, MaxChatBody, budget)
		release()
		p.done <- err
	}()
	_, err := writer.Write(make([]byte, n))
	require.NoError(t, err)
	return p
}

func (p *pending) end(t *testing.T) {
	t.Helper()
	require.NoError(t, p.writer.CloseWithError(io.ErrUnexpectedEOF))
	mustBeInvalid(t, <-p.done)
}

// fits reads a whole body of n bytes.
func fits(t *testing.T, budget *ByteBudget, orgID, address string, n int64) error {
	t.Helper()
	r := from(bodyRequest(io.LimitReader(zeros{}, n), n), orgID, address)
	_, release, err := readBody(httptest.NewRecorder(), r, MaxChatBody, budget)
	release()
	return err
}

// A declared length is not charged, only bytes that have arrived: otherwise 620 idle connections of a stranger, or 300 of an
// organization, would take the whole budget.
func TestIdleBodiesTakeNothing(t *testing.T) {
	t.Parallel()
	const connections = 1000
	budget := NewByteBudget(256 << 20)
	var idle []*pending
	for i := range connections {
		address := fmt.Sprintf("192.0.2.%d", i%4)
		idle = append(idle, arrive(t, budget, "", address, 0), arrive(t, budget, "org_greedy", "", 1))
	}
	require.LessOrEqual(t, budget.Used(), int64(connections*firstBuffer))
	require.NoError(t, fits(t, budget, "org_other", "", 32<<20))
	require.NoError(t, fits(t, budget, "", "198.51.100.7", 1<<20))
	for _, one := range idle {
		one.end(t)
	}
	require.Zero(t, budget.Used())
}

// An organization or address that takes too much is refused with its own error, and leaves room for the others.
func TestOneAccountLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	for name, c := range map[string]struct {
		greedy, other [2]string // organization, address
		share         int64
		code          errcode.Code
	}{
		"organization": {[2]string{"org_1", ""}, [2]string{"org_2", ""}, limit / 2, errcode.RateLimited},
		"address":      {[2]string{"", "192.0.2.1"}, [2]string{"", "192.0.2.2"}, limit / 4, errcode.InternalError},
		"IPv6 network": {[2]string{"", "2001:db8::1"}, [2]string{"", "2001:db8:1::1"}, limit / 4, errcode.InternalError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			budget := NewByteBudget(limit)
			greedy := AccountOf(from(bodyRequest(zeros{}, -1), c.greedy[0], c.greedy[1]))
			require.False(t, budget.Take(greedy, c.share/2+1))
			require.True(t, budget.Take(greedy, c.share/2))
			err := fits(t, budget, c.greedy[0], c.greedy[1], 1)
			a := sent(err)
			require.Equal(t, c.code.Status(), a.Code)
			require.Equal(t, "1", a.Header().Get("Retry-After"))
			require.Equal(t, c.code == errcode.RateLimited, strings.Contains(a.Body.String(), "retryAfter"), "in the body with 429 only")
			require.NoError(t, fits(t, budget, c.other[0], c.other[1], c.share/8))
			budget.Give(greedy, c.share/2)
			require.NoError(t, fits(t, budget, c.greedy[0], c.greedy[1], 1))
			require.Zero(t, budget.Used())
			require.Empty(t, budget.owners)
		})
	}
}

// A full share takes no room from the others.
func TestSharesAreApart(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	for _, full := range Shares() {
		budget := NewByteBudget(limit)
		for i := range 40 {
			account := Account{full, fmt.Sprint(i)}
			for n := int64(1 << 20); n > 0; {
				if !budget.Take(account, n) {
					n /= 2
				}
			}
		}
		require.Greater(t, budget.UsedBy(full), full.of(limit)*9/10, "%s", full)
		for _, share := range Shares() {
			require.Equal(t, share != full, budget.Take(Account{share, "another"}, share.of(limit)/2), "%s beside %s", share, full)
		}
	}
}

// A delivery that becomes large leaves the reserve of the small ones.
func TestLargeDeliveriesHaveTheirOwnShare(t *testing.T) {
	t.Parallel()
	budget := NewByteBudget(64 << 20)
	read := func(n int64) (release func(), err error) {
		r := bodyRequest(io.LimitReader(zeros{}, n), n)
		_, release, err = ReadPaced(NewPacedBody(httptest.NewRecorder(), r, 0, 0), 8<<20, budget, Account{ShareDeliveries, "192.0.2.1"})
		return release, err
	}
	small, err := read(LargeDelivery)
	require.NoError(t, err)
	require.EqualValues(t, LargeDelivery, budget.UsedBy(ShareDeliveries))
	large, err := read(2 << 20)
	require.NoError(t, err)
	require.EqualValues(t, LargeDelivery, budget.UsedBy(ShareDeliveries))
	require.EqualValues(t, 2<<20, budget.UsedBy(ShareLargeDeliveries))
	_, err = read(4 << 20)
	require.Equal(t, http.StatusInternalServerError, sent(err).Code)
	small()
	large()
	require.Zero(t, budget.Used())
}

func TestByteBudgetLimitCanChange(t *testing.T) {
	t.Parallel()
	budget := NewByteBudget(16_000)
	require.NoError(t, fits(t, budget, "org_1", "", 1500))
	budget.SetLimit(100, DefaultPace)
	require.Error(t, fits(t, budget, "org_1", "", 1500))
	require.Error(t, fits(t, new(ByteBudget), "org_1", "", 1), "a zero budget admits no body")
	require.NoError(t, fits(t, nil, "org_1", "", 1500), "nil is unlimited")
	require.Zero(t, budget.Used())
}

func TestByteBudgetUnderConcurrency(t *testing.T) {
	t.Parallel()
	budget := NewByteBudget(40_000)
	var wait sync.WaitGroup
	for i := range 64 {
		wait.Go(func() {
			for range 50 {
				_ = fits(t, budget, fmt.Sprint(i%8), "", 1000) // some don't fit
				if used := budget.UsedBy(ShareOrganizations); used > 20_000 || used < 0 {
					t.Errorf("%d bytes are charged", used)
				}
			}
		})
	}
	wait.Wait()
	require.Zero(t, budget.Used())
	require.Empty(t, budget.owners)
}

// Large bodies that are being decoded never keep a small one waiting, and a wait without success ends with a Retry-After.
func TestDecodingSlots(t *testing.T) {
	t.Parallel()
	budget := NewByteBudget(1 << 20)
	var large, small []func()
	for range cap(budget.decodes.large) {
		done, err := budget.Decoding(t.Context(), largeDecode)
		require.NoError(t, err)
		large = append(large, done)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	refused := func(size int) {
		t.Helper()
		_, err := budget.Decoding(gone, size)
		a := sent(err)
		require.Equal(t, http.StatusInternalServerError, a.Code)
		require.Equal(t, "1", a.Header().Get("Retry-After"))
	}
	refused(largeDecode)
	for range cap(budget.decodes.all) - len(large) {
		done, err := budget.Decoding(t.Context(), largeDecode-1)
		require.NoError(t, err)
		small = append(small, done)
	}
	refused(1)
	large[0]()
	done, err := budget.Decoding(t.Context(), largeDecode)
	require.NoError(t, err)
	done()
	for _, done := range append(large[1:], small...) {
		done()
	}
	require.Empty(t, budget.decodes.all)
	require.Empty(t, budget.decodes.large)
	_, err = (*ByteBudget)(nil).Decoding(gone, 1)
	require.NoError(t, err, "nil has no bound")
}
