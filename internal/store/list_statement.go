package store

import (
	"iter"
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
