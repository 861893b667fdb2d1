// Package identity says who calls and what the caller may do: organizations, API keys with their scopes and expiry, users with
// their roles, passwords, login sessions and one-time links, and the organizations' own provider keys (spec §5, design §6 and
// §7).
//
// Invariants:
//   - a raw API key exists in memory once, when it is made; stored is its SHA-256 hash only (spec §5.1);
//   - every request reads its key from the store, nothing is cached, so that a revocation, a suspension, another
//     plan or other scopes hold at the very next request on every node (spec §5.1 rule 6, S3);
//   - the tokens of sessions and links are 256 random bits, of which only the SHA-256 is stored; a password is stored as its
//     argon2id hash, a few of which are made at a time;
//   - a session is read anew at each use, and ends with a sign-out, a new password, another role and the user's removal;
//   - failed logins are counted in the store before they are made, so that the bounds hold over all nodes together; those of
//     a device that a user has signed in from are counted apart, and its passwords are checked in turns of their own;
//   - an organization keeps an owner who can sign in, and nobody gives rights that they don't have;
//   - a fault of the store is returned as such and never as one of the errors that blame the key (design §2);
//   - a provider key is stored sealed for its row and leaves the package only through [ProviderKeys.ProviderKey].
//
// It sends no e-mail: who makes a one-time link hands it over. It knows no HTTP status, no cookie, no price, no configuration
// and no rate limit: handlers map its errors to the contract's codes, the command line checks plan, model and provider names
// against the configuration.
package identity
