// Package providers is the contract between the gateway and the vendors of models, and the call that all vendors share.
//
// # Adapters
//
// A [Provider] answers one [Request] with [Events]: pieces of text, one finish reason, the token counts. A vendor with an
// HTTP interface needs no client of its own. It describes its request and answer as a [Dialect], and [NewHTTP] makes the
// Provider: timers, one retry of a failed connect, bounds of memory, server-sent events and error handling come with it.
//
// An adapter is a package with a [Driver], which describes the protocol and makes Providers from a configuration. A Caddy
// module of the namespace svc.providers makes it available as `protocol NAME`; it needs nothing but the driver. What only
// some drivers can do are small interfaces of their own: [option.Checker]. Packages openai and echo are the built-in
// adapters. Package providertest checks any adapter against this contract.
//
// The contract is v0: it changes as vendors need it to.
//
// # Invariants
//
//   - An answer ends in exactly one of two ways: io.EOF after the finish reason, or an [*Error]. A stream that
//     breaks off is never reported as complete.
//   - No text follows the finish reason, also with vendors that repeat it in every event or send an error after it.
//   - One request of the caller is one request on the wire. The only exception is a connect that failed before
//     any byte of the request was handed to a connection; it is tried once more and logged.
//   - Every wait has a timer, and each timer cancels the call with its own cause. The reason of a failure is read from
//     [context.Cause], never from the text of an error.
//   - Nothing of the vendor is passed on but text, finish reason and token counts. Vendor texts end in
//     [Error.Detail], which is for logs.
//   - After Open has failed or Close has returned, the memory of the [Request] is not read any more.
//
// # What it does not do
//
// No choice of model or vendor, no prices, no limits, no estimate of missing usage, no judgement whether a reported
// usage is plausible for the model (all internal/gateway), no public error codes or texts (handlers), no Caddy.
package providers
