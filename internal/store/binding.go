package store

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// bindValue puts an argument of a statement into one of the five values both drivers take alike: nil, int64, bool,
// string, []byte. A nil []byte is NULL, an empty one is an empty value. It fails with [ErrText] on a text that
// PostgreSQL couldn't keep, and on any other type.
func bindValue(argument any) (driver.Value, error) {
	switch value := argument.(type) {
	case nil:
		return nil, nil
	case int64, bool:
		return value, nil
	case int:
		return int64(value), nil
	case string:
		return bindText(value)
	case Env:
		return bindText(string(value))
	case []byte:
		if value == nil {
			return nil, nil
		}
		return value, nil
	case sql.NullInt64:
		if !value.Valid {
			return nil, nil
		}
		return value.Int64, nil
	case sql.NullString:
		if !value.Valid {
			return nil, nil
		}
		return bindText(value.String)
	}
	if kind := reflect.ValueOf(argument); kind.Kind() == reflect.String {
		return bindText(kind.String()) // a kind's own text type, such as a status
	}
	return nil, fmt.Errorf("store: an argument of type %T can't be bound", argument)
}

func bindText(text string) (driver.Value, error) {
	if !isText(text) {
		return nil, ErrText
	}
	return text, nil
}

// isText reports whether PostgreSQL could keep the text.
func isText(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// sqliteArgs appends a statement's arguments as the SQLite driver wants them.
func sqliteArgs(to []driver.NamedValue, arguments []any) ([]driver.NamedValue, error) {
	for i, argument := range arguments {
		value, err := bindValue(argument)
		if err != nil {
			return nil, fmt.Errorf("argument $%d: %w", i+1, err)
		}
		to = append(to, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return to, nil
}

// postgresArgs checks a statement's arguments and puts them into the values pgx takes.
func postgresArgs(arguments []any) ([]any, error) {
	bound := make([]any, len(arguments))
	for i, argument := range arguments {
		value, err := bindValue(argument)
		if err != nil {
			return nil, fmt.Errorf("argument $%d: %w", i+1, err)
		}
		bound[i] = value
	}
	return bound, nil
}

// sqliteRow is the current row of a query on the SQLite driver.
type sqliteRow []driver.Value

// Scan copies the columns into dest, see [Row].
func (r sqliteRow) Scan(dest ...any) error {
	if len(dest) != len(r) {
		return fmt.Errorf("store: the row has %d columns, scanned into %d", len(r), len(dest))
	}
	for i, column := range r {
		if !scanColumn(dest[i], column) {
			return fmt.Errorf("store: column %d of type %T can't be scanned into %T", i+1, column, dest[i])
		}
	}
	return nil
}

// scanColumn copies one column, and reports whether the types fit.
func scanColumn(dest any, column driver.Value) bool {
	switch to := dest.(type) {
	case *sql.NullInt64:
		if column == nil {
			*to = sql.NullInt64{}
			return true
		}
		to.Valid = true
		return scanColumn(&to.Int64, column)
	case *sql.NullString:
		if column == nil {
			*to = sql.NullString{}
			return true
		}
		to.Valid = true
		return scanColumn(&to.String, column)
	case *[]byte:
		return scanBytes(to, column)
	}
	switch from := column.(type) {
	case int64:
		return scanInteger(dest, from)
	case string:
		to, ok := dest.(*string)
		if ok {
			*to = from
		}
		return ok
	}
	return false
}

func scanInteger(dest any, from int64) bool {
	switch to := dest.(type) {
	case *int64:
		*to = from
	case *int:
		*to = int(from)
	case *bool:
		*to = from != 0
	default:
		return false
	}
	return true
}

// scanBytes tells NULL (nil) from an empty value. The driver has copied the bytes already.
func scanBytes(to *[]byte, column driver.Value) bool {
	if column == nil {
		*to = nil
		return true
	}
	from, ok := column.([]byte)
	if ok && from == nil {
		from = []byte{}
	}
	*to = from
	return ok
}
