package v1

import (
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// Streams counts the open streams of each organization in this process. The zero value is ready, and safe for concurrent use.
type Streams struct {
	mu   sync.Mutex
	open map[string]int
}

// Open counts one more stream until closeStream is called, which may be more than once. When the organization has limit open
// streams already (0 is no limit), the error is rate_limited with a Retry-After of a second.
func (s *Streams) Open(orgID string, limit int) (closeStream func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit > 0 && s.open[orgID] >= limit {
		return nil, &handlers.Error{
			Code: errcode.RateLimited, RetryAfter: time.Second,
			Message: "Too many streams of the organization are open at once. Retry when one has ended.",
		}
	}
	if s.open == nil {
		s.open = make(map[string]int)
	}
	s.open[orgID]++
	return sync.OnceFunc(func() { s.close(orgID) }), nil
}

func (s *Streams) close(orgID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[orgID]--; s.open[orgID] == 0 {
		delete(s.open, orgID)
	}
}

// Count returns the number of open streams of all organizations.
func (s *Streams) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, open := range s.open {
		n += open
	}
	return n
}
