package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// rebuild is a new definition of a SQLite table, with the columns it has, in their order. SQLite can't change a constraint: the
// rows move to a new table, which takes the place of the old one. Indexes and triggers of the table are kept as they are.
type rebuild struct {
	table      string
	definition string // what follows the name in CREATE TABLE
}

// apply runs in the transaction of the version. Its connection must not enforce foreign keys, which can't be changed in a
// transaction: dropping the old table would delete its rows first, and with them those that refer to them.
func (r rebuild) apply(ctx context.Context, tx *sql.Tx) error {
	var enforced bool
	if err := tx.QueryRowContext(ctx, "PRAGMA foreign_keys").Scan(&enforced); err != nil {
		return fmt.Errorf("rebuild %s: look whether foreign keys are enforced: %w", r.table, err)
	}
	if enforced {
		return fmt.Errorf("rebuild %s: the connection enforces foreign keys, so rows that refer to the table would be deleted", r.table)
	}
	columns, err := readTexts(ctx, tx, "SELECT name FROM pragma_table_info($1) ORDER BY cid", r.table)
	if err != nil {
		return fmt.Errorf("rebuild %s: read its columns: %w", r.table, err)
	}
	statements, err := readTexts(ctx, tx, `SELECT sql FROM sqlite_schema
		WHERE tbl_name = $1 AND type IN ('index', 'trigger') AND sql IS NOT NULL ORDER BY rowid`, r.table)
	if err != nil {
		return fmt.Errorf("rebuild %s: read its indexes and triggers: %w", r.table, err)
	}
	rebuilt, names := r.table+"_rebuilt", strings.Join(columns, ", ")
	statements = append([]string{
		"CREATE TABLE " + rebuilt + " " + r.definition,
		"INSERT INTO " + rebuilt + " (" + names + ") SELECT " + names + " FROM " + r.table,
		"DROP TABLE " + r.table,
		"ALTER TABLE " + rebuilt + " RENAME TO " + r.table,
	}, statements...)
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("rebuild %s: %w", r.table, err)
		}
	}
	return checkReferences(ctx, tx)
}

// checkReferences fails if a row refers to one that doesn't exist.
func checkReferences(ctx context.Context, tx *sql.Tx) error {
	var table, parent string
	row := tx.QueryRowContext(ctx, `SELECT "table", parent FROM pragma_foreign_key_check LIMIT 1`)
	switch err := row.Scan(&table, &parent); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("check foreign keys: %w", err)
	}
	return fmt.Errorf("%s has a row that refers to a row of %s that doesn't exist (PRAGMA foreign_key_check names all); "+
		"delete such rows and start again", table, parent)
}

// readTexts returns the rows of a query with one column.
func readTexts(ctx context.Context, tx *sql.Tx, query string, arguments ...any) (texts []string, err error) {
	rows, err := tx.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it reads
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err //nolint:wrapcheck // see above
		}
		texts = append(texts, text)
	}
	return texts, rows.Err() //nolint:wrapcheck // see above
}
