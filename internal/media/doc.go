// Package media keeps the files that customers send: it fetches them from the platforms, stores them in sealed pieces, and reads them
// for people. It keeps the files that people send to customers in the same way ([Keeper]).
//
// # Invariants
//
//   - The row of a file is written in the transaction of its message ([Queue]), so that neither exists without the other. What deletes a
//     message leaves its files without one ([Sweep] then deletes them), whatever process it was.
//
//   - A file is stored when all of its pieces are, in one commit that says so; before that, no reader finds any of it. A worker that dies
//     between two pieces leaves a file that waits, and the next try begins with deleting them.
//
//   - Each piece is a transaction's share of [PieceBytes] at most, and a process writes one at a time and then pauses for as long as
//     that took: money and answers wait for a piece at most.
//
//   - A file has at most [MaxBytes], an organization [OrgBytes], a try [tryTime]. One organization takes at most a quarter of a process's
//     places, so that files that hang take no other's.
//
//   - Only public addresses are called, unless the operator allows others (package egress), and those of a platform's own interface.
//     Nothing that a platform or another server says gets into a log or a row but the file.
//
//   - A file that a person sends is stored whole before its message is written ([Attach]), and is deleted like the others when it has none.
//
// # What it does not do
//
// It parses no deliveries (package platforms), shows nothing to people, and answers nobody.
package media
