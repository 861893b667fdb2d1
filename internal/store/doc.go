// Package store is the database of a process: opening and closing it, its migration, its transactions, and plain reading
// and writing of the resources that have no rules of their own, with one type and one file for each ([Resources]).
//
// Package driver is the contract with the two engines, driver/sqlite and driver/postgres implement it. Package writer runs
// all writes, package schema has the tables, package archive moves a store to another engine.
//
// # What holds
//
//   - One DDL text and one SQL text with $n parameters serve both engines: times are epoch milliseconds,
//     JSON is text, text is valid UTF-8 without NUL ([ErrText]).
//   - Every write of a process goes through one goroutine, the writer. Writes that wait at the same moment share one
//     transaction (natural batching: no timer), so the price of a commit is shared, too. A result is returned only after
//     the COMMIT that made it durable.
//   - A fault of one operation never fails another: kinds run in savepoints, and operations of a failed group run
//     again, each alone.
//   - Every wait has a bound: the queue's length, the turn between processes, statements, and an operation's life in
//     the writer.
//   - Correctness comes from constraints and guarded statements. File locks between processes of one SQLite file only
//     make them take turns; a process that can't get its turn writes without it.
//
// # What it does not do
//
// It has no rules of money and of the queue: billing, inbox and limit bring them as a [Kind] and own every statement on
// their tables, but that a deleted channel takes its conversations along. It opens no secrets (sealed columns are opaque
// bytes), caches nothing that another process may change, and imports only the packages below it. Tests use storetest.
package store
