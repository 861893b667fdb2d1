package vault

import (
	"encoding/binary"
	"errors"
)

// The errors of [Ring.Open].
var (
	// ErrUnknownKey says that the value names a key the ring does not hold: an old key was taken out of master_key
	// before `caddy svc rekey` ran, or another installation sealed the value.
	ErrUnknownKey = errors.New("sealed with a key that is not in master_key")
	// ErrCorrupt says that the value is no sealed value, was changed, or was sealed for another place ([Where]).
	ErrCorrupt = errors.New("sealed value is damaged or belongs to another row")
)

// The sealed form is version (1 byte) | key id (8) | nonce (12) | ciphertext | tag (16). Version and key id are
// authenticated, too.
const (
	version1    = 1
	headerBytes = 1 + keyIDBytes
)

// Overhead is how many bytes a sealed value is longer than its plain text.
const Overhead = headerBytes + 12 + 16

// Where is the place a value is stored at. It is authenticated with the value and not stored in it (S23): a value
// copied to another table, column, organization or row does not open there.
type Where struct {
	Table, Column, OrgID, RowID string
}

// Seal encrypts plain for one place under the ring's first key, with a fresh random nonce. The result is Overhead
// bytes longer; plain is not changed and may be empty.
func (r *Ring) Seal(plain []byte, where Where) []byte {
	key := r.keys[0]
	sealed := make([]byte, headerBytes, len(plain)+Overhead)
	sealed[0] = version1
	copy(sealed[1:], key.id[:])
	return key.aead.Seal(sealed, nil, plain, where.authenticated(sealed))
}

// Open decrypts a value that Seal made for the same place with any key of the ring. It returns [ErrUnknownKey] when
// the value's key is not in the ring and [ErrCorrupt] for everything else that is wrong; it never panics.
func (r *Ring) Open(sealed []byte, where Where) ([]byte, error) {
	if len(sealed) < Overhead || sealed[0] != version1 {
		return nil, ErrCorrupt
	}
	header := sealed[:headerBytes]
	i := r.index(header[1:])
	if i < 0 {
		return nil, ErrUnknownKey
	}
	plain, err := r.keys[i].aead.Open(nil, nil, sealed[headerBytes:], where.authenticated(header))
	if err != nil {
		return nil, ErrCorrupt
	}
	return plain, nil
}

// Current reports whether sealed names the ring's first key, so that a rekey leaves it as it is. It doesn't prove
// that the value opens.
func (r *Ring) Current(sealed []byte) bool {
	return len(sealed) >= Overhead && sealed[0] == version1 && r.index(sealed[1:headerBytes]) == 0
}

// Names reports whether sealed, of which 64 bytes are enough, names a key of the ring. It doesn't prove that the value opens.
func (r *Ring) Names(sealed []byte) bool {
	return len(sealed) >= headerBytes && sealed[0] == version1 && r.index(sealed[1:headerBytes]) >= 0
}

// authenticated is the additional data of a value: its header and its place, each part after its length, so that no
// two places have the same bytes (table "a", column "bc" is not table "ab", column "c").
func (w Where) authenticated(header []byte) []byte {
	parts := [...]string{w.Table, w.Column, w.OrgID, w.RowID}
	size := len(header)
	for _, part := range parts {
		size += binary.MaxVarintLen32 + len(part)
	}
	data := append(make([]byte, 0, size), header...)
	for _, part := range parts {
		data = binary.AppendUvarint(data, uint64(len(part)))
		data = append(data, part...)
	}
	return data
}
