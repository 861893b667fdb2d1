package endpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Repeats lets operators repeat a POST with an Idempotency-Key: it runs once, and a repetition gets the same answer for 24 hours. It is safe
// for use by several processes.
type Repeats struct {
	DB *store.DB
	// Ring seals the kept texts, because they may have a new key.
	Ring *vault.Ring
}

// keepWait bounds the storing of an answer. The client may have gone.
const keepWait = 10 * time.Second

// once serves a request, or repeats the answer to an earlier one with the same Idempotency-Key. A request that failed leaves its key free. If
// the process ends before the answer is stored, a repetition is refused for five minutes and then runs. Each change is one transaction, so an
// earlier request without an answer has done everything or nothing; names, references and external ids show a repetition which of both.
func (s *Server) once(answer *answer, r *http.Request, body []byte, serve func()) error {
	key := ""
	if s.Repeats != nil && r.Method == http.MethodPost {
		var err error
		if key, err = handlers.IdempotencyKey(r.Header); err != nil {
			return err
		}
	}
	if key == "" {
		serve()
		return answer.err
	}
	principal, _ := handlers.PrincipalFrom(r.Context())
	request := store.OperatorRequest{
		Hash:        sha256.Sum256([]byte(principal.OperatorID + " " + key)),
		Fingerprint: sha256.Sum256(fmt.Appendf(nil, "%s\n%s", r.URL.RequestURI(), body)),
	}
	stored, repeated, err := s.Repeats.DB.OperatorRequests.Begin(r.Context(), request)
	switch {
	case errors.Is(err, store.ErrConflict):
		return Refusal(errcode.IdempotencyKeyReused, err, "This Idempotency-Key was used with another request within 24 hours.")
	case err != nil:
		return handlers.Internal(fmt.Errorf("storing an Idempotency-Key: %w", err))
	case repeated:
		return s.Repeats.replay(answer, stored)
	}
	serve()
	if answer.err == nil {
		request.Status, request.Answer = int64(answer.status), s.Repeats.Ring.Seal(answer.body, vault.OperatorAnswer(request.Hash))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), keepWait)
	defer cancel()
	if err := s.Repeats.DB.OperatorRequests.End(ctx, request); err != nil && answer.err != nil {
		return handlers.Internal(errors.Join(answer.err, fmt.Errorf("freeing an Idempotency-Key: %w", err)))
	}
	return answer.err // a client with its answer needs no kept one
}

// replay gives the answer of a stored request again.
func (k *Repeats) replay(answer *answer, stored store.OperatorRequest) (err error) {
	if stored.Status == 0 {
		return Refusal(errcode.Conflict, nil,
			"A request with this Idempotency-Key runs, or its process has ended. Repeat it for its answer, for up to 5 minutes.")
	}
	if answer.body, err = k.Ring.Open(stored.Answer, vault.OperatorAnswer(stored.Hash)); err != nil {
		return handlers.Internal(fmt.Errorf("opening the answer to an Idempotency-Key: %w", err))
	}
	answer.status = int(stored.Status)
	handlers.MarkReplayed(answer.header)
	return nil
}
