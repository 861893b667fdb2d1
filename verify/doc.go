// Package verify checks the signatures of inbound webhooks (spec §5.3) and the subscription handshake of the social
// platform (spec §4.3).
//
// # What belongs here
//
// One pure function per platform over the request's headers, the raw body exactly as received, and the configured
// secrets. A header name that is empty means the contract's; real platforms call theirs otherwise, so it can be set.
//
// # Invariants
//
//   - The raw bytes are hashed, never a parsed or re-written form of them.
//   - Every comparison with something secret takes the same time wherever the values differ. Only lengths show.
//   - Whatever is wrong, the answer is the same [ErrSignature]: it doesn't tell which part was right.
//   - A secret that is not configured matches nothing.
//   - A header given twice matches nothing, even if both values are right: nobody can say which one others believe.
//   - Hexadecimal digits are lower case, as the platforms send them (design §6).
//
// # What it does not do
//
// It doesn't look for the channel or the secrets, bound the body, parse it (but for the timestamp that the local chat
// platform hashes), or answer anybody. It imports nothing of ours (design §3).
package verify
