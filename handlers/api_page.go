package handlers

import (
	"encoding/base64"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// defaultPageLimit is how many elements a list has when the client doesn't say.
const defaultPageLimit = 50

// PageQuery are the parameters of every list (design §6 "groups' conventions").
type PageQuery struct {
	Limit  int    `query:"limit"  minimum:"1" maximum:"100" default:"50" doc:"How many elements the page has at most"`
	Cursor string `query:"cursor" maxLength:"200" doc:"nextCursor of the page before; absent for the first page"`
}

// page asks for one row more than the client wants, which tells whether there is another page.
func (q PageQuery) page() (store.Page, error) {
	page := store.Page{Limit: q.limit() + 1}
	if q.Cursor == "" {
		return page, nil
	}
	after, err := base64.RawURLEncoding.Strict().DecodeString(q.Cursor)
	if err != nil || !wellFormedID(string(after)) {
		return page, InvalidRequest("cursor", "cursor is not a nextCursor of this list.")
	}
	page.After = string(after)
	return page, nil
}

func (q PageQuery) limit() int {
	if q.Limit == 0 {
		return defaultPageLimit
	}
	return q.Limit
}

// listObject is a page of a list.
type listObject[T any] struct {
	Data       []T     `json:"data" nullable:"false"`
	NextCursor *string `json:"nextCursor" doc:"Send it as cursor to get the next page; null on the last one"`
}

// listed makes a page of rows that were read for [PageQuery.page].
func listed[Row, T any](q PageQuery, rows []Row, id func(*Row) string, object func(*Row) T) *jsonBody[listObject[T]] {
	list := listObject[T]{Data: []T{}}
	for i := range rows {
		if i == q.limit() {
			next := base64.RawURLEncoding.EncodeToString([]byte(id(&rows[i-1])))
			list.NextCursor = &next
			break
		}
		list.Data = append(list.Data, object(&rows[i]))
	}
	return &jsonBody[listObject[T]]{list}
}

// wellFormedID reports whether the text could be an id of ours ([store.NewID]); others needn't be looked for, and some
// can't be: no engine takes NUL.
func wellFormedID(text string) bool {
	const longest = 64
	notOfIDs := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_'
	}
	return text != "" && len(text) <= longest && !strings.ContainsFunc(text, notOfIDs)
}

// timestamp is a moment as the endpoint groups show it: RFC 3339, UTC, milliseconds.
func timestamp(epochMillis int64) string {
	return time.UnixMilli(epochMillis).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// timestampOrNull is nil for 0.
func timestampOrNull(epochMillis int64) *string {
	if epochMillis == 0 {
		return nil
	}
	text := timestamp(epochMillis)
	return &text
}

// textOrNull is nil for "".
func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
