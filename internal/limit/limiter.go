package limit

import "context"

// Limiter counts the requests of organizations in windows of one minute. [Memory], [Windows] and [Redis] are the three.
type Limiter interface {
	// Take asks to admit one request of the organization under the limit of requests per window; 0 or less is no limit.
	// An error is a fault of the counter or the end of ctx; then nothing is known, but the request may have been counted.
	Take(ctx context.Context, orgID string, limit int64) (Decision, error)
}

var (
	_ Limiter = (*Memory)(nil)
	_ Limiter = (*Windows)(nil)
	_ Limiter = (*Redis)(nil)
)
