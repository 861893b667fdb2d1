// Package platformfake plays all messaging platforms at once, for tests: one HTTP server that takes the replies a
// [platforms.Client] sends, keeps what it delivered, refreshes tokens, identifies the account of a token, and misbehaves
// on request.
//
// # What tests can rely on
//
//   - [Server.Sent] holds what a customer would have on the screen. A message is in it from the moment the platform has
//     taken it, whatever the sender learns of it: [DropAfter], [Hang], [Garbage] and [Truncated] deliver, [DropBefore] and
//     the error answers don't.
//   - [Server.Attempts] counts every request that tried to send, delivered or not.
//   - Errors have the form, the status and the codes of the platform they are for, and their texts
//     hold [Secret], the token and the message: whatever of these is found in a log came from there.
//   - Refresh tokens are good for one use; the pair that replaces them is new.
//   - Signatures of the marketplaces are recomputed; a wrong one is an error of the platform.
//   - [Server.Verdict] counts messages that came faster than the platform publishes, and before the end of a pause that a 429 has
//     asked for. They are delivered all the same.
//   - The chat app's templates are judged as the platform does: language, state, number and form of the variables. Texts to customers
//     whose window is closed ([Server.CloseWindow]) are refused.
//   - Files of customers ([Server.PutFile]) are downloaded as each platform serves them: by an id and the token, or by a link that
//     ends with [Server.ExpireLinks]. Scripts match a download by [Download] and the file's id, the request for its link by the id.
//   - While it is [Server.Down] nothing listens: connections are refused.
//
// # What it doesn't do
//
// It sends no webhooks, checks no length of texts and no service window by itself, and accepts every access token for sending that
// it did not expire or revoke itself: tests need no account to send.
package platformfake
