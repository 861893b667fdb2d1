package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
)

// ImportOptions configures an import. The zero value is ready.
type ImportOptions struct {
	// Admit may refuse an archive by its header before anything is written, above all one whose probes the master key
	// of this side doesn't open; nil admits all.
	Admit func(Header) error
	// Progress is called after each block; nil is none. It must return quickly.
	Progress func(Progress)
}

// Import fills an empty, migrated store from an archive of [Export] of either engine. Blocks of the archive are
// transactions, each with the place it ends at, so that an import that was interrupted anywhere, by kill -9 too, is
// finished by the same call with the same archive from its beginning, with exactly the same rows in the end. Memory doesn't
// grow with the archive.
//
// Until it has succeeded, [store.DB.Migrate] fails with [store.ErrUnfinishedImport]. It fails with [ErrDamaged], [ErrOtherVersion],
// [ErrNotEmpty] or [ErrOtherImport]; after ErrDamaged an undamaged copy of the same archive goes on.
func Import(ctx context.Context, db *store.DB, r io.Reader, options ImportOptions) (Summary, error) {
	summary, err := importArchive(ctx, db, r, options)
	if err != nil {
		return Summary{}, fmt.Errorf("store: import: %w", err)
	}
	return summary, nil
}

func importArchive(ctx context.Context, db *store.DB, r io.Reader, options ImportOptions) (Summary, error) {
	archive, err := newReader(r)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it has not one line", ErrDamaged)
	}
	if err != nil {
		return Summary{}, err
	}
	if err := admit(ctx, db, archive.header, options); err != nil {
		return Summary{}, err
	}
	reached, err := beginImport(ctx, db, archive.header.ID)
	if err != nil {
		return Summary{}, err
	}
	summary := Summary{ID: archive.header.ID, Rows: archive.rows, Resumed: reached.block > 0}
	for {
		block, err := archive.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = importBlock(ctx, db, &reached, block)
		}
		if err != nil {
			return Summary{}, err
		}
		if options.Progress != nil {
			options.Progress(Progress{Table: archive.table.name, Rows: archive.total, Skipped: block.number <= reached.skip})
		}
	}
	return summary, endImport(ctx, db, reached)
}

// admit refuses archives, and stores, of other versions, and those the caller refuses.
func admit(ctx context.Context, db *store.DB, header Header, options ImportOptions) error {
	if err := schema.Check(ctx, db.Engine(), db.Reader(), schema.Versions(db.Engine())); err != nil {
		return err
	}
	if newest := schema.Newest(db.Engine()); header.Schema != newest {
		return fmt.Errorf("%w: its tables have version %d, this program's %d", ErrOtherVersion, header.Schema, newest)
	}
	if options.Admit == nil {
		return nil
	}
	return options.Admit(header)
}

// importPlace is how far an import has come, as it stands in the store.
type importPlace struct {
	archive string
	block   int64  // the last that was imported
	digest  string // of the archive up to there
	skip    int64  // block when the import was resumed
}

// beginImport marks an empty store as unfinished, or finds where an earlier import of the archive ended.
func beginImport(ctx context.Context, db *store.DB, archive string) (importPlace, error) {
	unfinished, err := schema.ImportUnfinished(ctx, db.Engine(), db.Reader())
	if err != nil {
		return importPlace{}, err
	}
	if unfinished {
		return resumedImport(ctx, db, archive)
	}
	err = db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		for place := range allTables {
			name := allTables[place].name
			found, err := store.Changed(ctx, tx, "SELECT 1 FROM "+name+" LIMIT 1")
			if err != nil {
				return err
			}
			if found {
				return fmt.Errorf("%w: table %s has rows", ErrNotEmpty, name)
			}
		}
		tx.Queue(store.AnyRows, schema.CreateProgress(db.Engine()))
		if err := tx.Flush(ctx); err != nil { // an insert can't be prepared before its table is there
			return err
		}
		tx.Queue(1, "INSERT INTO "+schema.ProgressTable+" (archive, block, digest) VALUES ($1, 0, '')", archive)
		return nil
	})
	return importPlace{archive: archive}, err
}

// resumedImport is where the earlier import of the archive ended. The store has the table of its progress.
func resumedImport(ctx context.Context, db *store.DB, archive string) (importPlace, error) {
	reached, err := store.ReadRow(ctx, db, "read how far the import is", func(row store.Row) (p importPlace, err error) {
		err = row.Scan(&p.archive, &p.block, &p.digest)
		return p, err
	}, "SELECT archive, block, digest FROM "+schema.ProgressTable)
	if err == nil && reached.archive != archive {
		err = fmt.Errorf("%w: the import of archive %s is unfinished in this store, this is archive %s", ErrOtherImport, reached.archive, archive)
	}
	reached.skip = reached.block
	return reached, err
}

// importBlock writes a block and the place it ends at in one transaction, or makes sure that it was.
func importBlock(ctx context.Context, db *store.DB, reached *importPlace, block *block) error {
	if block.number <= reached.block {
		if block.number == reached.block && block.digest != reached.digest {
			return fmt.Errorf("%w: the archive's block %d is not the one that was imported", ErrOtherImport, block.number)
		}
		return context.Cause(ctx)
	}
	inserts, err := block.inserts()
	if err != nil {
		return err
	}
	err = db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		if err := reached.advance(ctx, tx, block); err != nil {
			return err
		}
		for _, insert := range inserts {
			tx.Queue(store.AnyRows, insert.text, insert.values...)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("block %d: %w", block.number, err)
	}
	reached.block, reached.digest = block.number, block.digest
	return nil
}

// advance moves the store's place to the end of a block, and fails with [ErrOtherImport] when it isn't where this import
// left it.
func (p importPlace) advance(ctx context.Context, tx store.Tx, block *block) error {
	ours, err := store.Changed(ctx, tx,
		"UPDATE "+schema.ProgressTable+" SET block = $1, digest = $2 WHERE archive = $3 AND block = $4 RETURNING block",
		block.number, block.digest, p.archive, p.block)
	if err == nil && !ours {
		err = fmt.Errorf("%w is at work in this store", ErrOtherImport)
	}
	return err
}

// endImport makes the store complete.
func endImport(ctx context.Context, db *store.DB, reached importPlace) error {
	err := db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		// A table that is made from others, without a trigger that would make it row by row, would be made here.
		tx.Queue(store.AnyRows, "DROP TABLE "+schema.ProgressTable)
		return tx.Flush(ctx)
	})
	if err != nil {
		return fmt.Errorf("end the import of archive %s: %w", reached.archive, err)
	}
	return nil
}

// insert is the insert of one row.
type insert struct {
	text   string
	values []any
}

// inserts are the inserts of all rows of a block, or [ErrDamaged].
func (b *block) inserts() ([]insert, error) {
	var inserts []insert
	for _, run := range b.runs {
		text := run.table.insert()
		for i, row := range run.rows {
			values, err := run.table.values(make([]any, 0, len(run.table.columns)), row)
			if err != nil {
				return nil, damaged(run.line+int64(i), "%v", err)
			}
			inserts = append(inserts, insert{text, values})
		}
	}
	return inserts, nil
}

// insert is the statement that writes a row with the table's columns.
func (t table) insert() string {
	names := t.columnNames()
	places := make([]string, len(names))
	for i := range names {
		places[i] = "$" + strconv.Itoa(i+1)
	}
	return "INSERT INTO " + t.name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(places, ", ") + ")"
}
