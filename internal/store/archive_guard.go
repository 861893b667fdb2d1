package store

import (
	"context"
	"fmt"
)

// progressTable exists while an import is under way, and no longer: it says how far that is, and that the store is not
// whole. It is no part of the schema.
const progressTable = "import_progress"

const progressDDL = `CREATE TABLE ` + progressTable + ` (
	archive TEXT   NOT NULL PRIMARY KEY,
	block   BIGINT NOT NULL,
	digest  TEXT   NOT NULL
) {table}`

// importUnfinished reports whether an import is under way in the store, or was interrupted.
func (db *DB) importUnfinished(ctx context.Context) (bool, error) {
	text := `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = $1`
	if db.Engine() == Postgres {
		text = `SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = $1`
	}
	var found int64
	if err := db.reader.QueryRowContext(ctx, text, progressTable).Scan(&found); err != nil {
		return false, sqlError("look for an unfinished import", db.orClosed(err))
	}
	return found > 0, nil
}

// refuseUnfinishedImport fails with [ErrUnfinishedImport] when the store holds only a part of an archive.
func (db *DB) refuseUnfinishedImport(ctx context.Context) error {
	unfinished, err := db.importUnfinished(ctx)
	if err == nil && unfinished {
		err = fmt.Errorf("%w: the store holds only a part of an archive; run `caddy svc import` with the same archive again, "+
			"or begin anew with an empty database", ErrUnfinishedImport)
	}
	return err
}
