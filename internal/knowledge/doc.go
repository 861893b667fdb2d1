// Package knowledge stores documents for assistants and searches them: text, Markdown or HTML is cut into chunks, and the few
// chunks that fit a customer's question are found again.
//
// Invariants:
//
//   - A document is found only when all of it is written; one whose ingestion was interrupted is failed, never ready.
//   - All ingestions and deletions of a process together have one small batch in the writer at a time, so that payments never
//     wait for more than that.
//   - A search reads a bounded number of rows, however many match: common words are left out.
//   - Words are folded and results ranked in Go, so that both engines give the same answers in the same order.
//   - No text of a query or a document is interpreted as an engine's query language.
//   - Documents are data: [Reference] quotes them, so that a model doesn't take orders from them.
//
// Roles, plans and HTTP belong to its callers. It keeps no original of an upload and calls no model: search is by words,
// because the service has no embeddings.
package knowledge
