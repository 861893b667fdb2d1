package platformfake

import "time"

// Fault is a scripted response to a request; the zero value serves it well.
type Fault struct {
	kind  faultKind
	pause time.Duration // before answering, or what the platform asks for with 429
	code  int           // the platform's own, of templateRefused
}

type faultKind uint8

const (
	serveWell faultKind = iota
	unauthorized
	tooMany
	tooManyForOne
	temporary
	serverError
	windowExpired
	customerBlocked
	rejected
	dropBefore
	dropAfter
	hang
	garbage
	truncated
	redirect
	badRefreshToken
	badSignature
	templateRefused
	unexplained
)

// The faults. Those in the platform's own words have the form of the platform asked.
var (
	// Unauthorized says that the access token is not accepted, in the platform's own words.
	Unauthorized = Fault{kind: unauthorized}
	// TooMany is a 429 in the platform's own words, without Retry-After.
	TooMany = Fault{kind: tooMany}
	// Temporary is a fault of the platform, in its own words.
	Temporary = Fault{kind: temporary}
	// Unexplained is the chat app's error that something went wrong. Other platforms answer as with Rejected.
	Unexplained = Fault{kind: unexplained}
	// ServerError is a 502 page of a proxy before the platform. Nothing is delivered, but the sender can't be sure of that.
	ServerError = Fault{kind: serverError}
	// WindowExpired says that the customer's last message is too old. The bot platform and marketplace A have no words for it
	// and answer as with Rejected.
	WindowExpired = Fault{kind: windowExpired}
	// CustomerBlocked says that this customer can't be reached. The marketplaces answer as with Rejected.
	CustomerBlocked = Fault{kind: customerBlocked}
	// Rejected says that the message is no good, in the platform's own words.
	Rejected = Fault{kind: rejected}
	// DropBefore reads the request, takes nothing and cuts the connection.
	DropBefore = Fault{kind: dropBefore}
	// DropAfter delivers and cuts the connection.
	DropAfter = Fault{kind: dropAfter}
	// Hang delivers and answers only after [Server.Release]; until then the sender has no answer.
	Hang = Fault{kind: hang}
	// Garbage delivers and answers 200 with a page.
	Garbage = Fault{kind: garbage}
	// Truncated delivers and answers 200 with half of the body.
	Truncated = Fault{kind: truncated}
	// Redirect is a redirect; a sender that follows it delivers.
	Redirect = Fault{kind: redirect}
)

// Slow delivers at once and answers well d later.
func Slow(d time.Duration) Fault { return Fault{pause: d} }

// TooManyFor is a 429 with Retry-After d, in whole seconds.
func TooManyFor(d time.Duration) Fault { return Fault{kind: tooMany, pause: d} }

// TooManyForOne is what the chat app says of too many messages to one customer; it asks for 6 s in its documentation only. Other platforms
// answer as with [TooManyFor].
var TooManyForOne = Fault{kind: tooManyForOne, pause: 6 * time.Second}

// asksForPause reports whether the fault, or the platform's documentation of it, says for how long nothing may be sent.
func (f Fault) asksForPause() bool {
	return (f.kind == tooMany || f.kind == tooManyForOne) && f.pause > 0
}

// Repeat is n times the same fault.
func Repeat(n int, fault Fault) []Fault {
	faults := make([]Fault, n)
	for i := range faults {
		faults[i] = fault
	}
	return faults
}

// delivers reports whether the customer gets the message nevertheless.
func (f Fault) delivers() bool {
	switch f.kind {
	case serveWell, dropAfter, hang, garbage, truncated:
		return true
	default:
		return false
	}
}
