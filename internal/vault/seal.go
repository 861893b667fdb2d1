package vault

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// The errors of [Ring.Open].
var (
	// ErrUnknownKey reports that the value names a key that the ring lacks: it was removed from master_key before `caddy svc
	// rekey` ran, or another installation sealed the value.
	ErrUnknownKey = errors.New("sealed with a key that is not in master_key")
	// ErrCorrupt reports that the value isn't a sealed one, was changed, or was sealed with another [AAD].
	ErrCorrupt = errors.New("sealed value is damaged or belongs to another row")
)

// The sealed form is version (1 byte) | key id (8) | nonce (12) | ciphertext | tag (16). Version and key id are
// authenticated, too.
const (
	version1    = 1
	headerBytes = 1 + keyIDBytes
)

// Overhead is the number of bytes by which a sealed value is longer than its plain text.
const Overhead = headerBytes + 12 + 16

// Seal encrypts plain under the ring's first key, with a fresh random nonce. The result is Overhead bytes longer; plain isn't
// changed and may be empty.
func (r *Ring) Seal(plain []byte, aad AAD) []byte {
	key := (*r.keys.Load())[0]
	sealed := make([]byte, headerBytes, len(plain)+Overhead)
	sealed[0] = version1
	copy(sealed[1:], key.id[:])
	return key.aead.Seal(sealed, nil, plain, aad.authenticated(sealed))
}

// Open decrypts a value that was sealed with the same AAD under any key of the ring. It returns [ErrUnknownKey] when the
// value's key isn't in the ring and [ErrCorrupt] for every other fault; it never panics.
func (r *Ring) Open(sealed []byte, aad AAD) ([]byte, error) {
	if len(sealed) < Overhead || sealed[0] != version1 {
		return nil, ErrCorrupt
	}
	header := sealed[:headerBytes]
	keys := *r.keys.Load()
	i := index(keys, header[1:])
	if i < 0 {
		return nil, ErrUnknownKey
	}
	plain, err := keys[i].aead.Open(nil, nil, sealed[headerBytes:], aad.authenticated(header))
	if err != nil {
		return nil, ErrCorrupt
	}
	return plain, nil
}

// index returns the position of the key with this id, or -1.
func index(keys []ringKey, id []byte) int {
	for i := range keys {
		if bytes.Equal(keys[i].id[:], id) {
			return i
		}
	}
	return -1
}

// Current reports whether sealed names the ring's first key, in which case a rekey skips it. The value may still not open.
func (r *Ring) Current(sealed []byte) bool {
	return len(sealed) >= Overhead && sealed[0] == version1 && index(*r.keys.Load(), sealed[1:headerBytes]) == 0
}

// Names reports whether sealed, of which 64 bytes suffice, names a key of the ring. The value may still not open.
func (r *Ring) Names(sealed []byte) bool {
	return len(sealed) >= headerBytes && sealed[0] == version1 && index(*r.keys.Load(), sealed[1:headerBytes]) >= 0
}

// authenticated returns the additional data: header and fields.
func (a AAD) authenticated(header []byte) []byte {
	size := len(header) + 4*binary.MaxVarintLen32 + len(a.Table) + len(a.Column) + len(a.OrgID) + len(a.RowID)
	return a.appendTo(append(make([]byte, 0, size), header...))
}

// appendTo adds the fields to data, each after its length, so that no two AADs encode alike (table "a", column "bc" differs from table
// "ab", column "c").
func (a AAD) appendTo(data []byte) []byte {
	for _, part := range [...]string{a.Table, a.Column, a.OrgID, a.RowID} {
		data = binary.AppendUvarint(data, uint64(len(part)))
		data = append(data, part...)
	}
	return data
}

// probeAAD is the AAD of the probes in an archive of a store (docs/operating.md#move-from-sqlite-to-postgresql).
var probeAAD = AAD{Table: "archive", Column: "probe"}

// Probes returns an empty value sealed under each key of the ring, the first key's first. [Ring.OpenProbes] of another ring
// shows whether it can open everything that this one can.
func (r *Ring) Probes() [][]byte {
	keys := *r.keys.Load()
	probes := make([][]byte, len(keys))
	for i := range keys {
		probes[i] = newRing(keys[i:i+1]).Seal(nil, probeAAD)
	}
	return probes
}

// OpenProbes returns nil when the ring has every key that the probes were sealed with, [ErrUnknownKey] when one is missing, and
// [ErrCorrupt] when a value is no probe.
func (r *Ring) OpenProbes(probes [][]byte) error {
	for _, probe := range probes {
		if _, err := r.Open(probe, probeAAD); err != nil {
			return err
		}
	}
	return nil
}
