package endpoint

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// defaultPageLimit is the number of elements of a page when the client gives none.
	defaultPageLimit = 50
	// maxPageBytes bounds the elements of a page together, as they are written. The first element may exceed it.
	maxPageBytes = 1 << 20
)

// PageQuery are the parameters of every list.
type PageQuery struct {
	Limit  int    `query:"limit"  minimum:"1" maximum:"100" default:"50" doc:"How many elements the page has at most; it ends earlier where its elements would exceed 1 MiB"` //nolint:lll // a struct tag can't be broken
	Cursor string `query:"cursor" maxLength:"200" doc:"nextCursor of the page before; absent for the first page"`
}

// Page returns the page to read. It has one row more than the client's page, which shows [Listed] whether another page follows.
func (q PageQuery) Page() (store.Page, error) {
	page := store.Page{Limit: q.limit() + 1}
	if q.Cursor == "" {
		return page, nil
	}
	after, err := base64.RawURLEncoding.Strict().DecodeString(q.Cursor)
	if err != nil || !handlers.WellFormedID(string(after)) {
		return page, handlers.InvalidRequest("cursor", "cursor is not a nextCursor of this list.")
	}
	page.After = string(after)
	return page, nil
}

func (q PageQuery) limit() int { return cmp.Or(q.Limit, defaultPageLimit) }

// ListObject is a page of a list.
type ListObject[T any] struct {
	Data       []T     `json:"data" nullable:"false"`
	NextCursor *string `json:"nextCursor" doc:"Send it as cursor to get the next page; null on the last one"`
}

// Listed returns the page of rows that were read for [PageQuery.Page]. It ends before the element with which it would exceed
// [maxPageBytes].
func Listed[Row, T any](q PageQuery, rows []Row, id func(*Row) string, object func(*Row) T) *ListObject[T] {
	list := &ListObject[T]{Data: []T{}}
	size := 0
	for i := range rows {
		shown := object(&rows[i])
		size += len(handlers.Marshal(shown))
		if i == q.limit() || i > 0 && size > maxPageBytes {
			list.NextCursor = Cursor(id(&rows[i-1]))
			break
		}
		list.Data = append(list.Data, shown)
	}
	return list
}

// Cursor returns the nextCursor of a page that ends with the element of this id.
func Cursor(id string) *string { return new(base64.RawURLEncoding.EncodeToString([]byte(id))) }

// Timestamp returns a time as the endpoint groups show it: RFC 3339, UTC, milliseconds.
func Timestamp(epochMillis int64) string {
	return time.UnixMilli(epochMillis).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// TimestampOrNull returns the time like [Timestamp], or nil if it is zero.
func TimestampOrNull(epochMillis int64) *string {
	if epochMillis == 0 {
		return nil
	}
	return new(Timestamp(epochMillis))
}

// OrNull returns the value, or nil if it is the zero value.
func OrNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// PathID is the id in a path. [Server.Serve] has answered not_found for a text that can't be one. Like other types that
// operations' inputs embed, it is exported because huma's schemas skip unexported fields.
type PathID struct {
	ID string `path:"id"`
}

// Refusal returns the error with a code and a public message that is formatted as in [fmt.Sprintf]. The cause is only logged; it may be nil.
func Refusal(code errcode.Code, cause error, format string, args ...any) *handlers.Error {
	return &handlers.Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// RateLimited is [Refusal] of a request that may be repeated after a while.
func RateLimited(after time.Duration, cause error, format string, args ...any) *handlers.Error {
	refusal := Refusal(errcode.RateLimited, cause, format, args...)
	refusal.RetryAfter = after
	return refusal
}

// KeyHeader is the Idempotency-Key of an operation's request. It is exported as [PathID] is.
type KeyHeader struct {
	Key string `header:"Idempotency-Key" doc:"Makes it safe to send the request again after a network failure: the same key with the same content does it once, within 24 hours. 1 to 255 visible ASCII characters."` //nolint:lll // a struct tag can't be broken

	header http.Header
}

// keep keeps the header of the request unchanged.
func (k *KeyHeader) keep(header http.Header) { k.header = header }

// IdempotencyKey returns the key, as [handlers.IdempotencyKey] reads it.
func (k *KeyHeader) IdempotencyKey() (string, error) {
	if k.header == nil && k.Key != "" { // the operation runs as a function
		return handlers.IdempotencyKey(http.Header{handlers.HeaderIdempotencyKey: {k.Key}})
	}
	return handlers.IdempotencyKey(k.header)
}

// Replayable is an answer with a body that may have been given before.
type Replayable[T any] struct {
	Replayed string `header:"Idempotent-Replayed" doc:"true: it was done before, for a request with the same Idempotency-Key"`
	Body     T
}

func (r *Replayable[T]) content() any { return &r.Body }

func (r *Replayable[T]) replayed() bool { return r.Replayed != "" }

// Replay returns the answer with the body.
func Replay[T any](body T, replayed bool) *Replayable[T] {
	answer := &Replayable[T]{Body: body}
	if replayed {
		answer.Replayed = "true"
	}
	return answer
}
