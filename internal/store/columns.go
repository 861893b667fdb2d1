package store

import (
	"database/sql"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// field is a column with the field of an item that it is stored in.
type field struct {
	column string
	// into points to the field. It is a [stored] for a field that has another form in its column, and a [computed] for one that is only read.
	into any
}

// computed is a field that is only read, from an expression in the place of a column.
type computed struct{ into any }

// stored is a field that has another form in its column.
type stored interface {
	column() any // points to what the column is scanned into
	read()       // sets the field from the column
	write() any  // returns the field as its column has it
}

type converted[C any] struct {
	scanned C
	from    func() C
	to      func(C)
}

func (c *converted[C]) column() any { return &c.scanned }
func (c *converted[C]) read()       { c.to(c.scanned) }
func (c *converted[C]) write() any  { return c.from() }

// convert returns a field whose column has the value that write returns; read sets the field.
func convert[C any](write func() C, read func(C)) stored { return &converted[C]{from: write, to: read} }

// nullable is a text whose column has NULL for an empty one.
func nullable(text *string) stored {
	return convert(func() sql.NullString { return orNull(*text) }, func(column sql.NullString) { *text = column.String })
}

// separated is a list of texts in one column. None of them contains the separator.
func separated(list *[]string, separator string) stored {
	return convert(func() string { return strings.Join(*list, separator) }, func(column string) {
		if column != "" {
			*list = strings.Split(column, separator)
		}
	})
}

// digest is a SHA-256.
func digest(hash *[32]byte) stored {
	return convert(func() []byte { return hash[:] }, func(column []byte) { copy(hash[:], column) })
}

// table has the columns of a table with the fields of T. INSERT, UPDATE, SELECT and Scan are made from them. The texts are written once,
// when the program starts.
type table[T any] struct {
	fields                     func(*T) []field
	inserts, updates, selected string
}

// newTable returns a table. name may be followed by an alias, which its columns have in a SELECT.
func newTable[T any](name string, fields func(*T) []field) table[T] {
	t := table[T]{fields: fields}
	plain, alias, aliased := strings.Cut(name, " ")
	if aliased {
		alias += "."
	}
	columns := t.columns()
	t.inserts = `INSERT INTO ` + plain + ` (` + strings.Join(columns, ", ") + `) ` + "VALUES " + ParameterRows(1, len(columns), 0)[len("VALUES "):]
	var changing []string
	for _, column := range columns {
		if !slices.Contains(fixedColumns, column) {
			changing = append(changing, column)
		}
	}
	t.updates = `UPDATE ` + plain + ` SET ` + assigned(changing, 0) +
		` WHERE id = $` + strconv.Itoa(len(changing)+1) + ` AND org_id = $` + strconv.Itoa(len(changing)+2)
	t.selected = `SELECT ` + t.list(alias, nil) + ` FROM ` + name
	return t
}

// fixedColumns are never updated.
var fixedColumns = []string{"id", "org_id", "created_at"}

// columns returns the names of the columns that the table has.
func (t table[T]) columns() (names []string) {
	for _, field := range t.fields(new(T)) {
		if _, read := field.into.(computed); !read {
			names = append(names, field.column)
		}
	}
	return names
}

// list returns the list of a SELECT of all columns. instead has the expressions to select in the place of columns.
func (t table[T]) list(alias string, instead map[string]string) string {
	var list []string
	for _, field := range t.fields(new(T)) {
		expression := alias + field.column
		if _, read := field.into.(computed); read {
			expression = field.column
		}
		if other, replaced := instead[field.column]; replaced {
			expression = other + ` AS ` + field.column
		}
		list = append(list, expression)
	}
	return strings.Join(list, ", ")
}

// assigned returns the assignments of an UPDATE, whose parameters follow the first skip ones.
func assigned(columns []string, skip int) string {
	list := make([]string, len(columns))
	for i, column := range columns {
		list[i] = column + ` = $` + strconv.Itoa(skip+i+1)
	}
	return strings.Join(list, ", ")
}

// upserts returns an INSERT that overwrites the other columns of a row with the same keys.
func (t table[T]) upserts(keys ...string) string {
	var overwritten []string
	for _, column := range t.columns() {
		if !slices.Contains(keys, column) {
			overwritten = append(overwritten, column+` = excluded.`+column)
		}
	}
	return t.inserts + ` ON CONFLICT (` + strings.Join(keys, ", ") + `) DO UPDATE SET ` + strings.Join(overwritten, ", ")
}

// values returns the values of an item's columns except for some.
func (t table[T]) values(item *T, except ...string) []any {
	fields := t.fields(item)
	values := make([]any, 0, len(fields))
	for _, field := range fields {
		if _, read := field.into.(computed); !read && !slices.Contains(except, field.column) {
			values = append(values, field.value())
		}
	}
	return values
}

func (f field) value() any {
	switch into := f.into.(type) {
	case stored:
		return into.write()
	case *string:
		return *into
	case *int64:
		return *into
	case *bool:
		return *into
	case *[]byte:
		return *into
	default:
		return reflect.ValueOf(into).Elem().Interface()
	}
}

// queueInsert writes a new row.
func (t table[T]) queueInsert(tx Tx, item *T) { tx.Queue(1, t.inserts, t.values(item)...) }

// queueUpdate overwrites an organization's row, except for its creation.
func (t table[T]) queueUpdate(tx Tx, item *T, orgID, id string) {
	tx.Queue(1, t.updates, append(t.values(item, fixedColumns...), id, orgID)...)
}

// scan reads a row of a SELECT of the table's columns.
func (t table[T]) scan(row Row) (item T, err error) {
	err = scanFields(row, t.fields(&item))
	return item, err
}

// scanFields reads a row into fields.
func scanFields(row Row, fields []field) error {
	into := make([]any, len(fields))
	for i := range fields {
		switch field := fields[i].into.(type) {
		case stored:
			into[i] = field.column()
		case computed:
			into[i] = field.into
		default:
			into[i] = field
		}
	}
	if err := row.Scan(into...); err != nil {
		return err
	}
	for i := range fields {
		if other, ok := fields[i].into.(stored); ok {
			other.read()
		}
	}
	return nil
}
