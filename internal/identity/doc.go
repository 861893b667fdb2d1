// Package identity authenticates requests and decides what they may do: organizations, API keys with scopes and expiry, users
// with roles, passwords, login sessions and one-time links, and the organizations' own provider keys.
//
// Invariants:
//   - a raw API key exists in memory only when it is made and when it is presented; the store has its SHA-256;
//   - every request reads its key from the store, without a cache, so that a revocation, a suspension, another plan or other
//     scopes hold from the next request on, on every node;
//   - tokens of sessions and links are 256 random bits, stored as SHA-256; passwords are stored as argon2id hashes, of which
//     only a few are computed at a time;
//   - a session is read at each use, and ends with a sign-out, a new password, another role and the user's removal;
//   - a sign-in is counted in the store before its password is checked, so that the bounds hold over all nodes together;
//     sign-ins from a known device are counted and queued apart;
//   - an organization keeps an owner who can sign in, and no principal grants rights that it lacks;
//   - a fault of the store is never reported as an error of the credential;
//   - a provider key is sealed for its row as soon as it is checked; the package opens it only to seal it again ([Rekey]).
//
// The package sends no e-mail: one-time links are returned to their maker. HTTP statuses, cookies, prices, configuration and
// rate limits belong to its callers: handlers map its errors to codes, commands check plan, model and provider names.
package identity
