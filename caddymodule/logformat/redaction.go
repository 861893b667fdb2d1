package logformat

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// redacted replaces values that a log may not show.
const redacted = "REDACTED"

// The bounds of the parts of a request in a log line. They keep a line short whatever a client sends.
const (
	maxLoggedURI     = 2048 // bytes of the request's target that are looked at
	maxLoggedSegment = 40   // bytes of a path segment; our ids have 32 at most, keys and tokens have more
	maxLoggedName    = 40   // bytes of a header's or parameter's name that is not listed
	maxLoggedDigits  = 4    // digits in such a name; one with more may itself be a key
	maxLoggedHeaders = 64   // names of a header
	maxLoggedValues  = 4    // values under one name of a header
	maxLoggedValue   = 256  // bytes of a header's value
)

// words makes a set of the words of a text.
func words(text string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// loggedHeaders are the headers, in canonical form, whose values a log may show. Of all others it shows the name.
var loggedHeaders = words(`
	Accept Accept-Charset Accept-Encoding Accept-Language Accept-Ranges Access-Control-Allow-Credentials
	Access-Control-Allow-Headers Access-Control-Allow-Methods Access-Control-Allow-Origin Access-Control-Expose-Headers
	Access-Control-Max-Age Access-Control-Request-Headers Access-Control-Request-Method Age Allow Alt-Svc Cache-Control
	Cf-Connecting-Ip Cf-Ipcountry Cf-Ray Connection Content-Disposition Content-Encoding Content-Language Content-Length
	Content-Location Content-Range Content-Security-Policy Content-Type Cross-Origin-Opener-Policy
	Cross-Origin-Resource-Policy Date Dnt Expect Expires Forwarded Host Keep-Alive Last-Modified Location Origin
	Permissions-Policy Pragma Priority Range Referer Referrer-Policy Retry-After Retry-After-Ms Sec-Ch-Ua
	Sec-Ch-Ua-Mobile Sec-Ch-Ua-Platform Sec-Fetch-Dest Sec-Fetch-Mode Sec-Fetch-Site Sec-Fetch-User Server
	Strict-Transport-Security Te Traceparent Trailer Transfer-Encoding True-Client-Ip Upgrade Upgrade-Insecure-Requests User-Agent Vary
	Via Www-Authenticate X-Content-Type-Options X-Forwarded-For X-Forwarded-Host X-Forwarded-Port X-Forwarded-Proto
	X-Frame-Options X-Ratelimit-Limit-Requests X-Ratelimit-Remaining-Requests X-Ratelimit-Reset-Requests X-Real-Ip
	X-Request-Id X-Requested-With X-Robots-Tag X-Should-Retry X-Stainless-Arch X-Stainless-Lang X-Stainless-Os
	X-Stainless-Package-Version X-Stainless-Retry-Count X-Stainless-Runtime X-Stainless-Runtime-Version
	X-Stainless-Timeout X-Svc-Use-Byok
`)

// addressHeaders are those of loggedHeaders that hold an address, whose query is a query, too.
var addressHeaders = words(`Content-Location Location Origin Referer`)

// loggedParameters are the names in a query whose values a log may show: those of our own pages and lists that are
// neither secrets nor texts of customers.
var loggedParameters = words(`
	attention channelId cursor done environment format fragment from hub.mode limit order to type
`)

// cleanURI returns a request's target, or another address, as a log may show it: of the query the values of
// loggedParameters and the names of the others, of the path no segment that is as long as a key. A query that stands
// in the path by mistake, percent-encoded or after a wrong sign, and a fragment are left out.
func cleanURI(uri string) string {
	cut := len(uri) > maxLoggedURI
	if cut {
		uri = uri[:maxLoggedURI]
	}
	rest, clean := uri, new(strings.Builder)
	if scheme, behind, found := strings.Cut(uri, "://"); found && !strings.ContainsAny(scheme, "/?#%") {
		authority := behind
		if end := strings.IndexAny(behind, "/?#"); end >= 0 {
			authority = behind[:end]
		}
		rest = behind[len(authority):]
		clean.WriteString(scheme + "://")
		if at := strings.LastIndexByte(authority, '@'); at >= 0 {
			clean.WriteString(redacted)
			authority = authority[at:]
		}
		clean.WriteString(cleanText(authority))
	}
	end := pathEnd(rest)
	segments := strings.Split(rest[:end], "/")
	for i, segment := range segments {
		if len(segment) > maxLoggedSegment {
			segments[i] = redacted
		}
	}
	clean.WriteString(cleanText(strings.Join(segments, "/")))
	switch rest = rest[end:]; {
	case strings.HasPrefix(rest, "?"):
		clean.WriteByte('?')
		writeQuery(clean, rest[1:])
	case rest != "":
		clean.WriteString("?" + redacted)
	case cut:
		clean.WriteString("…")
	}
	return clean.String()
}

// pathEnd is where the path of an address ends: before its query or fragment, or where a client wrote something of a
// query into the path.
func pathEnd(address string) int {
	for i := range len(address) {
		switch address[i] {
		case '?', '#', ';', '&', '=':
			return i
		case '%':
			if i+2 < len(address) {
				switch strings.ToLower(address[i+1 : i+3]) {
				case "3f", "23", "3b", "26", "3d":
					return i
				}
			}
		}
	}
	return len(address)
}

// writeQuery writes a query without the values of names that are not loggedParameters.
func writeQuery(clean *strings.Builder, query string) {
	query, _, fragment := strings.Cut(query, "#")
	for i, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' }) {
		if i > 0 {
			clean.WriteByte('&')
		}
		written, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(written)
		switch {
		case err == nil && loggedParameters[name]:
			clean.WriteString(cleanText(pair))
		case strings.Trim(value, "=") != "" && harmlessName(written):
			clean.WriteString(written + "=" + redacted)
		default: // a text without a name may be a key whose name was forgotten
			clean.WriteString(redacted)
		}
	}
	if fragment {
		clean.WriteString("#" + redacted)
	}
}

