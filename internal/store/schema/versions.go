package schema

import (
	_ "embed"
	"regexp"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

//go:embed schema.sql
var first string

// Version is a version of the schema, which is applied in one transaction.
type Version struct {
	Number int64
	DDL    string // for its engine
}

// Versions returns every version of the schema, oldest first.
//
// Until the first release a new table or column is a change of schema.sql, later a new version at the end, in the same words; a released
// version never changes. A later version only expands: it adds tables, columns and indexes, because old and new processes share a database
// during a roll-out.
func Versions(engine driver.Engine) []Version {
	return []Version{
		{Number: 1, DDL: Dialect(engine, first)},
	}
}

// Newest returns the schema version that this program brings a store to.
func Newest(engine driver.Engine) int64 {
	all := Versions(engine)
	return all[len(all)-1].Number
}

// Table is a table that both engines have.
type Table struct {
	Name    string
	Columns []Column
}

// Column is a column that both engines have. Type is TEXT, BIGINT, BYTEA or BOOLEAN.
type Column struct{ Name, Type string }

var (
	tableLine  = regexp.MustCompile(`^CREATE TABLE (\w+) \($`)
	columnLine = regexp.MustCompile(`^\t(\w+) +(TEXT|BIGINT|BYTEA|BOOLEAN)\b`)
)

// Tables returns the tables of the newest version, each after the tables that its foreign keys name.
func Tables() (tables []Table) {
	for line := range strings.Lines(linesFor("", first)) {
		if table := tableLine.FindStringSubmatch(strings.TrimSpace(line)); table != nil {
			tables = append(tables, Table{Name: table[1]})
		} else if column := columnLine.FindStringSubmatch(line); column != nil {
			last := &tables[len(tables)-1]
			last.Columns = append(last.Columns, Column{column[1], column[2]})
		}
	}
	return tables
}

// Dialect puts DDL in the words of schema.sql into the engine's. On SQLite tables are STRICT, so that both engines refuse a value of the wrong
// type. A {table} is WITHOUT ROWID there, which saves one B-tree for each text key; not so a {long table}, whose rows are many pages long:
// each comparison on the way to a row would read the whole row that it compares. On PostgreSQL a {hot table}, whose rows are updated again
// and again, leaves room on its pages for the new versions. Texts compare byte by byte there, as on SQLite: by the rules of a database's
// language each step of a search in an index takes several times as long, and an index is wrong after an upgrade that changes the rules.
func Dialect(engine driver.Engine, ddl string) string {
	words := strings.NewReplacer(
		"BIGINT", "INTEGER", "BYTEA", "BLOB", "BOOLEAN", "INTEGER",
		"{table}", "STRICT, WITHOUT ROWID", "{hot table}", "STRICT, WITHOUT ROWID", "{long table}", "STRICT",
	)
	if engine == driver.Postgres {
		words = strings.NewReplacer("TEXT", `TEXT COLLATE "C"`, " {table}", "", " {hot table}", " WITH (fillfactor = 50)", " {long table}", "")
	}
	return words.Replace(linesFor(engine, ddl))
}

// linesFor returns the lines that are for the engine: all except the lines between another engine's name and the next mark.
func linesFor(engine driver.Engine, ddl string) string {
	var text strings.Builder
	wanted := true
	for line := range strings.Lines(ddl) {
		switch mark := strings.TrimSpace(line); mark {
		case "-- sqlite", "-- postgres", "-- both":
			wanted = mark == "-- both" || mark == "-- "+string(engine)
		default:
			if wanted {
				text.WriteString(line)
			}
		}
	}
	return text.String()
}
