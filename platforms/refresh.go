package platforms

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// RefreshErrors are the error codes of a refresh that don't mean that the refresh token was refused. A code in neither list
// is taken as a refusal of the token.
type RefreshErrors struct {
	// Member is the member of the answer that has the code: "error" or "code". No error is absent, "" or "0".
	Member string
	// Operator are errors that the operator's application causes, not the channel.
	Operator []string
	// Temporary are errors after which the refresh token is as good as before.
	Temporary []string
}

// CheckRefreshToken returns the failure of credentials without a usable refresh token, nil if they have one.
func CheckRefreshToken(c Credentials) *Error {
	if problem := CheckToken(c[RefreshToken]); problem != "" {
		return Unauthorized(false, &FieldError{RefreshToken, problem})
	}
	return nil
}

// RefreshTokens makes the request of a refresh and returns the credentials that replace old. The answer has the form of OAuth:
// access_token, refresh_token (if it changes) and expires_in or expire_in, in seconds. The error is an [*Error].
func (c *Client) RefreshTokens(
	ctx context.Context, request *Request, old Credentials, now time.Time, known RefreshErrors,
) (Credentials, error) {
	r, failure := c.Do(ctx, request)
	if failure != nil {
		return nil, failure
	}
	next, failure := r.tokens(old, now, known)
	if failure != nil {
		return nil, failure
	}
	return next, nil
}

func (r *Response) tokens(old Credentials, now time.Time, known RefreshErrors) (Credentials, *Error) {
	var body struct {
		AccessToken  string `json:"access_token"`
		RefreshToken string `json:"refresh_token"`
		ExpiresIn    Word   `json:"expires_in"`
		ExpireIn     Word   `json:"expire_in"`
		Error        Word   `json:"error"`
		Code         Word   `json:"code"`
	}
	readable := r.Decode(&body)
	code := string(body.Error)
	if known.Member == "code" {
		code = string(body.Code)
	}
	switch {
	case !readable:
		return nil, r.Unreadable(false)
	case code != "" && code != "0":
		return nil, r.refreshFailure(code, known)
	case !r.OK():
		return nil, r.Unreadable(false)
	case CheckToken(body.AccessToken) != "", body.RefreshToken != "" && CheckToken(body.RefreshToken) != "":
		return nil, Fail(Unknown, r.Error(code, ""))
	}
	next := maps.Clone(old)
	next[AccessToken] = body.AccessToken
	if body.RefreshToken != "" {
		next[RefreshToken] = body.RefreshToken
	}
	delete(next, ExpiresAt)
	if life := Seconds(string(body.ExpiresIn)) + Seconds(string(body.ExpireIn)); life > 0 {
		next[ExpiresAt] = strconv.FormatInt(now.Add(life).UnixMilli(), 10)
	}
	return next, nil
}

func (r *Response) refreshFailure(code string, known RefreshErrors) *Error {
	cause := r.Error(code, "")
	switch {
	case r.Status == http.StatusTooManyRequests, r.Status >= 500, slices.Contains(known.Temporary, code):
		return RetryLater(r.RetryAfter(), cause)
	case slices.Contains(known.Operator, code):
		return Fail(Refused, cause)
	}
	return Unauthorized(false, cause)
}
