// Package vault encrypts values at rest: provider keys, channel credentials, messages, built requests and kept answers.
//
// Invariants:
//   - a sealed value opens only with the [AAD] it was sealed with, so that rows can't be swapped;
//   - the first key of a [Ring] seals and every key of it opens; a sealed value names its key by a fingerprint, so that a
//     removed key is distinguished from a damaged value;
//   - no error, log line or formatted value contains a key or a plain text.
//
// It stores nothing and doesn't load the master key. Sealing rows again after a rotation is the work of each table's owner
// ([Ring.Current] reports which rows are due).
package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// KeyBytes is the length of one master key: AES-256.
const KeyBytes = 32

// keyIDBytes of SHA-256(key) name a key inside a sealed value. Eight bytes rule out an accidental match among one operator's
// keys and reveal nothing about a random key.
const keyIDBytes = 8

// Ring holds the keys of `master_key`: the first seals, all open. It is safe for concurrent use. Every key encrypts directly;
// AES-GCM with random nonces is sound for 2^32 values per key, so rotate long before.
type Ring struct {
	keys atomic.Pointer[[]ringKey] // the first is current; never changed in place
}

func newRing(keys []ringKey) *Ring {
	r := new(Ring)
	r.keys.Store(&keys)
	return r
}

// Replace gives r the keys of another ring in place of its own, for all that use r.
func (r *Ring) Replace(other *Ring) { r.keys.Store(other.keys.Load()) }

// KeyIDs returns the ids of the keys, the first key's first. Every sealed value has the id of its key in plain; an id reveals
// nothing about the key.
func (r *Ring) KeyIDs() []string {
	keys := *r.keys.Load()
	ids := make([]string, len(keys))
	for i := range keys {
		ids[i] = hex.EncodeToString(keys[i].id[:])
	}
	return ids
}

type ringKey struct {
	id   [keyIDBytes]byte
	aead cipher.AEAD
}

// ParseRing parses the resolved value of `master_key`: standard base64 (padded or not) of exactly 32 bytes, then, separated by
// white space or commas, any number of older keys that stay readable. Errors give the position of the faulty key and never any
// of the value.
func ParseRing(masterKey string) (*Ring, error) {
	texts := strings.FieldsFunc(masterKey, func(r rune) bool {
		return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r'
	})
	if len(texts) == 0 {
		return nil, errors.New("master_key is empty: give the base64 of 32 random bytes (openssl rand -base64 32)")
	}
	keys := make([]ringKey, 0, len(texts))
	for i, text := range texts {
		key, err := parseKey(text)
		if err != nil {
			return nil, fmt.Errorf("master_key: key %d of %d %w", i+1, len(texts), err)
		}
		if j := index(keys, key.id[:]); j >= 0 {
			return nil, fmt.Errorf("master_key: key %d of %d is the same as key %d", i+1, len(texts), j+1)
		}
		keys = append(keys, key)
	}
	return newRing(keys), nil
}

func parseKey(text string) (ringKey, error) {
	raw, err := base64.RawStdEncoding.Strict().DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		// The decoder's own error is dropped: it gives the position of the fault, which reveals something of the key.
		return ringKey{}, errors.New("is not standard base64 (openssl rand -base64 32 makes one)")
	}
	if len(raw) != KeyBytes {
		return ringKey{}, fmt.Errorf("is base64 of %d bytes, want exactly %d (openssl rand -base64 %d makes one)", len(raw), KeyBytes, KeyBytes)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return ringKey{}, fmt.Errorf("cannot be used as an AES-256 key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return ringKey{}, fmt.Errorf("cannot be used with GCM: %w", err)
	}
	key := ringKey{aead: aead}
	sum := sha256.Sum256(raw)
	copy(key.id[:], sum[:])
	return key, nil
}

// Format writes the number of keys under every verb, so that no log or test failure prints key material.
func (r *Ring) Format(f fmt.State, _ rune) {
	if r == nil {
		_, _ = f.Write([]byte("vault.Ring(nil)"))
		return
	}
	_, _ = fmt.Fprintf(f, "vault.Ring(%d keys)", len(*r.keys.Load()))
}

// The errors of [Ring.Open].
var (
	// ErrUnknownKey reports that the value names a key that the ring lacks: it was removed from master_key before `caddy svc
	// rekey` ran, or another installation sealed the value.
	ErrUnknownKey = errors.New("sealed with a key that is not in master_key")
	// ErrCorrupt reports that the value isn't a sealed one, was changed, or was sealed with another [AAD].
	ErrCorrupt = errors.New("sealed value is damaged or belongs to another row")
)

