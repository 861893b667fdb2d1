// Package platforms knows the messaging platforms: what their webhooks say, and how to answer their customers.
//
// # What belongs here
//
// Extraction (type.go, inbound.go, extract_*.go, one file per platform): pure functions from the body of a verified
// delivery to the things in it, each an [Inbound] with its channel's route. Sending (client.go and the files around it):
// how each platform is called, what its errors mean, how its tokens are refreshed, how long a text and how old a
// conversation may be.
//
// # What holds
//
//   - Extraction never panics and never fails for a JSON object: what has an unknown form is left out, and doesn't cost its
//     neighbours. A platform must not be told to send again what nobody will ever understand.
//   - Text is only what one customer wrote in a conversation of two. Bots, groups, echoes, receipts and edits never are,
//     so that no assistant answers itself (the first half of the loop guard; the queue has the second).
//   - One delivery may hold messages for several tenants. Each Inbound is routed by its own entry, never by the first.
//   - Ids keep their digits as they were written, are bounded, and are never cut or mended. All strings are valid UTF-8
//     without NUL; texts and names are bounded.
//   - Nothing a platform or a tenant says is trusted in an error: a [SendError] holds our words, never a token and never
//     the platform's.
//   - A message goes out at most once per call. Whether it arrived when no usable answer came is never guessed.
//
// # What it does not do
//
// It doesn't verify signatures (package verify), look up channels, store, queue, retry or seal anything, and doesn't
// decide what is answered: the queue (internal/inbox) and the worker do. It keeps no state but idle connections.
package platforms