// harmlessName reports whether a client's name for a field looks like a name, and not like a key.
func harmlessName(name string) bool {
	digits := 0
	for i := range len(name) {
		switch c := name[i]; {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', strings.IndexByte("-_.[]", c) >= 0:
		default:
			return false
		}
	}
	return name != "" && len(name) <= maxLoggedName && digits <= maxLoggedDigits
}

// loggedValues are the values of a header as a log may show them.
func loggedValues(name string, values []string) []string {
	if !loggedHeaders[http.CanonicalHeaderKey(name)] {
		return []string{redacted}
	}
	shown := make([]string, 0, min(len(values), maxLoggedValues+1))
	for i, value := range values {
		if i == maxLoggedValues {
			return append(shown, fmt.Sprintf("and %d more", len(values)-i))
		}
		if addressHeaders[http.CanonicalHeaderKey(name)] {
			value = cleanURI(value)
		} else {
			value = cleanText(value)
		}
		if len(value) > maxLoggedValue {
			value = strings.ToValidUTF8(value[:maxLoggedValue], "") + "…"
		}
		shown = append(shown, value)
	}
	return shown
}

// Secrets inside of other texts, such as an error that quotes an address: a key of ours, a bot's token in a path, a
// password in an address, a value in a query.
var textSecrets = regexp.MustCompile(`ck_(?:live|test)_[0-9A-Za-z_-]+` +
	`|/bot[0-9]+(?::|%3[aA])[0-9A-Za-z_-]+` +
	`|://[^\s/?#"'<>@]+@` +
	"|(?:[?&]|%3[fF]|%26)[^\\s?&=\"'`<>]*=[^\\s&\"'`<>]*")

// cleanText returns a text without the secrets that its form gives away. The cost grows with the text's length only.
func cleanText(text string) string {
	if !strings.ContainsAny(text, "?&%") && !strings.Contains(text, "ck_") && !strings.Contains(text, "/bot") && !strings.Contains(text, "://") {
		return text
	}
	return textSecrets.ReplaceAllStringFunc(text, func(found string) string {
		switch found[0] {
		case 'c':
			return found[:len("ck_live_")] + redacted
		case '/':
			return "/bot" + redacted
		case ':':
			return "://" + redacted + "@"
		}
		start := 1
		if found[0] == '%' {
			start = len("%3f")
		}
		clean := new(strings.Builder)
		clean.WriteString(found[:start])
		writeQuery(clean, found[start:])
		return clean.String()
	})
}
