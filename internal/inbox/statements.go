package inbox

import (
	"slices"
	"strconv"
	"strings"
)

// listSizes are the only list lengths of statements. A list is cut into these sizes, so that the engines see a handful of texts
// and prepare each once.
var listSizes = [...]int{64, 8, 1}

// listTexts are one statement's texts, one for each of listSizes.
type listTexts [len(listSizes)]string

// listStatement returns a statement whose "{list}" stands for as many rows of columns parameters as each size says, numbered
// after the first skip parameters. Rows of one column make (…), others VALUES (…),(…).
func listStatement(text string, columns, skip int) (texts listTexts) {
	for i, size := range listSizes {
		texts[i] = strings.ReplaceAll(text, "{list}", parameterRows(size, columns, skip))
	}
	return texts
}

func parameterRows(rows, columns, skip int) string {
	var text strings.Builder
	if columns == 1 {
		text.WriteByte('(')
	} else {
		text.WriteString("VALUES ")
	}
	for row := range rows {
		if row > 0 {
			text.WriteByte(',')
		}
		if columns > 1 {
			text.WriteByte('(')
		}
		for column := range columns {
			if column > 0 {
				text.WriteByte(',')
			}
			text.WriteByte('$')
			text.WriteString(strconv.Itoa(skip + row*columns + column + 1))
		}
		if columns > 1 {
			text.WriteByte(')')
		}
	}
	if columns == 1 {
		text.WriteByte(')')
	}
	return text.String()
}

// eachExact cuts items into pieces of listSizes, for statements that must name each item once.
func eachExact[T any](items []T, use func(size int, piece []T)) {
	for size, length := range listSizes {
		for len(items) >= length {
			use(size, items[:length])
			items = items[length:]
		}
	}
}

// eachPadded cuts items into as few pieces as possible. The last one takes the smallest text that holds it and repeats its last
// item, which doesn't change a look-up. Items stay in order.
func eachPadded[T any](items []T, use func(size int, piece []T) error) error {
	for len(items) > 0 {
		size := 0
		for size+1 < len(listSizes) && listSizes[size+1] >= len(items) {
			size++
		}
		piece := items[:min(len(items), listSizes[size])]
		items = items[len(piece):]
		for len(piece) < listSizes[size] {
			piece = append(slices.Clip(piece), piece[len(piece)-1])
		}
		if err := use(size, piece); err != nil {
			return err
		}
	}
	return nil
}

// paddedList repeats the last item until the list has one of a few lengths.
func paddedList[T any](items []T) []T {
	length := 1
	for length < len(items) {
		length *= 8
	}
	padded := slices.Clone(items)
	for len(padded) < length {
		padded = append(padded, items[len(items)-1])
	}
	return padded
}
