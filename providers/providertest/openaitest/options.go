package openaitest

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var scenarioText = regexp.MustCompile(`scenario:([a-z0-9-]+)((?:;[a-z_]+=[^\s;"\\]*)*)`)

// options are the key=value pairs of a scenario.
type options map[string]string

// parseScenario finds the first scenario in a request body.
func parseScenario(body string) (name string, opts options) {
	opts = options{}
	m := scenarioText.FindStringSubmatch(body)
	if m == nil {
		return "ok", opts
	}
	for pair := range strings.SplitSeq(m[2], ";") {
		key, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(value); err == nil {
			value = plain
		}
		opts[key] = value
	}
	return m[1], opts
}

func (o options) number(key string, otherwise int) int {
	if n, err := strconv.Atoi(o[key]); err == nil {
		return n
	}
	return otherwise
}

func (o options) delay() time.Duration {
	return time.Duration(o.number("delay", 0)) * time.Millisecond
}
