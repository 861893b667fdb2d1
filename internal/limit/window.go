package limit

import "time"

// window is the length of every window.
const window = time.Minute

// Decision is the result for one request.
type Decision struct {
	Allowed bool
	// Limit is the number of requests the window admits, 0 for no limit; the other numbers are 0 then.
	Limit int64
	// Remaining is how many more the window would admit.
	Remaining int64
	// ResetIn is the time to the window's end, above 0 and at most a minute.
	ResetIn time.Duration
	// window is the window that counted an admitted request, for [Returner]; 0 where nothing can be returned.
	window int64
}

// decide decides on a request to a window that has admitted count already.
func decide(count, limit int64, resetIn time.Duration) Decision {
	d := Decision{Allowed: count < limit, Limit: limit, ResetIn: min(max(resetIn, 1), window)}
	if d.Allowed {
		count++
	}
	d.Remaining = max(0, limit-count)
	return d
}

// unlimited admits everything.
func unlimited() Decision { return Decision{Allowed: true} }
