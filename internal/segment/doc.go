// Package segment splits a text into what a person sees as single characters, and reports where sentences and words may end
// (Unicode annexes 14 and 29, by github.com/rivo/uniseg).
//
// Invariant: the time is linear in the length of the text. The library alone isn't: to decide whether a sentence has ended
// (rule SB8), it scans to the next letter at each character, which takes hours for a dot and a hundred thousand brackets.
package segment
