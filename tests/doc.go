// Package tests runs the built product from the outside: its binary, its command line, official clients, and
// real databases.
//
// What belongs here is what only the whole can show: that a change made by the command line holds at the server's next
// request, that every answer on every path keeps the contract, that money is right after each ending of a call, that
// reloads, signals and kills lose nothing. What one package can show by itself is tested beside its code.
//
// How it works:
//   - [TestMain] takes the binary from SVC_CADDY, or builds one with the race detector through ./xcaddy.sh. A race
//     report or a panic in the log of any product that a test started fails that test.
//   - Crash tests take one with failpoints from SVC_CADDY_CRASH in the same way (package failpoint).
//   - Fault tests put toxiproxy, from SVC_TOXIPROXY or built from tools/go.mod, between the product and its servers.
//   - startProduct runs it in a folder of its own on free ports with a private store. When it has stopped, the books of
//     its store are checked, so that every test is also a test of the ledger.
//   - The model provider is an HTTP server of the test (upstream); each test scripts its answers.
//   - Pages are opened in Debian's Chromium, from SVC_CHROMIUM or scripts/chromium.sh: one browser for all tests, a tab with
//     cookies of its own for each (openTab). Faults that a person would not see there fail the test, too (watcher);
//     requireAccessible asks axe-core. Pictures, and the page of a test that failed, are in dist/screenshots.
//   - A customer is an organization with a key and credits; operatorStore makes one in the store, as another process would,
//     and svc runs the command line.
//
// Tests that need PostgreSQL read SVC_TEST_POSTGRES, as scripts/services.sh sets it, and fail without it. Nothing here
// waits for time to pass: gates in the upstream order what has to be ordered, conditions are polled with a deadline.
package tests
