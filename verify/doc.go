// Package verify checks the signatures of inbound webhooks and the subscription handshake of the social platform
// (docs/contract.md#signatures).
//
// It has one pure function per platform over the request's headers, the raw body and the configured secrets. An empty header
// name stands for the contract's; real platforms use other names.
//
// Invariants:
//
//   - The raw bytes are hashed, never a parsed or re-encoded form of them.
//   - A comparison with a secret takes the same time wherever the values differ. Only lengths show.
//   - Every failure is the same [ErrSignature], which doesn't reveal the part that was wrong.
//   - A secret that isn't configured matches nothing.
//   - A header given twice matches nothing, even if both values are right: it is unclear which one other software reads.
//   - Hexadecimal digits are lower case, as the platforms send them.
//
// It doesn't find the channel or the secrets, bound the body, or parse it, except for the timestamp that the local chat
// platform hashes. It imports no other package of this module.
package verify
