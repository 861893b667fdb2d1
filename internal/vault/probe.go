package vault

// probePlace is the place of the probes that an archive of a store carries (docs/operating.md "Move from SQLite to
// PostgreSQL"). They hold nothing: that they open is all they tell.
var probePlace = Where{Table: "archive", Column: "probe"}

// Probes seals nothing once under each key of the ring, the first key's first. Another ring tells from them, with
// [Ring.OpenProbes], whether it can open all that this one can.
func (r *Ring) Probes() [][]byte {
	probes := make([][]byte, len(r.keys))
	for i := range r.keys {
		one := Ring{keys: r.keys[i : i+1]}
		probes[i] = one.Seal(nil, probePlace)
	}
	return probes
}

// OpenProbes is nil when the ring has every key that the probes were sealed with, [ErrUnknownKey] when one is not in it,
// and [ErrCorrupt] when one is no probe.
func (r *Ring) OpenProbes(probes [][]byte) error {
	for _, probe := range probes {
		if _, err := r.Open(probe, probePlace); err != nil {
			return err
		}
	}
	return nil
}
