package store

// The rows of a page: how many a zero Page reads, and how many any page reads at most.
const (
	defaultPageRows = 100
	maxPageRows     = 1000
)

// Page is a part of a list that is in order of id, which is the order of creation ([NewID]): what follows After. The
// zero value is the first 100 rows.
type Page struct {
	After string // id of the last row that was seen; "" from the start
	Limit int    // rows; see [Page.Rows]
}

// Rows is how many rows the page reads at most: Limit, 100 when that is 0 or negative, never more than 1,000.
func (p Page) Rows() int {
	if p.Limit <= 0 {
		return defaultPageRows
	}
	return min(p.Limit, maxPageRows)
}
