//go:build !linux

package knowledge

import "time"

var started = time.Now()

// threadTime returns the time since the program started, because the processor time of a thread is not known here.
func threadTime() time.Duration { return time.Since(started) }