// The sealed form is version (1 byte) | key id (8) | nonce (12) | ciphertext | tag (16). Version and key id are also
// authenticated.
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
	return slices.IndexFunc(keys, func(key ringKey) bool { return bytes.Equal(key.id[:], id) })
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

// IDKeyBytes is the length of the secret of an [IDKey].
const IDKeyBytes = 2 * KeyBytes

// IDKey seals ids that a database must compare and keep unique: equal ids with equal [AAD]s have equal sealed forms, and other ids or
// AADs have others. It is the construction of RFC 5297 with HMAC-SHA256 and AES-256-CTR: 16 bytes of MACs of AAD and id are the nonce and
// prove the id when it is opened. The first 6 of them are of the id without its last two characters, so that ids which a platform counts
// up stand together in a database's indexes: random ones would change a page each. A sealed id reveals which rows have the same id, or one
// that differs in the last two characters, and how long it is. An IDKey is safe for concurrent use.
type IDKey struct {
	block   cipher.Block
	scratch sync.Pool // of *idScratch: a cipher.Stream has a copy of the key, which is garbage after each id
}

// idScratch is what sealing an id needs beside the id.
type idScratch struct {
	mac             hash.Hash
	sum             [sha256.Size]byte
	counter, stream [aes.BlockSize]byte

	aad, sealed, text []byte
}

const (
	// idNonceBytes is the length of the nonce in front of a sealed id, idStemBytes of the part that ids have in common that differ only in
	// the last idCounted bytes.
	idNonceBytes = aes.BlockSize
	idStemBytes  = 6
	idCounted    = 2
)

// NewIDKey returns the secret of a new key.
func NewIDKey() []byte {
	secret := make([]byte, IDKeyBytes)
	_, _ = rand.Read(secret) // it never fails
	return secret
}

// ParseIDKey returns the key with a secret of [NewIDKey].
func ParseIDKey(secret []byte) (*IDKey, error) {
	if len(secret) != IDKeyBytes {
		return nil, fmt.Errorf("a key of ids has %d bytes, want exactly %d", len(secret), IDKeyBytes)
	}
	block, err := aes.NewCipher(secret[:KeyBytes])
	if err != nil {
		return nil, fmt.Errorf("a key of ids can't be used with AES-256: %w", err)
	}
	macKey := append([]byte(nil), secret[KeyBytes:]...)
	return &IDKey{block: block, scratch: sync.Pool{New: func() any { return &idScratch{mac: hmac.New(sha256.New, macKey)} }}}, nil
}

// Seal returns the sealed form of an id as base64url, which is a third and 22 characters longer. That of the empty id is empty.
func (k *IDKey) Seal(id string, aad AAD) string {
	if id == "" {
		return ""
	}
	scratch := k.scratch.Get().(*idScratch) //nolint:forcetypeassert,errcheck // the pool holds nothing else
	defer k.scratch.Put(scratch)
	sealed := append(append(scratch.sealed[:0], make([]byte, idNonceBytes)...), id...)
	nonce := scratch.nonce(sealed[idNonceBytes:], aad)
	copy(sealed, nonce[:])
	scratch.crypt(k.block, sealed[idNonceBytes:], nonce)
	text := base64.RawURLEncoding.AppendEncode(scratch.text[:0], sealed)
	scratch.sealed, scratch.text = sealed, text
	return string(text)
}

// Open returns the id that was sealed with the same AAD. It returns [ErrCorrupt] for everything that [IDKey.Seal] of this key didn't make
// with it.
func (k *IDKey) Open(text string, aad AAD) (string, error) {
	if text == "" {
		return "", nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) <= idNonceBytes {
		return "", ErrCorrupt
	}
	scratch := k.scratch.Get().(*idScratch) //nolint:forcetypeassert,errcheck // the pool holds nothing else
	defer k.scratch.Put(scratch)
	nonce, id := [idNonceBytes]byte(sealed), sealed[idNonceBytes:]
	scratch.crypt(k.block, id, nonce)
	if proof := scratch.nonce(id, aad); !hmac.Equal(nonce[:], proof[:]) {
		return "", ErrCorrupt
	}
	return string(id), nil
}

// nonce returns bytes of the MACs of an id and where it is stored.
func (s *idScratch) nonce(id []byte, aad AAD) (nonce [idNonceBytes]byte) {
	s.mac.Reset()
	s.aad = aad.appendTo(s.aad[:0])
	s.mac.Write(s.aad)
	stem := max(0, len(id)-idCounted)
	s.mac.Write(id[:stem])
	copy(nonce[:idStemBytes], s.mac.Sum(s.sum[:0]))
	s.mac.Write(id[stem:])
	copy(nonce[idStemBytes:], s.mac.Sum(s.sum[:0])[idStemBytes:])
	return nonce
}

