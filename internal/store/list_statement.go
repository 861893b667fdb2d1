package store

import (
	"database/sql"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ListSizes are the lengths that a statement with a list is written for, falling, the last one 1. A list of any length is cut
// into them, so that the engines see a handful of texts and prepare each once.
type ListSizes []int

// ListStatement is the texts of a statement, one for each of its [ListSizes].
type ListStatement []string

// Statement writes a statement whose "{list}" stands for as many rows of columns parameters as each size says, see
// [ParameterRows]. A list of one is compared by "=": for IN, SQLite builds and sorts a table of its own.
func (s ListSizes) Statement(text string, columns, skip int) ListStatement {
	return s.Build(func(rows int) string {
		list := ParameterRows(rows, columns, skip)
		if rows == 1 {
			text = strings.ReplaceAll(text, "IN ({list})", "= "+strings.TrimPrefix(list, "VALUES "))
		}
		return strings.ReplaceAll(text, "{list}", list)
	})
}

// Build calls text for each size.
func (s ListSizes) Build(text func(rows int) string) ListStatement {
	built := make(ListStatement, len(s))
	for i, rows := range s {
		built[i] = text(rows)
	}
	return built
}

// QueueList queues a statement that writes items, in pieces of the sizes. arguments appends the values of an item. exact: the statement fails
// unless it changes as many rows.
func QueueList[T any](
	tx Tx, sizes ListSizes, statement ListStatement, exact bool, items []T, arguments func(values []any, item T) []any,
) {
	EachExact(sizes, items, func(size int, piece []T) {
		want := AnyRows
		if exact {
			want = int64(len(piece))
		}
		tx.Queue(want, statement[size], listArguments(piece, arguments)...)
	})
}

// QueueListed queues a query of items that doesn't mind if one is named twice. lock is [Tx.LockRows] or empty.
func QueueListed[T any](
	tx Tx, sizes ListSizes, statement ListStatement, lock string, items []T, arguments func(values []any, item T) []any, each func(Row) error,
) {
	for size, piece := range Padded(sizes, items) {
		tx.QueueQuery(each, statement[size]+lock, listArguments(piece, arguments)...)
	}
}

func listArguments[T any](items []T, of func(values []any, item T) []any) (values []any) {
	for i, item := range items {
		if i == 1 {
			values = slices.Grow(values, len(values)*(len(items)-1))
		}
		values = of(values, item)
	}
	return values
}

// RowStatement is a statement with a list of rows, which are given column by column. On SQLite it is a [ListStatement]. On PostgreSQL, where a
// parameter costs both sides more than the value in it, and a statement about as much as a few rows, it has an array for each column:
// any number of rows is one statement, with one text.
type RowStatement struct {
	sizes  ListSizes
	values ListStatement
	arrays string
}

// Rows writes a statement whose "{list}" stands for rows. types are PostgreSQL's names of the columns' types.
func (s ListSizes) Rows(text string, types ...string) RowStatement {
	return RowStatement{
		sizes: s, values: s.Statement(text, len(types), 0), arrays: strings.ReplaceAll(text, "{list}", ArrayRows(types...)),
	}
}

// ArrayRows writes a query of rows on PostgreSQL, whose parameters are an array for each column and the number of rows. Of a limit that is a
// parameter the server expects that it leaves one row: expecting ten, it would plan to read a table that is small now from end to end, and
// keep to that when the table has grown.
func ArrayRows(types ...string) string {
	names, parameters := make([]string, len(types)), make([]string, len(types))
	for i, name := range types {
		names[i], parameters[i] = fmt.Sprint("c", i+1), fmt.Sprintf("$%d::%s[]", i+1, name)
	}
	columns := strings.Join(names, ", ")
	return "SELECT " + columns + " FROM unnest(" + strings.Join(parameters, ", ") + ") AS u (" + columns + ") LIMIT $" +
		strconv.Itoa(len(types)+1) + "::bigint"
}

// Queue queues a statement that writes rows, see [Tx]. The columns are slices of one length: []string, [][]byte, []int64, []bool or
// []sql.NullInt64.
func (s RowStatement) Queue(tx Tx, columns ...any) {
	s.each(tx, columns, false, func(text string, arguments []any) { tx.Queue(AnyRows, text, arguments...) })
}

// QueueQuery is Queue for a statement that returns rows.
func (s RowStatement) QueueQuery(tx Tx, each func(Row) error, columns ...any) {
	s.each(tx, columns, false, func(text string, arguments []any) { tx.QueueQuery(each, text, arguments...) })
}

// QueueLookup is QueueQuery for a statement that doesn't mind if a row is named twice.
func (s RowStatement) QueueLookup(tx Tx, each func(Row) error, columns ...any) {
	s.each(tx, columns, true, func(text string, arguments []any) { tx.QueueQuery(each, text, arguments...) })
}

func (s RowStatement) each(tx Tx, columns []any, padded bool, use func(text string, arguments []any)) {
	rows := reflect.ValueOf(columns[0]).Len()
	if HasArrays(tx) && rows > 0 {
		use(s.arrays, append(columns, rows))
		return
	}
	for size := 0; rows > 0; {
		for length := s.sizes[size]; length > rows && size+1 < len(s.sizes) && (!padded || s.sizes[size+1] >= rows); length = s.sizes[size] {
			size++
		}
		taken := min(rows, s.sizes[size])
		use(s.values[size], cutRows(columns, taken, s.sizes[size]))
		rows -= taken
	}
}

// HasArrays reports whether the transaction's engine is PostgreSQL, whose statements may have arrays for parameters.
func HasArrays(tx Tx) bool { return tx.LockRows() != "" }

// cutRows removes the first rows of columns, and returns them as the arguments of length rows, the last of which repeat the last one.
func cutRows(columns []any, rows, length int) []any {
	arguments := make([]any, length*len(columns))
	for i, column := range columns {
		switch column := column.(type) {
		case []string:
			columns[i] = cutColumn(arguments[i:], len(columns), column, rows)
		case [][]byte:
			columns[i] = cutColumn(arguments[i:], len(columns), column, rows)
		case []int64:
			columns[i] = cutColumn(arguments[i:], len(columns), column, rows)
		case []bool:
			columns[i] = cutColumn(arguments[i:], len(columns), column, rows)
		case []sql.NullInt64:
			columns[i] = cutColumn(arguments[i:], len(columns), column, rows)
		default:
			panic(fmt.Sprintf("store: a column of type %T", column))
		}
	}
	return arguments
}

func cutColumn[T any](arguments []any, width int, column []T, rows int) (rest []T) {
	for i := 0; i < len(arguments); i += width {
		arguments[i] = column[min(i/width, rows-1)]
	}
	return column[rows:]
}

// Column returns a column of rows: what of returns for each item.
func Column[T, V any](items []T, of func(T) V) []V {
	column := make([]V, len(items))
	for i, item := range items {
		column[i] = of(item)
	}
	return column
}

// ParameterRows writes rows of columns parameters, numbered after the first skip ones: ($1,$2) for rows of one column, VALUES
// ($1,$2),($3,$4) for others.
func ParameterRows(rows, columns, skip int) string {
	between, start := "),(", "VALUES ("
	if columns == 1 {
		between, start = ",", "("
	}
	text := append(make([]byte, 0, len(start)+rows*(6*columns+2)), start...)
	for i := range rows * columns {
		switch {
		case i == 0:
		case i%columns == 0:
			text = append(text, between...)
		default:
			text = append(text, ',')
		}
		text = strconv.AppendInt(append(text, '$'), int64(skip+i+1), 10)
	}
	return string(append(text, ')'))
}

// Arguments returns a list as arguments of a statement, after the first ones.
func Arguments[T any](list []T, first ...any) []any {
	arguments := make([]any, 0, len(first)+len(list))
	arguments = append(arguments, first...)
	for _, item := range list {
		arguments = append(arguments, item)
	}
	return arguments
}

// in appends values to arguments and returns the list of their parameters, for IN.
func in[T any](arguments *[]any, values []T) string {
	list := ParameterRows(len(values), 1, len(*arguments))
	for _, value := range values {
		*arguments = append(*arguments, value)
	}
	return list
}

// EachExact cuts items into pieces of the sizes, for statements that must name each item once. use gets the place of the
// piece's size among sizes.
func EachExact[T any](sizes ListSizes, items []T, use func(size int, piece []T)) {
	for size, length := range sizes {
		for len(items) >= length {
			use(size, items[:length])
			items = items[length:]
		}
	}
}

// Padded cuts items into as few pieces as possible, each with the place of its size among sizes. The last one has the smallest
// size that holds it and repeats its last item, which a look-up doesn't mind. Items stay in order.
func Padded[T any](sizes ListSizes, items []T) iter.Seq2[int, []T] {
	return func(yield func(int, []T) bool) {
		for len(items) > 0 {
			size := 0
			for size+1 < len(sizes) && sizes[size+1] >= len(items) {
				size++
			}
			piece := items[:min(len(items), sizes[size])]
			items = items[len(piece):]
			if missing := sizes[size] - len(piece); missing > 0 {
				piece = slices.Concat(piece, slices.Repeat(piece[len(piece)-1:], missing))
			}
			if !yield(size, piece) {
				return
			}
		}
	}
}

// EachPadded calls use with the pieces of [Padded] until it fails.
func EachPadded[T any](sizes ListSizes, items []T, use func(size int, piece []T) error) error {
	for size, piece := range Padded(sizes, items) {
		if err := use(size, piece); err != nil {
			return err
		}
	}
	return nil
}
