package openapi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// codeDoc is the part of an error code's entry in docs/failure-modes.md that is for clients.
type codeDoc struct {
	Code errcode.Code
	// Cause and Client are text with code spans in backticks, on one line each: why it happens, and what to do.
	Cause, Client string
}

// readCodeDocs reads the entries of docs/failure-modes.md: a heading `### code`, then `**Status** N`, `**Cause**:`,
// `**Client**:` and `**Operator**:`, which is not for clients. It returns one for each of [errcode.All], in that order, and
// reports codes without an entry, entries without a code, and statuses that aren't the code's.
func readCodeDocs(page string) ([]codeDoc, error) {
	found := make(map[errcode.Code]codeDoc)
	var faults []error
	sections := strings.Split("\n"+page, "\n### ")
	for _, section := range sections[1:] {
		name, text, _ := strings.Cut(section, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		doc := codeDoc{Code: errcode.Code(name), Cause: labelled(text, "Cause"), Client: labelled(text, "Client")}
		status := leadingDigits(labelled(text, "Status"))
		switch {
		case status != strconv.Itoa(doc.Code.Status()):
			faults = append(faults, fmt.Errorf("%s: the status is %d", name, doc.Code.Status()))
		case doc.Cause == "" || doc.Client == "" || labelled(text, "Operator") == "":
			faults = append(faults, fmt.Errorf("%s: Cause, Client or Operator is missing", name))
		}
		found[doc.Code] = doc
	}
	docs := make([]codeDoc, 0, len(found))
	for _, code := range errcode.All() {
		doc, ok := found[code]
		if !ok {
			faults = append(faults, fmt.Errorf("%s has no entry", code))
		}
		docs = append(docs, doc)
	}
	return docs, errors.Join(faults...)
}

// labelled returns the text behind a bold label, up to the next label, on one line.
func labelled(text, label string) string {
	_, after, found := strings.Cut(text, "**"+label+"**")
	if !found {
		return ""
	}
	after, _, _ = strings.Cut(after, "**")
	sentence := strings.Join(strings.Fields(strings.TrimPrefix(after, ":")), " ")
	if sentence == "" {
		return ""
	}
	return strings.ToUpper(sentence[:1]) + sentence[1:]
}

func leadingDigits(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return text
	}
	return text[:end]
}
