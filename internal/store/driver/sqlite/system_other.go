//go:build !linux

package sqlite

import "os"

// networkFileSystem can tell network file systems on Linux only; elsewhere the operator's guide warns of them.
func networkFileSystem(string) (name string, remote bool, err error) { return "", false, nil }

// reportReads returns nil: only Linux reports reads of a file.
func reportReads(*os.File) *os.File { return nil }
