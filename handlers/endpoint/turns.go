package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// Bounds of the operations of one owner (an organization, or a client's address without credentials) in one process:
// OperationsAtATime run, which is half of SQLite's readers, and OperationsWaiting wait for up to TurnWait. Owners don't wait for
// each other here; the store serves their reads in order of arrival.
const (
	OperationsAtATime = 4
	OperationsWaiting = 60
	TurnWait          = 10 * time.Second
)

func newTurns() *dispatch.Turns {
	return dispatch.NewTurns(dispatch.Bounds{Places: 1 << 20, Each: OperationsAtATime, Line: OperationsWaiting, Lines: 1 << 20})
}

var errTurnSlow = fmt.Errorf("no place within %s", TurnWait)

// takeTurn waits until the request's operation may run. leave gives its place back, once. The error is rate_limited if too many wait or
// the place comes too late, or internal_error if the client has gone.
func (s *Server) takeTurn(r *http.Request) (leave func(), err error) {
	owner := handlers.AccountOf(r).Owner
	ctx, cancel := context.WithTimeoutCause(r.Context(), TurnWait, errTurnSlow)
	defer cancel()
	err = s.turns.Enter(ctx, owner)
	switch {
	case err == nil:
		return sync.OnceFunc(func() { s.turns.Leave(owner) }), nil
	case errors.Is(err, dispatch.ErrBusy), errors.Is(err, errTurnSlow):
		return nil, &handlers.Error{
			Code: errcode.RateLimited, RetryAfter: time.Second, Cause: err,
			Message: fmt.Sprintf("More than %d requests are being answered or wait at this moment. Retry shortly.", OperationsAtATime),
		}
	default:
		return nil, handlers.Internal(fmt.Errorf("waiting for a place: %w", err))
	}
}
