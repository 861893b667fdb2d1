package handlers

import (
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
)

// memberNames are the names of all members of all described objects.
func memberNames(schemas huma.Registry) map[string]bool {
	names := make(map[string]bool)
	for _, schema := range schemas.Map() {
		for name := range schema.Properties {
			names[name] = true
		}
	}
	return names
}

// readObject checks a body by the rules of design §6 ("JSON on /v1 and groups"): one object in valid UTF-8, no repeated
// names, nothing after it, no deeper than 64. Texts with NUL are refused, for no engine keeps them. The result is the
// same object without members that no request has, and with numbers in one spelling (10.0 is 10): the framework takes
// names in any case and whole numbers in one form only.
func (a *API) readObject(body []byte) ([]byte, error) {
	s := scanner{text: body}
	member := func(literal) bool { return s.skip() }
	if fault := s.document(member, a.knownMember); fault != nil {
		return nil, fault
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		// The scanner took it, so what is left is a number that is too large for any field.
		e := InvalidRequest("", "The request body has a number that is out of range.")
		e.Cause = err
		return nil, e
	}
	if field, found := a.clean(object, ""); found {
		return nil, InvalidRequest(field, "%s contains the character NUL.", field)
	}
	return marshal(object), nil
}

// knownMember is the name if a request can have a member of that name.
func (a *API) knownMember(name literal) string {
	var buf [32]byte
	if word := string(name.word(&buf)); a.members[word] {
		return word
	}
	return ""
}

// clean removes unknown members at any depth and finds the first text with NUL.
func (a *API) clean(value any, path string) (field string, found bool) {
	switch value := value.(type) {
	case string:
		return path, strings.Contains(value, "\x00")
	case []any:
		for i, element := range value {
			if field, found = a.clean(element, path+"["+strconv.Itoa(i)+"]"); found {
				return field, true
			}
		}
	case map[string]any:
		for name, member := range value {
			if !a.members[name] {
				delete(value, name)
				continue
			}
			if field, found = a.clean(member, strings.TrimPrefix(path+"."+name, ".")); found {
				return field, true
			}
		}
	}
	return "", false
}
