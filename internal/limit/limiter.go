package limit

import "context"

// Limiter counts the requests of organizations in windows of one minute. [Memory], [Windows] and [Redis] are the three.
type Limiter interface {
	// Take asks to admit one request of the organization under the limit of requests per window; 0 or less is no limit.
	// An error is a fault of the counter or the end of ctx; then nothing is known, but the request may have been counted.
	Take(ctx context.Context, orgID string, limit int64) (Decision, error)
}

// Returner is a [Limiter] that takes a permit back: the request was admitted, and refused afterwards because of the service.
// [Memory] and [Windows] are two; a process doesn't ask Redis again for a request that has failed.
type Returner interface {
	// Return uncounts the request that decision admitted, unless its window is over. It waits for nothing, and may fail
	// silently: then the request stays counted.
	Return(orgID string, decision Decision)
}

var (
	_ Returner = (*Memory)(nil)
	_ Returner = (*Windows)(nil)

	_ Limiter = (*Memory)(nil)
	_ Limiter = (*Windows)(nil)
	_ Limiter = (*Redis)(nil)
)
