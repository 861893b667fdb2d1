package widget

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/caddy-svc/caddy-svc/handlers"
)

const (
	// maxOrigins and maxOrigin limit the origins of a widget channel, because its page lists all of them in a header.
	maxOrigins = 20
	maxOrigin  = 300
	// anySubdomain begins an origin that matches every subdomain, at any depth, as in a Content-Security-Policy.
	anySubdomain = "https://*."
)

// cleanOrigin returns an origin in the spelling of browsers. It returns an error unless the text is
// scheme://host[:port] of http or https, or https://*.example.com.
func cleanOrigin(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxOrigin {
		return "", errors.New("must be scheme://host[:port] or https://*.example.com")
	}
	wildcard := strings.HasPrefix(strings.ToLower(text), anySubdomain)
	if wildcard {
		text = "https://" + text[len(anySubdomain):]
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", errors.New("must begin with https:// or http:// and name a host")
	case u.User != nil, u.Path != "" && u.Path != "/", u.RawQuery != "", u.ForceQuery, strings.Contains(text, "#"):
		return "", errors.New("must end after the host or its port: an origin has no path")
	}
	host, fault := cleanHost(u)
	if fault != nil {
		return "", fault
	}
	if !wildcard {
		return u.Scheme + "://" + host, nil
	}
	_, notAddress := netip.ParseAddr(u.Hostname())
	if u.Port() != "" || !strings.Contains(host, ".") || notAddress == nil {
		return "", errors.New("must name a domain of at least two labels after the *., and no port")
	}
	if suffix, _ := publicsuffix.PublicSuffix(host); suffix == host {
		return "", errors.New("must name a domain of one owner after the *.: anybody can register a name below a public suffix")
	}
	return anySubdomain + host, nil
}

// cleanHost is the host as an Origin header has it: lower case, without the port that the scheme implies.
func cleanHost(u *url.URL) (string, error) {
	name, port := strings.ToLower(u.Hostname()), u.Port()
	if address, err := netip.ParseAddr(name); err == nil && address.Zone() == "" {
		name = address.String()
	} else if !isDomain(name) {
		return "", errors.New("must name a host by letters, digits, hyphens and dots; write other letters in their xn-- form")
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0 || strconv.FormatUint(n, 10) != port) {
		return "", errors.New("must have a port from 1 to 65535")
	}
	if port == "" && strings.HasSuffix(u.Host, ":") {
		return "", errors.New("must name a port after the colon")
	}
	if port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		port = ""
	}
	if port != "" {
		return net.JoinHostPort(name, port), nil
	}
	if strings.Contains(name, ":") {
		return "[" + name + "]", nil
	}
	return name, nil
}

// isDomain reports whether the text is a host name in lower case: labels of letters, digits and hyphens.
func isDomain(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(label, func(r rune) bool {
			return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
		}) {
			return false
		}
	}
	return true
}

// allows reports whether an Origin header is one of the allowed origins, which are clean. Browsers send exactly that spelling;
// any other, and "null", is refused.
func allows(allowed []string, origin string) bool {
	return origin != "" && slices.ContainsFunc(allowed, func(candidate string) bool {
		domain, wildcard := strings.CutPrefix(candidate, anySubdomain)
		if !wildcard {
			return origin == candidate
		}
		host, secure := strings.CutPrefix(origin, "https://")
		label, below := strings.CutSuffix(host, "."+domain)
		return secure && below && isDomain(label)
	})
}

// originOf returns the request's Origin header. It is empty if the request has none, and "null", which is never
// allowed, if it has several.
func originOf(r *http.Request) string {
	if len(r.Header.Values("Origin")) > 1 {
		return "null"
	}
	return r.Header.Get("Origin")
}

// fromItself reports whether the request comes from a page of the address it goes to. Only the host is compared, because a proxy
// may have terminated TLS.
func fromItself(r *http.Request, origin string) bool {
	_, host, found := strings.Cut(origin, "://")
	return found && host != "" && strings.EqualFold(host, r.Host)
}

// CleanOrigins are the origins as browsers spell them, each once, in their order; the error is an *[handlers.Error] that names the
// first that isn't one, or says that there are more than 20.
func CleanOrigins(origins []string) ([]string, error) {
	if len(origins) > maxOrigins {
		return nil, handlers.InvalidRequest("origins", "origins must have at most %d elements.", maxOrigins)
	}
	clean := make([]string, 0, len(origins))
	for i, text := range origins {
		origin, err := cleanOrigin(text)
		if err != nil {
			field := "origins[" + strconv.Itoa(i) + "]"
			return nil, handlers.InvalidRequest(field, "%s %s.", field, err)
		}
		if !slices.Contains(clean, origin) {
			clean = append(clean, origin)
		}
	}
	return clean, nil
}
