package platforms

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// graphError is an error of the social platform's interface. It comes with any status, 200 too.
type graphError struct {
	Code        *int `json:"code"`
	Subcode     int  `json:"error_subcode"`
	IsTransient bool `json:"is_transient"`
}

// callGraph makes a call under a path of the social platform. The token travels in a header, so that it is in no address.
func (c *Client) callGraph(ctx context.Context, t Type, credentials Credentials, path string, query url.Values, body any) (*answer, *SendError) {
	if problem := checkToken(credentials.AccessToken); problem != "" {
		return nil, needsReauth(false, &FieldError{"accessToken", problem})
	}
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	return c.do(ctx, &call{
		platform: t, base: c.bases[t], method: method, path: path, query: query, json: body,
		header: map[string]string{"Authorization": "Bearer " + credentials.AccessToken},
	})
}

// graphResult reads a good answer into result, or judges the error.
func (a *answer) graphResult(result any) *SendError {
	var body struct {
		Error *graphError `json:"error"`
	}
	switch {
	case !a.decode(&body):
		return a.unreadable()
	case body.Error != nil && body.Error.Code != nil:
		return a.judgeGraph(body.Error)
	case !a.good() || !a.decode(result):
		return a.unreadable()
	}
	return nil
}

// judgeGraph is the table of notes/platforms.md §4. A code that is listed there for one of the three only is unknown to
// the others, so one table serves all. Codes 1, 2 and 1200 and the subcodes of unreachable people are general knowledge,
// not seen in a source.
func (a *answer) judgeGraph(e *graphError) *SendError {
	code := *e.Code
	cause := a.vendor(strconv.Itoa(code), strconv.Itoa(e.Subcode))
	switch e.Subcode {
	case 2018278, 2018065, 2534022:
		return windowExpired(a.platform, cause)
	case 1545041, 2018108:
		return customerBlocked(cause)
	}
	switch code {
	case 131047, 470:
		return windowExpired(a.platform, cause)
	case 551, 131026:
		return customerBlocked(cause)
	case 1, 2, 4, 17, 32, 613, 1200, 130429, 131000, 131016, 131048, 131056, 133004, 133016:
		return retryLater(a.retryAfter(), cause)
	case 102, 190, 131005, 131031:
		return needsReauth(false, cause)
	case 10:
		if e.Subcode == 0 { // the permission was taken away; other subcodes are about one message
			return needsReauth(false, cause)
		}
		return refused(cause)
	case 0, 3:
		if a.platform == ChatApp {
			return needsReauth(false, cause)
		}
	}
	switch {
	case code >= 200 && code <= 299:
		return needsReauth(false, cause)
	case code >= 80000 && code <= 80014, e.IsTransient:
		return retryLater(a.retryAfter(), cause)
	}
	return a.unlisted(cause)
}

// graphMessage reads {"message_id":…}.
func (a *answer) graphMessage() (string, *SendError) {
	var result struct {
		MessageID word `json:"message_id"`
	}
	if failure := a.graphResult(&result); failure != nil {
		return "", failure
	}
	if result.MessageID == "" {
		return "", unknown(a.vendor("", ""))
	}
	return string(result.MessageID), nil
}

type graphPerson struct {
	ID string `json:"id"`
}

type graphText struct {
	Text string `json:"text"`
}
