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
	for place := range allTables {
		table := tableAt(place)
		names, columns[table.name] = append(names, table.name), map[string]string{}
		for _, column := range table.columns {
			columns[table.name][column.name] = string(column.kind)
		}
	}
	return names, columns
}

// TableLine is the line that begins a table.
func TableLine(place int) string {
	var line bytes.Buffer
	table := tableAt(place)
	if err := json.NewEncoder(&line).Encode(mark{Table: table.name, Columns: table.columnNames()}); err != nil {
		panic(err)
	}
	return line.String()
}

// ReadArchive reads a whole archive without a store, and counts its rows.
func ReadArchive(r io.Reader) (rows int, err error) {
	archive, err := newReader(r)
	for err == nil {
		var block *block
		if block, err = archive.next(); err == nil {
			var inserts []insert
			inserts, err = block.inserts()
			rows += len(inserts)
		}
	}
	if errors.Is(err, io.EOF) && archive != nil {
		err = nil
	}
	return rows, err
}

// The limits of a block, for the tests.
const (
	BlockRows  = blockRows
	BlockBytes = blockBytes
)

// MaxLine bounds a line, for the tests.
const MaxLine = maxLine
