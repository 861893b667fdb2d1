package identity

import (
	_ "embed" // the list
	"strings"
	"sync"
	"unicode"
)

// commonPasswordList is the dictionary "passwords" of the npm package zxcvbn 4.4.2 (package/src/frequency_lists.coffee) in
// lower case, without the entries of fewer than 6 characters, one to a line and sorted. Its licence (MIT) stands beside it
// in common_passwords.LICENSE.
//
//go:embed common_passwords.txt
var commonPasswordList string

var commonPasswords = sync.OnceValue(func() map[string]bool {
	all := make(map[string]bool)
	for line := range strings.Lines(commonPasswordList) {
		all[strings.TrimSuffix(line, "\n")] = true
	}
	return all
})

// commonPassword reports whether a password is a common one, alone or repeated, or with only digits and punctuation around it:
// most common passwords are shorter than the minimum, and these are the usual ways to lengthen them.
func commonPassword(password string) bool {
	password = strings.ToLower(password)
	core := strings.TrimFunc(password, func(c rune) bool { return !unicode.IsLetter(c) })
	return core == "" && digitsOnly(password) || known(password) || known(core)
}

// digitsOnly reports whether a password consists of digits, each equal or adjacent to the one before; 9 and 0 are adjacent.
func digitsOnly(password string) bool {
	for i := range len(password) {
		if password[i] < '0' || password[i] > '9' {
			return false
		}
		if step := int(password[i]) - int(password[max(i-1, 0)]); (step < -1 || step > 1) && step != 9 && step != -9 {
			return known(password)
		}
	}
	return true
}

// known reports whether a text is in the list, or repeats an entry of it.
func known(text string) bool {
	all := commonPasswords()
	for length := 1; length <= len(text); length++ {
		if len(text)%length == 0 && (length == len(text) || strings.Repeat(text[:length], len(text)/length) == text) &&
			(all[text[:length]] || length < 6 && length < len(text)) {
			return true
		}
	}
	return false
}
