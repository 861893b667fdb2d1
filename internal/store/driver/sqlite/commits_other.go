//go:build !linux

package sqlite

import "os"

// reportReads returns nil: only Linux reports reads of a file.
func reportReads(*os.File) *os.File { return nil }