// crypt encrypts or decrypts text in place: CTR mode (NIST SP 800-38A), which counts up from the nonce.
func (s *idScratch) crypt(block cipher.Block, text []byte, nonce [idNonceBytes]byte) {
	for s.counter = nonce; len(text) > 0; {
		block.Encrypt(s.stream[:], s.counter[:])
		text = text[subtle.XORBytes(text, text, s.stream[:]):]
		for i := len(s.counter) - 1; i >= 0; i-- {
			if s.counter[i]++; s.counter[i] != 0 {
				break
			}
		}
	}
}

// Format writes no secret under any verb.
func (k *IDKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("vault.IDKey")) }

// StoredIDKey is the AAD of the secret of a store's key of ids.
func StoredIDKey(number int64) AAD {
	return AAD{Table: "id_keys", Column: "sealed", RowID: strconv.FormatInt(number, 10)}
}

// CustomerID is the AAD of a platform's id of a customer, a chat or the address for replies, in the columns customer_ref, alias and
// address.
func CustomerID(orgID string) AAD {
	return AAD{Table: "conversations", Column: "customer_ref", OrgID: orgID}
}

// PlatformMessageID is the AAD of a platform's id of a message, of either direction.
func PlatformMessageID(orgID string) AAD {
	return AAD{Table: "messages", Column: "platform_message_id", OrgID: orgID}
}

// AAD says where a sealed value is stored. It is authenticated as additional data and not part of the value: a value copied to
// another table, column, organization or row doesn't open.
type AAD struct {
	Table, Column, OrgID, RowID string
}

// The places of values of rows by the organization and the id of the row.
var (
	// ProviderKey is the AAD of an organization's own key for a provider. The row's id is the name of the provider.
	ProviderKey = rowOf("provider_keys", "sealed")
	// Transcript is the AAD of the kept answer of a call with an Idempotency-Key.
	Transcript = rowOf("kept_answers", "response")
	// ChannelCredentials is the AAD of a channel's sealed platform credentials.
	ChannelCredentials = rowOf("channels", "credentials")
	// CustomerName is the AAD of a customer's name in a conversation.
	CustomerName = rowOf("conversations", "customer_name")
	// InboundBody is the AAD of a customer's message.
	InboundBody = rowOf("messages", "body")
	// TurnRequest is the AAD of a turn's built request.
	TurnRequest = rowOf("turns", "request")
	// TurnDraft is the AAD of an answer that a person may send.
	TurnDraft = rowOf("turns", "draft")
	// OutboundBody is the AAD of a message to a customer.
	OutboundBody = rowOf("outbound_messages", "body")
	// OutboundTemplate is the AAD of the template that a message to a customer is sent as.
	OutboundTemplate = rowOf("outbound_messages", "template")
	// WidgetVisit is the AAD of a visitor's token of a web widget. The token isn't stored; the AAD binds it to its channel.
	WidgetVisit = rowOf("channels", "visit")
	// EventSecret is the AAD of the secrets that sign an endpoint's events.
	EventSecret = rowOf("event_endpoints", "secret")
	// SecondFactor is the AAD of the secret that makes a person's codes. orgID is empty for an operator of the service.
	SecondFactor = rowOf("second_factors", "secret")
	// MediaAbout is the AAD of the reference and the name of a customer's file.
	MediaAbout = rowOf("media", "about")
	// SentFileName is the AAD of the name of a file that a person sends.
	SentFileName = rowOf("sent_files", "name")
)

// rowOf returns the AADs of the rows of a table.
func rowOf(table, column string) func(orgID, rowID string) AAD {
	return func(orgID, rowID string) AAD { return AAD{Table: table, Column: column, OrgID: orgID, RowID: rowID} }
}

// OperatorAnswer is the AAD of the kept answer to an operator's request with an Idempotency-Key. hash is the row's.
func OperatorAnswer(hash [sha256.Size]byte) AAD {
	return AAD{Table: "operator_requests", Column: "answer", RowID: hex.EncodeToString(hash[:])}
}

// MediaPiece is the AAD of a piece of a customer's file: pieces can't be left out, exchanged or reordered.
func MediaPiece(orgID, mediaID string, position int64) AAD {
	return AAD{Table: "media_pieces", Column: "body", OrgID: orgID, RowID: mediaID + "/" + strconv.FormatInt(position, 10)}
}

// SentFilePiece is the AAD of a piece of a file that a person sends.
func SentFilePiece(orgID, fileID string, position int64) AAD {
	return AAD{Table: "sent_file_pieces", Column: "body", OrgID: orgID, RowID: fileID + "/" + strconv.FormatInt(position, 10)}
}
