// Package docs holds the pages in this folder that the service itself needs. It has no code.
package docs

import _ "embed" // for FailureModes

// FailureModes is failure-modes.md: one entry per error code. `/docs` shows each code's cause and advice for clients.
//
//go:embed failure-modes.md
var FailureModes string
