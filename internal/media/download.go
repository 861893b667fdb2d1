package media

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/egress"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// mostRedirects bounds how often an address may refer to another one.
	mostRedirects = 3
	// sniffedBytes are those by which a file's type is recognized.
	sniffedBytes = 512
)

// fetchError ends a try. Its texts contain no address.
type fetchError struct {
	// code is the code of a file that is never fetched again. It is empty if another try may succeed.
	code  string
	cause error
	// wait is how long the platform demands to be left alone, or 0.
	wait time.Duration
	// reconnect: the channel needs new credentials, and the try doesn't count.
	reconnect bool
}

func (f *fetchError) Error() string { return f.cause.Error() }
func (f *fetchError) Unwrap() error { return f.cause }

func final(code, cause string) error { return &fetchError{code: code, cause: errors.New(cause)} }

func temporary(cause string) error { return &fetchError{cause: errors.New(cause)} }

// open requests a file. The caller closes the body.
func (f *Fetcher) open(ctx context.Context, where platforms.Location, stable bool) (*http.Response, error) {
	if where.Bytes > MaxBytes {
		return nil, final(CodeTooLarge, "the file is too large")
	}
	transport, authorization := f.public.Transport, where.Authorization
	if where.Own {
		transport = f.Platforms.Transport()
	}
	for range mostRedirects + 1 {
		check := f.Policy.Check
		if where.Own { // an address of the operator's
			check = url.Parse
		}
		address, err := check(where.Address)
		if err != nil {
			return nil, final(CodeRefused, "the address "+err.Error())
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
		if err != nil {
			return nil, final(CodeRefused, "the address can't be requested")
		}
		request.Header.Set("User-Agent", "caddy-svc")
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		response, err := transport.RoundTrip(request) //nolint:bodyclose // the caller closes it
		if err != nil {
			return nil, networkFailure(err)
		}
		next, err := redirected(response, address)
		if err != nil || next == "" {
			return answered(response, stable, err)
		}
		_ = response.Body.Close()
		if where.Own {
			return nil, final(CodeRefused, "the platform's own address refers to another one")
		}
		where.Address, authorization = next, ""
	}
	return nil, final(CodeRefused, "the address refers to others again and again")
}

// redirected returns the address that a response refers to, or none.
func redirected(response *http.Response, from *url.URL) (string, error) {
	redirects := []int{
		http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
	}
	if !slices.Contains(redirects, response.StatusCode) {
		return "", nil
	}
	to, err := from.Parse(response.Header.Get("Location"))
	if err != nil {
		return "", final(CodeRefused, "the address refers to none")
	}
	return to.String(), nil
}

// answered judges the status of a response. stable is whether the same address is requested again with the next try.
func answered(response *http.Response, stable bool, err error) (*http.Response, error) {
	status := response.StatusCode
	switch {
	case err != nil:
	case status == http.StatusOK && response.ContentLength > MaxBytes:
		err = final(CodeTooLarge, "the file is too large")
	case status == http.StatusOK:
		return response, nil
	case stable && slices.Contains([]int{http.StatusForbidden, http.StatusNotFound, http.StatusGone}, status):
		err = final(CodeExpired, fmt.Sprintf("the address of the file was answered with status %d", status))
	default:
		err = temporary(fmt.Sprintf("the request of the file was answered with status %d", status))
	}
	_ = response.Body.Close()
	return nil, err
}

// networkFailure describes a failure in our own words, because net/http's may quote the address.
func networkFailure(err error) error {
	var slow interface{ Timeout() bool }
	switch {
	case errors.Is(err, egress.ErrPrivate):
		// As a name that doesn't exist: a tenant may sign a delivery that names the file, and must not learn which internal names exist.
		return temporary("the address is not public")
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout():
		return temporary("the file did not arrive in time")
	default:
		return temporary("the connection for the file could not be made, or broke")
	}
}

// limitedFile reads a body, and fails after [MaxBytes].
type limitedFile struct {
	body io.Reader
	left int64
}

func (l *limitedFile) Read(p []byte) (int, error) {
	n, err := l.body.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, final(CodeTooLarge, "the file is too large")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = networkFailure(err)
	}
	return n, err
}

// unknownType is the type of what isn't recognized. Browsers store it and don't show it.
const unknownType = "application/octet-stream"

// recognized are the types that files are given, by what [http.DetectContentType] calls them. Browsers run none of them.
var recognized = map[string]string{
	"image/jpeg": "image/jpeg", "image/png": "image/png", "image/gif": "image/gif", "image/webp": "image/webp",
	"application/ogg": "audio/ogg", "audio/mpeg": "audio/mpeg", "audio/wave": "audio/wav", "video/mp4": "video/mp4", "video/webm": "video/webm",
	"application/pdf": "application/pdf",
}

// Voices that phones record have types of their own.
const (
	voiceAMR = "audio/amr"
	voiceMP4 = "audio/mp4"
)

// Types returns the types that stored files may have, sorted.
func Types() []string {
	types := []string{unknownType, voiceAMR, voiceMP4}
	for _, t := range recognized {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

// typeOf recognizes a file of a kind by its beginning: whatever its server says, so that only a picture is shown as a picture. It fails for
// another kind, such as a page that says that the address has ended.
func typeOf(kind string, beginning []byte) (mediaType string, err error) {
	detected, _, _ := strings.Cut(http.DetectContentType(beginning), ";")
	mediaType = cmp.Or(recognized[detected], unknownType)
	switch {
	case kind == "image" && !strings.HasPrefix(mediaType, "image/"):
		return "", final(CodeType, "the file is no picture")
	case kind == "audio" && bytes.HasPrefix(beginning, []byte("#!AMR")):
		return voiceAMR, nil
	case kind == "audio" && mediaType == "video/mp4":
		return voiceMP4, nil
	case kind != "file" && (strings.HasPrefix(detected, "text/") || mediaType == "application/pdf"):
		return "", final(CodeType, "the file is a text")
	}
	return mediaType, nil
}
