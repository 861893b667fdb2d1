package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"hash"
	"strconv"
	"sync"
)

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

// ProviderKey is the AAD of an organization's own key for a provider.
func ProviderKey(orgID, provider string) AAD {
	return AAD{Table: "provider_keys", Column: "sealed", OrgID: orgID, RowID: provider}
}

// Transcript is the AAD of the kept answer of a call with an Idempotency-Key.
func Transcript(orgID, callID string) AAD {
	return AAD{Table: "kept_answers", Column: "response", OrgID: orgID, RowID: callID}
}

// ChannelCredentials is the AAD of a channel's sealed platform credentials.
func ChannelCredentials(orgID, channelID string) AAD {
	return AAD{Table: "channels", Column: "credentials", OrgID: orgID, RowID: channelID}
}

// CustomerName is the AAD of a customer's name.
func CustomerName(orgID, conversationID string) AAD {
	return AAD{Table: "conversations", Column: "customer_name", OrgID: orgID, RowID: conversationID}
}

// InboundBody is the AAD of a customer's message.
func InboundBody(orgID, messageID string) AAD {
	return AAD{Table: "messages", Column: "body", OrgID: orgID, RowID: messageID}
}

// TurnRequest is the AAD of a turn's built request.
func TurnRequest(orgID, turnID string) AAD {
	return AAD{Table: "turns", Column: "request", OrgID: orgID, RowID: turnID}
}

// TurnDraft is the AAD of an answer that a person may send.
func TurnDraft(orgID, turnID string) AAD {
	return AAD{Table: "turns", Column: "draft", OrgID: orgID, RowID: turnID}
}

// OutboundBody is the AAD of a message to a customer.
func OutboundBody(orgID, messageID string) AAD {
	return AAD{Table: "outbound_messages", Column: "body", OrgID: orgID, RowID: messageID}
}

// OutboundTemplate is the AAD of the template that a message to a customer is sent as.
func OutboundTemplate(orgID, messageID string) AAD {
	return AAD{Table: "outbound_messages", Column: "template", OrgID: orgID, RowID: messageID}
}

// WidgetVisit is the AAD of a visitor's token of a web widget. The token isn't stored; the AAD binds it to its channel.
func WidgetVisit(orgID, channelID string) AAD {
	return AAD{Table: "channels", Column: "visit", OrgID: orgID, RowID: channelID}
}

// EventSecret is the AAD of the secrets that sign an endpoint's events.
func EventSecret(orgID, endpointID string) AAD {
	return AAD{Table: "event_endpoints", Column: "secret", OrgID: orgID, RowID: endpointID}
}

// MediaAbout is the AAD of the reference and the name of a customer's file.
func MediaAbout(orgID, mediaID string) AAD {
	return AAD{Table: "media", Column: "about", OrgID: orgID, RowID: mediaID}
}

// MediaPiece is the AAD of a piece of a customer's file: pieces can't be left out, exchanged or reordered.
func MediaPiece(orgID, mediaID string, position int64) AAD {
	return AAD{Table: "media_pieces", Column: "body", OrgID: orgID, RowID: mediaID + "/" + strconv.FormatInt(position, 10)}
}

// SentFileName is the AAD of the name of a file that a person sends.
func SentFileName(orgID, fileID string) AAD {
	return AAD{Table: "sent_files", Column: "name", OrgID: orgID, RowID: fileID}
}

// SentFilePiece is the AAD of a piece of a file that a person sends.
func SentFilePiece(orgID, fileID string, position int64) AAD {
	return AAD{Table: "sent_file_pieces", Column: "body", OrgID: orgID, RowID: fileID + "/" + strconv.FormatInt(position, 10)}
}
