//go:build !linux

package postgres

import "syscall"

// setUserTimeout is for Linux; elsewhere keep-alive alone finds a vanished peer.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
