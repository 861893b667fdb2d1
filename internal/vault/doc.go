// Package vault encrypts values at rest: provider keys, channel credentials, messages, built requests and kept answers.
//
// Invariants:
//   - a sealed value opens only with the [AAD] it was sealed with, so that rows can't be swapped;
//   - the first key of a [Ring] seals and every key of it opens; a sealed value names its key by a fingerprint, so that a
//     removed key is distinguished from a damaged value;
//   - no error, log line or formatted value contains a key or a plain text.
//
// It stores nothing and doesn't load the master key. Sealing rows again after a rotation is the work of each table's owner
// ([Ring.Current] reports which rows are due).
package vault
