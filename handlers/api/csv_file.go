package api

import (
	"encoding/csv"
	"net/http"
	"strings"
	"unicode"
)

// csvFile is an answer of text/csv (RFC 4180) with a header row, which a browser saves as a file.
type csvFile struct {
	to   http.ResponseWriter
	rows *csv.Writer
}

// newCSVFile begins the answer: nothing else can be answered then.
func newCSVFile(w http.ResponseWriter, name string) *csvFile {
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8; header=present")
	h.Set("Content-Disposition", `attachment; filename="`+name+`.csv"`)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	file := &csvFile{to: w, rows: csv.NewWriter(w)}
	file.rows.UseCRLF = true
	return file
}

// row adds a row. That the client is gone is seen by flush.
func (f *csvFile) row(cells []string) { _ = f.rows.Write(cells) }

// flush sends what was written, and reports whether there is still somebody to send it to.
func (f *csvFile) flush() bool {
	f.rows.Flush()
	if f.rows.Error() != nil {
		return false
	}
	// Not every writer can flush; then it is sent later.
	_ = http.NewResponseController(f.to).Flush()
	return true
}

// csvText is a text, or nothing for nil, such that no spreadsheet takes it for a formula: one that begins like a formula, or
// would once what can't be seen is cut off, gets an apostrophe in front (OWASP "CSV Injection"; East Asian versions take the
// wide forms of the signs, too). Programs that don't know the apostrophe show it.
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
