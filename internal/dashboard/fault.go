package dashboard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// Codes of the error contract (spec §7.2) that the dashboard itself says or looks for.
const (
	codeUnauthenticated = string(errcode.Unauthenticated)
	codeSuspended       = string(errcode.OrganizationSuspended)
	codeForbidden       = string(errcode.Forbidden)
	codeNotFound        = string(errcode.NotFound)
	codeInvalidRequest  = string(errcode.InvalidRequest)
	codeConflict        = string(errcode.Conflict)
	codeInternal        = string(errcode.InternalError)
)

// errAnswered is what show and do return when they wrote the answer themselves.
var errAnswered = errors.New("the answer is written")

// fault is an error of the API as it told it (spec §7.1).
type fault struct {
	Status     int    `json:"-"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	Field      string `json:"field,omitempty"`
	DocsURL    string `json:"docsUrl,omitempty"`
	RequestID  string `json:"requestId"`
	RetryAfter int64  `json:"retryAfter,omitempty"`
}

// Error is for logs.
func (f *fault) Error() string {
	return fmt.Sprintf("the API answered %d %s: %s (%s)", f.Status, f.Code, f.Message, f.RequestID)
}

// refuseField is a fault of a form that the API can't find, for it never sees the field.
func refuseField(name, message string) *fault {
	return &fault{Status: http.StatusBadRequest, Code: codeInvalidRequest, Field: name, Message: message}
}

// faultOf finds the fault in err; anything else is a fault of ours, whose text stays in the log.
func (d *Dashboard) faultOf(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	d.config.Logger.Error("the dashboard failed", "error", err)
	return &fault{
		Status: http.StatusInternalServerError, Code: codeInternal,
		Message: "The service failed to handle the request. Try again; if it goes on, tell the operator.",
	}
}
