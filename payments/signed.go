package payments

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"
)

// MaxDrift is how far the time of a signature may be from ours. Older deliveries may be repeated ones.
const MaxDrift = 5 * time.Minute

// IsSigned reports whether a signature is the lower-case hex of HMAC-SHA256(secret, parts). An empty secret signs nothing. The time of the comparison
// depends only on the lengths.
func IsSigned(signature, secret string, parts ...[]byte) bool {
	if secret == "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	for _, part := range parts {
		mac.Write(part)
	}
	return hmac.Equal([]byte(hex.EncodeToString(mac.Sum(nil))), []byte(signature))
}

// IsRecent reports whether a time in Unix seconds, as a signature names it, is within [MaxDrift] of now.
func IsRecent(seconds string, now time.Time) bool {
	at, err := strconv.ParseInt(seconds, 10, 64)
	return err == nil && now.Sub(time.Unix(at, 0)).Abs() <= MaxDrift
}

// Only returns the value of a header that is there once, or an empty text: of two values, other software may read either.
func Only(header http.Header, name string) string {
	if values := header.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}
