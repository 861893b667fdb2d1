// Package segment steps through a text by what a person sees as one character, and says where sentences and words may end
// (Unicode annexes 14 and 29, by github.com/rivo/uniseg).
//
// Invariant: the time it takes grows with the length of the text, whatever the text is. The library looks for the letter
// that decides whether a sentence has ended (rule SB8) as far as the text goes, at each character: a dot and a hundred
// thousand brackets would take hours.
//
// It knows nothing of limits, documents and platforms.
package segment
