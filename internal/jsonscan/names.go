package jsonscan

import (
	"bytes"
	"hash/maphash"
)

// nameSeed differs in every process, so that an attacker can't prepare names that collide.
var nameSeed = maphash.MakeSeed()

// nameSet contains the names of one object, to find repeated ones. Up to fewNames it allocates nothing. For more names it uses a
// table with open addressing, which keeps the time linear.
type nameSet struct {
	count int
	few   [fewNames]nameSlot
	// table has a power of two as its length. Up to three quarters of it are used.
	table []nameSlot
}

const fewNames = 12

// nameSlot is a name, by its offset in the text. No name begins at offset 0, which marks an empty slot.
type nameSlot struct {
	hash  uint32
	start uint32
}

// add adds the name that begins at start, and reports whether it is new.
func (n *nameSet) add(text []byte, start int, name Literal) bool {
	inner := name.Inner()
	decoded := inner
	if bytes.IndexByte(inner, '\\') >= 0 {
		decoded = AppendText(nil, inner) // so that escapes don't matter
	}
	slot := nameSlot{hash: uint32(maphash.Bytes(nameSeed, decoded)), start: uint32(start)}
	if n.table == nil && n.count < fewNames {
		for i := range n.count {
			if n.few[i].hash == slot.hash && sameName(text[n.few[i].start+1:], inner) {
				return false
			}
		}
		n.few[n.count] = slot
		n.count++
		return true
	}
	if n.table == nil {
		n.resize(2*fewNames, n.few[:])
	} else if 4*n.count >= 3*len(n.table) {
		n.resize(2*len(n.table), n.table)
	}
	at := n.find(slot.hash, func(start uint32) bool { return sameName(text[start+1:], inner) })
	if n.table[at].start != 0 {
		return false
	}
	n.table[at] = slot
	n.count++
	return true
}

// find returns the index of the slot of an equal name, or of the empty slot for it.
func (n *nameSet) find(hash uint32, same func(start uint32) bool) int {
	mask := len(n.table) - 1
	at := int(hash) & mask
	for n.table[at].start != 0 && (n.table[at].hash != hash || !same(n.table[at].start)) {
		at = (at + 1) & mask
	}
	return at
}

// resize moves the names to a table of size slots or more.
func (n *nameSet) resize(size int, from []nameSlot) {
	slots := 1
	for slots < size {
		slots *= 2
	}
	n.table = make([]nameSlot, slots)
	for _, slot := range from {
		if slot.start != 0 {
			n.table[n.find(slot.hash, func(uint32) bool { return false })] = slot
		}
	}
}

// sameName reports whether two names have the same decoded text. The first name is at the beginning of text and ends with the
// next quote that isn't escaped.
func sameName(text, inner []byte) bool {
	for len(inner) > 0 {
		if text[0] == '"' {
			return false
		}
		x, n := DecodeRune(text)
		y, m := DecodeRune(inner)
		if x != y {
			return false
		}
		text, inner = text[n:], inner[m:]
	}
	return text[0] == '"'
}
