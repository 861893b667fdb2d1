package handlers

import (
	"strconv"
	"strings"
)

// Prefers reports whether an Accept header (RFC 9110, section 12.5.1) prefers a media type to application/json, or likes both
// as much and names the former more exactly. It returns false for an empty header, and when both are named alike: the client
// is then a program.
func Prefers(accept, mediaType string) bool {
	group, _, _ := strings.Cut(mediaType, "/")
	wanted, json := qualities{}, qualities{}
	for element := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := strings.Cut(element, ";")
		media = strings.ToLower(strings.TrimSpace(media))
		q := quality(parameters)
		wanted.note(media, mediaType, group+"/*", q)
		json.note(media, "application/json", "application/*", q)
	}
	return wanted.q > json.q || wanted.q == json.q && wanted.q > 0 && wanted.exactness > json.exactness
}

// qualities is how much a media type is liked, by the most exact range that covers it.
type qualities struct {
	q         int
	exactness int
}

func (s *qualities) note(media, exact, group string, q int) {
	exactness := 0
	switch media {
	case exact:
		exactness = 3
	case group:
		exactness = 2
	case "*/*":
		exactness = 1
	}
	if exactness > s.exactness {
		s.q, s.exactness = q, exactness
	}
}

// quality is the parameter q in thousandths: 1000 when there is none, 0 for one that isn't valid.
func quality(parameters string) int {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, found := strings.Cut(strings.TrimSpace(parameter), "=")
		if !found || !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return int(q * 1000)
	}
	return 1000
}
