package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// idKeys are the keys under which the database has the platforms' ids of customers and messages. Outside of this package's methods an id is
// plain; inside, from [Queue.seal] to the rows, it is sealed: equal ids of an organization are sealed alike, so that sealed ids are
// compared. Without keys nothing was stored yet.
type idKeys struct {
	keys []*vault.IDKey // the first seals, all open
}

// errIDKeyAdded: another process has added a key at this moment.
var errIDKeyAdded = errors.New("inbox: another process has added a key of ids")

// idKeyTries bounds how often the keys are read again after another process has added one.
const idKeyTries = 5

// loadIDs reads the keys once for the queue. With begin, or where conversations are stored, it makes the first key: otherwise a store without
// a key stays empty, and has nothing to open. If all keys were sealed with master keys that are lost, it makes another, so that customers
// of before begin new conversations; when a lost master key comes back, the oldest key that opens seals again.
func (q *Queue) loadIDs(ctx context.Context, begin bool) (*idKeys, error) {
	if ids := q.ids.Load(); ids != nil {
		return ids, nil
	}
	var err error
	for range idKeyTries {
		var ids *idKeys
		ids, err = q.readIDs(ctx, begin)
		if err == nil && !ids.none() {
			q.ids.Store(ids)
		}
		if !errors.Is(err, errIDKeyAdded) {
			return ids, err
		}
	}
	return nil, err
}

// readIDs reads or makes the keys. It returns [errIDKeyAdded] when they have to be read again.
func (q *Queue) readIDs(ctx context.Context, begin bool) (*idKeys, error) {
	stored, err := q.db.IDKeys.All(ctx)
	if err != nil {
		return nil, err
	}
	ids := &idKeys{}
	var lost error
	for _, key := range stored {
		secret, err := q.ring.Open(key.Sealed, vault.StoredIDKey(key.Number))
		if errors.Is(err, vault.ErrUnknownKey) {
			lost = err
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open the key of ids %d: %w", key.Number, err)
		}
		opened, err := vault.ParseIDKey(secret)
		if err != nil {
			return nil, fmt.Errorf("open the key of ids %d: %w", key.Number, err)
		}
		ids.keys = append(ids.keys, opened)
	}
	if len(ids.keys) > 0 {
		return ids, nil
	}
	if !begin && lost == nil {
		_, err := store.ReadRow(ctx, q.db, "look for conversations", store.ScanValue[int], `SELECT 1 FROM conversations LIMIT 1`)
		if errors.Is(err, store.ErrNotFound) {
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if lost != nil && q.Log != nil {
		q.Log.Error("no key of customers' ids opens; customers of before begin new conversations until the lost master key is put back",
			slog.Any("error", lost))
	}
	return q.addIDKey(ctx, int64(len(stored)))
}

// addIDKey makes a key.
func (q *Queue) addIDKey(ctx context.Context, number int64) (*idKeys, error) {
	secret := vault.NewIDKey()
	key, err := vault.ParseIDKey(secret)
	if err != nil {
		return nil, fmt.Errorf("make a key of ids: %w", err)
	}
	ids := &idKeys{keys: []*vault.IDKey{key}}
	err = q.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		added, err := q.db.IDKeys.Add(ctx, tx, store.IDKey{Number: number, Sealed: q.ring.Seal(secret, vault.StoredIDKey(number))})
		if err == nil && !added {
			err = errIDKeyAdded
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a key of ids: %w", err)
	}
	return ids, nil
}

// none reports whether there are no keys.
func (k *idKeys) none() bool { return k == nil || len(k.keys) == 0 }

// seal returns the form in which the database has an id. Without a key nothing was stored, and the form is empty, which no row has.
func (k *idKeys) seal(id string, place vault.AAD) string {
	if k.none() {
		return ""
	}
	return k.keys[0].Seal(id, place)
}

// open returns the id of a sealed form.
func (k *idKeys) open(sealed string, place vault.AAD) (id string, err error) {
	if k.none() {
		return "", vault.ErrUnknownKey
	}
	for _, key := range k.keys {
		if id, err = key.Open(sealed, place); err == nil {
			break
		}
	}
	return id, err
}

// openID opens an id of a row. One that doesn't open is left empty, as if the platform hadn't sent it.
func (q *Queue) openID(what, sealed string, place vault.AAD) string {
	id, err := q.ids.Load().open(sealed, place)
	if err != nil {
		q.unreadable(what, err)
	}
	return id
}
