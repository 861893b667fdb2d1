package store

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// field is a column with the field of an item that it is stored in.
type field struct {
	column string
	// into points to the field. It is a [stored] if the column has another form, and a [computed] if the field is only read.
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

// convert returns a field for a column of another form: write returns the value of the column, and read sets the field.
func convert[C any](write func() C, read func(C)) stored { return &converted[C]{from: write, to: read} }

// member is a field of a struct that is stored in a column.
type member struct {
	column string
	index  []int
	form   string
	// separator is between the texts of a list.
	separator string
}

var wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)

// membersOf returns the exported fields of a struct, its embedded structs' fields among them, with their columns: CreatedAt is stored in
// created_at. The tag db of a field names another form: "-" is no column, "null" is a text that is stored as NULL if it is empty, and "words"
// and "lines" are lists of texts with spaces or line breaks between them. The fields of a type are found once, because [ScanFields] is called
// for each query.
func membersOf[T any]() []member {
	key := reflect.TypeFor[T]()
	if found, ok := membersByType.Load(key); ok {
		return found.([]member) //nolint:forcetypeassert // nothing else is stored
	}
	var members []member
	for _, of := range reflect.VisibleFields(key) {
		form := of.Tag.Get("db")
		if !of.IsExported() || of.Anonymous || form == "-" {
			continue
		}
		column := strings.ToLower(wordEnd.ReplaceAllString(of.Name, "${1}_$2"))
		members = append(members, member{column, of.Index, form, map[string]string{"words": " ", "lines": "\n"}[form]})
	}
	membersByType.Store(key, members)
	return members
}

// membersByType has the result of [membersOf] for each type.
var membersByType sync.Map

// field returns the column with the field of an item.
func (m member) field(item reflect.Value) field {
	value := item.FieldByIndex(m.index).Addr()
	switch into := value.Interface().(type) {
	case *[]string:
		return field{m.column, convert(func() string { return strings.Join(*into, m.separator) }, func(column string) {
			if column != "" {
				*into = strings.Split(column, m.separator)
			}
		})}
	case *KeyModels:
		return field{m.column, &into.NullString}
	case *[32]byte:
		return field{m.column, convert(func() []byte { return into[:] }, func(column []byte) { copy(into[:], column) })}
	}
	if value.Elem().Kind() != reflect.String {
		return field{m.column, value.Interface()}
	}
	text := value.Convert(reflect.TypeFor[*string]()).Interface().(*string) //nolint:forcetypeassert,errcheck // of any type of text
	if m.form == "null" {
		return field{m.column, convert(func() sql.NullString { return sql.NullString{String: *text, Valid: *text != ""} },
			func(column sql.NullString) { *text = column.String })}
	}
	return field{m.column, text}
}

// table has the columns of a table with the fields of T, see [membersOf]. INSERT, UPDATE, SELECT and Scan are made from them. The texts are
// written once, when the program starts.
type table[T any] struct {
	members                    []member
	more                       func(*T) []field
	inserts, updates, selected string
}

// newTable returns a table. name may be followed by an alias, which its columns have in a SELECT. more returns further columns; nil means none.
func newTable[T any](name string, more func(*T) []field) table[T] {
	t := table[T]{members: membersOf[T](), more: more}
	plain, alias, aliased := strings.Cut(name, " ")
	if aliased {
		alias += "."
	}
	columns := t.columns()
	t.inserts = `INSERT INTO ` + plain + ` (` + strings.Join(columns, ", ") + `) ` + "VALUES " + ParameterRows(1, len(columns), 0)[len("VALUES "):]
	var changing []string
	for _, column := range columns {
		if !slices.Contains(fixedColumns, column) {
			changing = append(changing, column+` = $`+strconv.Itoa(len(changing)+1))
		}
	}
	t.updates = `UPDATE ` + plain + ` SET ` + strings.Join(changing, ", ") +
		` WHERE id = $` + strconv.Itoa(len(changing)+1) + ` AND org_id = $` + strconv.Itoa(len(changing)+2)
	t.selected = `SELECT ` + t.list(alias, nil) + ` FROM ` + name
	return t
}

// fields returns the columns with the fields of an item.
func (t table[T]) fields(item *T) []field {
	value, fields := reflect.ValueOf(item).Elem(), make([]field, 0, len(t.members)+1)
	for _, m := range t.members {
		fields = append(fields, m.field(value))
	}
	if t.more != nil {
		fields = append(fields, t.more(item)...)
	}
	return fields
}

// ScanFields returns a function that scans a row into the fields of a new T in their order, see [membersOf].
func ScanFields[T any]() func(Row) (T, error) { return table[T]{members: membersOf[T]()}.scan }

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
	if other, converted := f.into.(stored); converted {
		return other.write()
	}
	return reflect.ValueOf(f.into).Elem().Interface()
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

// lock reads and locks the row of an organization with an id. It returns [ErrNotFound] if there is none.
func (t table[T]) lock(ctx context.Context, tx Tx, orgID, id string) (item T, err error) {
	items, err := QueryRows(ctx, tx, t.scan, t.selected+` WHERE id = $1 AND org_id = $2`+tx.LockRows(), id, orgID)
	if err == nil && len(items) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return item, err
	}
	return items[0], nil
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

// ListSizes are the lengths that a statement with a list is written for, falling, the last one 1. A list of any length is cut
// into them, so that the engines see a handful of texts and prepare each once.
type ListSizes []int

// ListStatement is the texts of a statement, one for each of its [ListSizes].
type ListStatement []string

// Statement writes a statement for each size, with as many rows of columns parameters in the place of "{list}", see [ParameterRows]. A list
// of one is compared by "=": for IN, SQLite builds and sorts a table of its own.
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
func QueueList[T any](tx Tx, sizes ListSizes, statement ListStatement, exact bool, items []T, arguments func(values []any, item T) []any) {
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

// Rows writes a statement with rows in the place of "{list}". types are PostgreSQL's names of the columns' types.
func (s ListSizes) Rows(text string, types ...string) RowStatement {
	return RowStatement{
		sizes: s, values: s.Statement(text, len(types), 0), arrays: strings.ReplaceAll(text, "{list}", ArrayRows(types...)),
	}
}

// ArrayRows writes a query of rows on PostgreSQL. Its parameters are an array for each column and the number of rows. The server plans for
// one row if the limit is a parameter; for the ten rows that it expects otherwise, it would read a table that is small now from end to end,
// and keep to that when the table has grown.
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

// HasArrays reports whether the transaction is on PostgreSQL, where parameters may be arrays.
func HasArrays(tx Tx) bool { return tx.LockRows() != "" }

// cutRows removes the first rows of columns, and returns them as the arguments of length rows, the last of which repeat the last one.
func cutRows(columns []any, rows, length int) []any {
	arguments := make([]any, length*len(columns))
	for i, column := range columns {
		values := reflect.ValueOf(column)
		for row := range length {
			arguments[row*len(columns)+i] = values.Index(min(row, rows-1)).Interface()
		}
		columns[i] = values.Slice(rows, values.Len()).Interface()
	}
	return arguments
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
