// Package segment splits a text into what a person sees as single characters (by github.com/rivo/uniseg), and reports where sentences may
// end (both Unicode annex 29).
//
// Invariant: the time is linear in the length of the text. The library's sentences alone aren't: to decide whether a sentence has ended
// (rule SB8), it scans to the next letter at each character, which takes hours for a dot and a hundred thousand brackets.
package segment
