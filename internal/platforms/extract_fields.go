package platforms

import (
	"strings"
	"time"
	"unicode/utf8"
)

// inbounds collects what a delivery holds.
type inbounds struct {
	all  []Inbound
	most int
}

const (
	// shortest is how many bytes of a delivery an Inbound takes at least: {"to":1,"id":1,"type":"voice"} and a comma.
	shortest = 31
	// fewInbounds is for how many there is room at first. Then it is for an eighth of what the delivery can hold, and then for
	// all of that: a slice that grows as usual would take several times as much.
	fewInbounds = 8
)

func inboundsOf(delivery []byte) inbounds { return inbounds{most: len(delivery)/shortest + 1} }

// add appends in if it has a kind, and the ids that this kind needs for its channel, conversation and message.
func (i *inbounds) add(in Inbound) {
	routed := in.Type == Bot || in.ExternalID != ""
	switch in.Kind {
	case Text, Media, HumanEcho, FailedDelivery:
		routed = routed && in.Conversation != "" && in.MessageID != ""
	case Blocked:
		routed = routed && in.Conversation != ""
	case TokenExpiring:
	default:
		return
	}
	if !routed {
		return
	}
	if n := len(i.all); n > 0 && n == cap(i.all) {
		room := max(i.most, 2*n)
		for _, enough := range []int{fewInbounds, i.most / 8} {
			if n < enough {
				room = enough
				break
			}
		}
		i.all = append(make([]Inbound, 0, room), i.all...)
	}
	i.all = append(i.all, in)
}

// moment is a time since 1970 in seconds or milliseconds.
type moment int64

// Bounds of a plausible moment: no platform had a webhook before 2010, and 10^11 seconds lie in the year 5138, 10^11
// milliseconds in 1973.
const (
	earliestMoment = 1_262_304_000 // 2010-01-01 in seconds
	secondsBelow   = 100_000_000_000
	millisBelow    = 100_000_000_000_000
)

// time is the zero time for a moment that can't be right: test deliveries say 1, and a message of 1970 would be out of
// every service window.
func (m moment) time() time.Time {
	var at time.Time
	switch {
	case m < secondsBelow:
		at = time.Unix(int64(m), 0)
	case m < millisBelow:
		at = time.UnixMilli(int64(m))
	}
	if at.Unix() < earliestMoment {
		return time.Time{}
	}
	return at.UTC()
}

// cut is the text up to limit bytes, cut between two characters.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.Clone(text[:limit]) // not a window that keeps the whole text in memory
}

// mediaName is the platform's name of a kind of message if it looks like one, so that nothing else gets into the
// conversation; otherwise attachment.
func mediaName(name string) string {
	if name == "" || len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "attachment"
	}
	return name
}

// oneOf returns the first text that is more than blanks.
func oneOf(texts ...string) string {
	for _, text := range texts {
		if strings.TrimSpace(text) != "" {
			return text
		}
	}
	return ""
}
