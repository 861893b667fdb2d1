// Package knowledge is what assistants may know: documents go in as text, Markdown or HTML, are cut into chunks, and
// come out again as the few snippets that fit a customer's question (design §3, §7).
//
// Invariants:
//
//   - A document is found when all of it is written, and not before; one whose ingestion was interrupted is shown as
//     failed, never as ready.
//   - Of all ingestions and deletions of a process one batch of a few chunks is in the writer at a time, so that payments
//     never wait for more than that.
//   - What a search reads is bounded by what it is, not by how much there is to find: common words are left out.
//   - The same words, folded in Go, stand in the index of either engine, and the order is made in Go: both answer alike.
//   - No text of a query or a document is ever read as an engine's query language.
//   - Documents are data. [Reference] marks them so, for no model may take orders from them.
//
// It doesn't know roles, plans or HTTP, keeps no original of an upload, and asks no model: search is by words, because
// the service has no embeddings (spec §1).
package knowledge
