// Package vault encrypts what the database must not show at rest: provider keys now, channel credentials,
// messages and replay transcripts later (design §6 "at rest").
//
// Invariants:
//   - a sealed value opens only at the place it was sealed for ([Where]), so that rows can't be swapped;
//   - the first key of a [Ring] seals, every key of it opens, and a sealed value names its key by a fingerprint,
//     so that a removed key is told from a damaged value;
//   - no error, log line or formatted value ever shows a key or a plain text.
//
// It does not keep anything, know any table or fetch the master key: callers pass the resolved text and store the
// bytes. Re-sealing rows after a rotation is the owner of the table's work ([Ring.Current] tells which are due).
package vault
