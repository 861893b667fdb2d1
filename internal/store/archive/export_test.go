package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// ArchivedTables is the list of tables in an archive, and the columns of each with their types.
func ArchivedTables() (names []string, columns map[string]map[string]string) {
	columns = map[string]map[string]string{}
	for _, table := range allTables() {
		names, columns[table.Name] = append(names, table.Name), map[string]string{}
		for _, column := range table.Columns {
			columns[table.Name][column.Name] = column.Type
		}
	}
	return names, columns
}

// TableLine is the line that begins a table.
func TableLine(place int) string {
	var line bytes.Buffer
	table := allTables()[place]
	if err := json.NewEncoder(&line).Encode(mark{Table: table.Name, Columns: columnNames(table)}); err != nil {
		panic(err)
	}
	return line.String()
}

// ReadArchive reads a whole archive without a store, and counts its rows.
func ReadArchive(r io.Reader) (rows int, err error) {
	archive, err := newReader(r)
	for err == nil {
		var block []run
		block, err = archive.next()
		for _, run := range block {
			if err == nil {
				_, err = run.values()
				rows += len(run.rows)
			}
		}
	}
	if errors.Is(err, io.EOF) && archive != nil {
		err = nil
	}
	return rows, err
}

// LeftOut are the tables that an archive doesn't hold.
var LeftOut = leftOut

// The limits of a block, for the tests.
const (
	BlockRows  = blockRows
	BlockBytes = blockBytes
)

// MaxLine bounds a line, for the tests.
const MaxLine = maxLine
