package jsonbody

import "hash/maphash"

// nameSeed differs in every process, so that nobody can prepare names that collide.
var nameSeed = maphash.MakeSeed()

// nameSet is the names of one object, to find those that occur twice. Up to fewNames it takes no memory of its own;
// beyond, a table with open addressing keeps the time linear.
type nameSet struct {
	count int
	few   [fewNames]nameSlot
	// table has a power of two as its length and is at most three quarters full: it takes six bytes for each of the text's.
	table []nameSlot
}

const fewNames = 12

// nameSlot is a name that stands at start in the text; no name can stand at 0, which marks an empty slot.
type nameSlot struct {
	hash  uint32
	start uint32
}

// add takes the name in, unless it is there already. The text is shorter than 4 GiB.
func (n *nameSet) add(text []byte, name *Literal) bool {
	slot := nameSlot{hash: hashText(name), start: uint32(name.Start)}
	if n.table == nil && n.count < fewNames {
		for i := range n.count {
			if n.few[i].hash == slot.hash && standsAt(text[n.few[i].start:], name.Raw) {
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
	at := n.find(slot.hash, func(start uint32) bool { return standsAt(text[start:], name.Raw) })
	if n.table[at].start != 0 {
		return false
	}
	n.table[at] = slot
	n.count++
	return true
}

// find is the slot of an equal name, or the empty one where it belongs.
func (n *nameSet) find(hash uint32, same func(start uint32) bool) int {
	mask := len(n.table) - 1
	at := int(hash) & mask
	for n.table[at].start != 0 && (n.table[at].hash != hash || !same(n.table[at].start)) {
		at = (at + 1) & mask
	}
	return at
}

// resize moves the names to a table of at least size slots.
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

// hashText hashes what a string stands for, however it is written.
func hashText(name *Literal) uint32 {
	if !name.Escaped {
		return uint32(maphash.Bytes(nameSeed, name.Raw))
	}
	return uint32(maphash.Bytes(nameSeed, name.appendText(nil)))
}

// standsAt reports whether the string whose raw text begins at text, and ends with the next quote that isn't escaped,
// stands for the same characters as raw.
func standsAt(text, raw []byte) bool {
	for len(raw) > 0 {
		if text[0] == '"' {
			return false
		}
		x, n := decodeRune(text)
		y, m := decodeRune(raw)
		if x != y {
			return false
		}
		text, raw = text[n:], raw[m:]
	}
	return text[0] == '"'
}
