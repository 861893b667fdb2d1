package caddymodule

import (
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// refusalsPerMinute bounds the lines at info level about refused requests of one organization with one code. It keeps an
// organization that repeats a refused request from filling the disk.
const refusalsPerMinute = 60

// refusals counts the lines of this minute, for all configurations of the process.
var refusals refusalCount

// refusalCount counts refused requests by organization and code in the present minute.
type refusalCount struct {
	mu     sync.Mutex
	minute int64
	counts map[refusal]int
}

type refusal struct {
	orgID string
	code  errcode.Code
}

// few counts a refused request, and reports whether it is among the first of its minute.
func (c *refusalCount) few(of refusal, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if minute := now.Unix() / 60; c.counts == nil || minute != c.minute {
		c.minute, c.counts = minute, make(map[refusal]int)
	}
	c.counts[of]++
	return c.counts[of] <= refusalsPerMinute
}

// failureLevel returns the level at which a failed request is logged: error for a fault of the service, info for a refused request of
// an organization, of which an operator may be asked, and debug for everything else, such as requests of strangers.
func failureLevel(r *http.Request, answer *handlers.Error, caller handlers.Caller) slog.Level {
	// A client that has left gets no answer, so whatever happened to its request after that is no fault.
	gone := r.Context().Err() != nil
	switch {
	case gone || errors.Is(answer, store.ErrOverloaded):
		return slog.LevelDebug
	case answer.Code.Status() >= http.StatusInternalServerError:
		return slog.LevelError
	case caller.OrgID != "" && refusals.few(refusal{caller.OrgID, answer.Code}, time.Now()):
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// callerOf returns who sent a failed request: the error has it for endpoint groups and requests that svc_auth refused, the placeholders
// of svc_auth for all others.
func callerOf(r *http.Request, answer *handlers.Error) handlers.Caller {
	if answer.Caller.OrgID != "" {
		return answer.Caller
	}
	var caller handlers.Caller
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		caller.OrgID, _ = repl.GetString(orgPlaceholder)
		caller.KeyID, _ = repl.GetString(keyPlaceholder)
	}
	return caller
}

// callerFields are the fields of a log line about the caller.
func callerFields(caller handlers.Caller) (fields []slog.Attr) {
	for _, field := range []slog.Attr{
		slog.String("org_id", caller.OrgID), slog.String("key_id", caller.KeyID), slog.String("user_id", caller.UserID),
	} {
		if field.Value.String() != "" {
			fields = append(fields, field)
		}
	}
	return fields
}
