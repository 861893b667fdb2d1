package payments

import (
	"crypto/rand"
	"strings"
)

// alphabet are the characters of a code: capitals and digits, which no bank changes, without the letters that people confuse with digits.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// codeLength is the length of a code: eight random characters and their check character.
const codeLength = 9

// NewCode returns a random code for a payment. A payer writes it into the text of a transfer.
func NewCode() string {
	var random [codeLength - 1]byte
	_, _ = rand.Read(random[:]) // it never fails
	code := make([]byte, 0, codeLength)
	for _, b := range random {
		code = append(code, alphabet[int(b)%len(alphabet)])
	}
	return string(append(code, checkCharacter(code)))
}

// checkCharacter returns the character that follows a code, by which one wrong character is found: the weights are odd, so they have no factor in
// common with the size of the alphabet. Neighbours that changed places are found unless they are 16 apart.
func checkCharacter(code []byte) byte {
	sum := 0
	for i, c := range code {
		sum += (2*i + 1) * strings.IndexByte(alphabet, c)
	}
	return alphabet[sum%len(alphabet)]
}

// FindCodes returns what may be codes in the text of a transfer, each once, in any case and with blanks and signs inside: banks cut, capitalize and
// strip the text, and put their own around it. Each place of any text passes as a code with a probability of 1 to 32, so the caller looks them up.
func FindCodes(text string) (codes []string) {
	kept := make([]byte, 0, min(len(text), MaxText))
	for _, c := range []byte(text[:min(len(text), MaxText)]) {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' {
			kept = append(kept, c)
		}
	}
	found := map[string]bool{}
	for i := 0; i+codeLength <= len(kept); i++ {
		code := kept[i : i+codeLength]
		if strings.Trim(string(code), alphabet) != "" || code[codeLength-1] != checkCharacter(code[:codeLength-1]) || found[string(code)] {
			continue
		}
		found[string(code)] = true
		codes = append(codes, string(code))
	}
	return codes
}
