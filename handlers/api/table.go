package api

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"unicode"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TableQuery is the parameter of lists that are also available as CSV. It is exported for huma, see
// [endpoint.PathID].
type TableQuery struct {
	Format string `query:"format" enum:"json,csv" doc:"csv: all rows from the cursor on, as a file, whatever the limit; so does Accept: text/csv"` //nolint:lll // a struct tag can't be broken
}

// table is a list of rows, each of which has a place in a wallet's history and is shown as T. The columns of its file are T's members.
type table[Row, T any] struct {
	// name of the file.
	name string
	// read reads a stretch in bounded reads. If it stopped early, next is the place from which to read on. Otherwise next is zero.
	read  func(ctx context.Context, stretch billing.Stretch) (rows []Row, next billing.Place, err error)
	place func(*Row) billing.Place
	show  func(*Row) T
}

// tableOf describes an operation that answers with a page of T, or with the whole list as CSV.
func tableOf[T any](o endpoint.Operation) endpoint.Operation {
	return fileOf[endpoint.ListObject[T]](o)
}

// fileOf describes an operation that answers with T, or with CSV.
func fileOf[T any](o endpoint.Operation) endpoint.Operation {
	o.Table = reflect.TypeFor[T]()
	return o
}

// tableBody returns a table in the form that the client requested.
func tableBody[Row, T any](bodies *handlers.ByteBudget, in HistoryQuery, stretch billing.Stretch, t table[Row, T]) *endpoint.Stream {
	return fileOrJSON(bodies, in.Format, func(ctx context.Context, asCSV bool) (any, error) {
		if asCSV {
			stretch.Rows = billing.MaxHistoryRows
		}
		rows, next, err := t.read(ctx, stretch)
		if err != nil {
			return nil, handlers.AsError(err)
		}
		if asCSV {
			return endpoint.File(func(w http.ResponseWriter, r *http.Request) { t.writeCSV(w, r, stretch, rows, next) }), nil
		}
		list := endpoint.Listed(in.PageQuery, rows, func(row *Row) string { return placeText(t.place(row)) }, t.show)
		if list.NextCursor == nil && next != (billing.Place{}) {
			list.NextCursor = endpoint.Cursor(placeText(next))
		}
		return endpoint.Answer(*list), nil
	})
}

// fileOrJSON returns an answer of JSON, or of CSV if that is the format in the query or, without one, in the header Accept. read returns the
// answer with a body, or a file.
func fileOrJSON(bodies *handlers.ByteBudget, format string, read func(ctx context.Context, asCSV bool) (any, error)) *endpoint.Stream {
	return endpoint.Whole(bodies, func(ctx context.Context, accept string) (any, error) {
		return read(ctx, format == "csv" || format == "" && handlers.Prefers(accept, "text/csv"))
	})
}

// writeCSV writes the first rows, after which next is the place to read on, and then the whole rest of the table page by page, with no open
// transaction between two reads. When a read fails after the first bytes were sent, it cuts the connection, so that the part can't be mistaken
// for the whole.
func (t table[Row, T]) writeCSV(w http.ResponseWriter, r *http.Request, stretch billing.Stretch, rows []Row, next billing.Place) {
	file, members := newCSVFile(w, t.name), endpoint.MembersOf(reflect.TypeFor[T]())
	file.row(store.Column(members, func(m endpoint.Member) string { return m.Name }))
	for {
		for i := range rows {
			shown := t.show(&rows[i])
			file.row(store.Column(members, func(m endpoint.Member) string { return cell(m.Name, m.Of(&shown)) }))
		}
		switch {
		case next != (billing.Place{}):
			stretch.After = next
		case len(rows) < billing.MaxHistoryRows:
			file.flush()
			return
		default:
			stretch.After = t.place(&rows[len(rows)-1])
		}
		if !file.flush() {
			return // the client is gone
		}
		var err error
		if rows, next, err = t.read(r.Context(), stretch); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// cell returns the value of a member. Texts are no formulas, as [csvText] writes them; an amount may begin with a minus.
func cell(name string, value any) string {
	text, isText := value.(string)
	switch {
	case value == nil:
		return ""
	case isText && !strings.HasSuffix(name, "Micros"):
		return csvText(&text)
	}
	return fmt.Sprint(value)
}

// csvFile is an answer of text/csv (RFC 4180) with a header row, which a browser saves as a file.
type csvFile struct {
	to   http.ResponseWriter
	rows *csv.Writer
}

// beginFile sends the status and headers of a file, after which no error can be answered. A file without a name isn't saved by browsers.
func beginFile(w http.ResponseWriter, mediaType, name string) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	if name != "" {
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}

func newCSVFile(w http.ResponseWriter, name string) *csvFile {
	beginFile(w, "text/csv; charset=utf-8; header=present", name+".csv")
	file := &csvFile{to: w, rows: csv.NewWriter(w)}
	file.rows.UseCRLF = true
	return file
}

// row adds a row. That the client is gone is seen by flush.
func (f *csvFile) row(cells []string) { _ = f.rows.Write(cells) }

// flush sends the rows so far, and reports whether the client is still there.
func (f *csvFile) flush() bool {
	f.rows.Flush()
	if f.rows.Error() != nil {
		return false
	}
	// Not every writer can flush; then it is sent later.
	_ = http.NewResponseController(f.to).Flush()
	return true
}

// csvText returns a text in a form that no spreadsheet evaluates as a formula, and an empty text for nil. A text that begins
// like a formula, perhaps after invisible characters, gets an apostrophe in front (OWASP "CSV Injection"; East Asian
// versions also accept the wide forms of the signs). Programs without this convention show the apostrophe.
func csvText(text *string) string {
	if text == nil {
		return ""
	}
	seen := strings.TrimLeftFunc(*text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) })
	if strings.IndexAny(seen, "=+-@＝＋－＠") == 0 || strings.IndexAny(*text, "\t\r\n") == 0 {
		return "'" + *text
	}
	return *text
}
