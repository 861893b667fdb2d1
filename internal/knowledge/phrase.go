package knowledge

// Says reports whether a text contains one of some phrases, word by word and in order. Case doesn't matter, and a text without accents
// matches a phrase with them. A phrase without letters is never said. It takes a time that grows with the text and with the words of
// the phrases.
func Says(text string, phrases []string) bool {
	wanted := make([]*spoken, 0, len(phrases))
	for _, phrase := range phrases {
		p := &spoken{}
		eachWord(phrase, func(w word) bool {
			p.words = append(p.words, w)
			return true
		})
		if len(p.words) > 0 {
			wanted = append(wanted, p)
		}
	}
	said := false
	eachWord(text, func(w word) bool {
		for _, p := range wanted {
			said = said || p.hears(w)
		}
		return !said
	})
	return said
}

// spoken is a phrase that is looked for in a text.
type spoken struct {
	words []word
	// begun are the numbers of words by which the text so far may have begun the phrase.
	begun []int
}

// hears takes the next word of the text, and reports whether the phrase is complete.
func (p *spoken) hears(w word) bool {
	going := p.begun[:0]
	for _, heard := range append(p.begun, 0) {
		if !p.words[heard].saidBy(w) {
			continue
		}
		if heard+1 == len(p.words) {
			return true
		}
		going = append(going, heard+1)
	}
	p.begun = going
	return false
}

// saidBy reports whether the word of a text is this one: with the same accents, or without any.
func (w word) saidBy(text word) bool {
	return w.folded == text.folded && (w.exact == text.exact || !text.accented())
}
