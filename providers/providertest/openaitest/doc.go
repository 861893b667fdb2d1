// Package openaitest is a scripted model vendor for tests: an [http.Handler] that speaks the OpenAI-compatible
// chat interface and can misbehave in every way that vendors and relays were seen to.
//
// A test chooses the behaviour by a text anywhere in its prompt: "scenario:NAME" with options ";key=value", such as
// "scenario:reset;at=2". Without one the vendor behaves well. The names are in [Scenarios]; the options, which most
// scenarios share, are:
//
//	text=T    the answer, query-escaped; cut into pieces behind each blank (default "Hello from upstream.")
//	n=N       the answer is N pieces "w0 w1 …" instead
//	size=N    the answer is one piece of N letters instead
//	pt=N ct=N cached=N   reported prompt, completion and cached tokens (default 11, 7, none)
//	usage=J   reported usage as JSON, query-escaped
//	finish=W  the finish reason (default stop)
//	at=N      the fault comes before piece N, counted from 0 (default 2)
//	delay=MS  a pause before each piece
//	gate=G    the vendor waits until the test calls Release("G"): before it answers, or before piece `hold`
//	hold=N    where the gate is
//	ra=V ra_ms=V  values of Retry-After and retry-after-ms, query-escaped
//	body=B    body of an error status: openai (default), html, empty, array, text, vllm
//	json=J    body of an error status as JSON, query-escaped
//
// Every request is kept in a journal with all it carried. The vendor sends no secret but [Secret], which tests
// look for where it must not be. It does no checks of its own: what a request should look like is for the test to say.
package openaitest
