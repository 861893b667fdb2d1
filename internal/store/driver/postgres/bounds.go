package postgres

import "time"

// Every wait for PostgreSQL has a bound, so that a server that is gone, stopped or cut off costs a request a few seconds
// and never a goroutine (docs/cluster.md "PostgreSQL"). What a caller waits at most:
//
//	a key, window, models or channel of a request: lookupPatience
//	anything written:                              longestWait in line, then writeTime, then commitTime
//	any other read whose context has no deadline:  acquireTime + readTime
//
// They lie far above what a healthy server needs, and below what clients and platforms wait for.
const (
	// lookupTime bounds one lookup, waiting for its connection and a second try on a new one included. A lookup that is asked for while
	// one runs goes with the next, and waits for lookupPatience at most.
	lookupTime     = 2 * time.Second
	lookupPatience = 3 * time.Second
	// takeTime bounds one statement that counts requests, its commit included. It is longer than statementTimeout, so that the
	// server ends a wait for a row and the connection stays; the requests have waited for lookupPatience by then.
	takeTime = 3500 * time.Millisecond
	// writeTime bounds a transaction of the writer from its beginning until COMMIT is sent, and commitTime the wait for
	// the answer to that: giving up then leaves the outcome unknown, so a slow commit has time.
	writeTime  = 4 * time.Second
	commitTime = 5 * time.Second
	// acquireTime and readTime bound a read whose caller gave none: waiting for a connection, and the statement.
	acquireTime = 3 * time.Second
	readTime    = 4 * time.Second

	// connectTime bounds making a connection, TLS and password included, unless the address has connect_timeout.
	connectTime = 2 * time.Second
	// openTries bounds the connects that take connectTime when a store is opened.
	openTries = 5
	// pingTime bounds the question whether a connection that lay idle for a second is still alive.
	pingTime = time.Second
	// closeTime bounds the orderly close of a broken connection, which keeps its place in the pool until then.
	closeTime = time.Second
)

// Bounds that the server itself keeps.
const (
	// statementTimeout ends one statement, a wait for a row lock included, and keeps the connection. It is shorter than
	// what the client waits, so that the server's error comes first.
	statementTimeout = 3 * time.Second
	// idleInWriteTimeout ends the transaction of a silent writer, so that a stopped process holds row
	// locks for less time than others wait for them. idleInReadTimeout is for reads, which hold none.
	idleInWriteTimeout = 2 * time.Second
	idleInReadTimeout  = 10 * time.Second
)

// How both sides notice a silent network: the peer is probed after keepAliveIdle without data, and
// given up after keepAliveProbes without an answer. What was sent must be acknowledged within userTimeout.
const (
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveProbes   = 3
	userTimeout       = 10 * time.Second
)
