package billing

import (
	"slices"
	"strconv"
	"strings"
)

// chunkSizes are the only row counts of statements. A batch is cut into these sizes, so that the engines see a handful of texts
// and prepare each once.
var chunkSizes = [...]int{64, 16, 4, 1}

// statements are one statement's texts, one for each of chunkSizes.
type statements [len(chunkSizes)]string

// insertRows writes head followed by as many rows of columns parameters as each size says.
func insertRows(head string, columns int) statements {
	return buildStatements(func(rows int) string { return head + valueRows(rows, columns) })
}

// lookUp writes a statement whose "{keys}" stands for a list of keys of columns parameters each, numbered after
// the first skip parameters.
func lookUp(text string, columns, skip int) statements {
	return buildStatements(func(rows int) string {
		var keys string
		if columns == 1 {
			keys = "(" + parameters(skip, rows) + ")"
		} else {
			keys = "(" + valueRows(rows, columns) + ")"
		}
		return strings.ReplaceAll(text, "{keys}", keys)
	})
}

func buildStatements(text func(rows int) string) statements {
	var built statements
	for i, size := range chunkSizes {
		built[i] = text(size)
	}
	return built
}

// valueRows returns VALUES ($1,$2),($3,$4)….
func valueRows(rows, columns int) string {
	var text strings.Builder
	text.WriteString("VALUES ")
	for row := range rows {
		if row > 0 {
			text.WriteByte(',')
		}
		text.WriteString("(" + parameters(row*columns, columns) + ")")
	}
	return text.String()
}

// parameters returns count parameters, the first numbered after skip.
func parameters(skip, count int) string {
	var text strings.Builder
	for i := range count {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteByte('$')
		text.WriteString(strconv.Itoa(skip + i + 1))
	}
	return text.String()
}

// exactChunks cuts items into pieces of chunkSizes, for statements that must name each item once.
func exactChunks[T any](items []T, each func(size int, chunk []T)) {
	for i, size := range chunkSizes {
		for len(items) >= size {
			each(i, items[:size])
			items = items[size:]
		}
	}
}

// paddedChunks cuts keys into as few pieces as possible: the last one uses the smallest text that holds it and repeats its last
// key, which doesn't change a look-up. Keys stay in order.
func paddedChunks[T any](keys []T, each func(size int, chunk []T) error) error {
	for len(keys) > 0 {
		size := 0
		for size+1 < len(chunkSizes) && chunkSizes[size+1] >= len(keys) {
			size++
		}
		chunk := keys[:min(len(keys), chunkSizes[size])]
		keys = keys[len(chunk):]
		for len(chunk) < chunkSizes[size] {
			chunk = append(slices.Clip(chunk), chunk[len(chunk)-1])
		}
		if err := each(size, chunk); err != nil {
			return err
		}
	}
	return nil
}
