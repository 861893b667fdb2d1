// Package providers holds the wire adapters to model vendors, all behind one streaming interface, [Provider].
//
// # What belongs here
//
// How a vendor wants to be asked and how it answers: the request body, the headers, the event stream, the
// dialects, the error bodies, the timers of one call. [OpenAI] speaks the chat-completions form that most vendors
// and local servers offer, [Echo] answers by itself for trying the service out. [JSONString] is the form in which
// prompt texts travel through the service.
//
// # Invariants
//
//   - An answer ends in exactly one of two ways: io.EOF after the finish reason, or an [*Error]. A stream that
//     breaks off is never reported as complete.
//   - No text follows the finish reason: vendors that repeat it in every chunk, or that send an error after it,
//     look the same as those that don't.
//   - One request of the caller is one request on the wire. The only exception is a connect that failed before
//     any byte of the request was handed to a connection; it is tried once more and logged.
//   - Every wait has a timer, and each timer cancels the call with its own cause. What happened is read from
//     [context.Cause], never from the text of an error.
//   - Nothing of the vendor is passed on but text, finish reason and token counts. Vendor texts end in
//     [Error.Detail], which is for logs.
//   - After Open has failed or Close has returned, the memory of the [Request] is not read any more.
//
// # What it does not do
//
// No choice of model or vendor, no prices, no limits, no estimate of missing usage, no judgement whether a reported
// usage is plausible for the model (all internal/gateway), no public error codes or texts (handlers). It imports
// nothing of ours.
package providers
