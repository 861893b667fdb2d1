package identity_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

func TestCredential(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		raw    string
		err    error
	}{
		"none":                          {http.Header{}, "", identity.ErrNoKey},
		"bearer":                        {http.Header{"Authorization": {"Bearer ck_a"}}, "ck_a", nil},
		"bearer in any case":            {http.Header{"Authorization": {"bEARER ck_a"}}, "ck_a", nil},
		"x-api-key":                     {http.Header{"X-Api-Key": {"ck_a"}}, "ck_a", nil},
		"both: x-api-key wins":          {http.Header{"X-Api-Key": {"ck_a"}, "Authorization": {"Bearer dummy"}}, "ck_a", nil},
		"x-api-key beside basic":        {http.Header{"X-Api-Key": {"ck_a"}, "Authorization": {"Basic eDp5"}}, "ck_a", nil},
		"empty x-api-key":               {http.Header{"X-Api-Key": {""}}, "", identity.ErrNoKey},
		"empty x-api-key beside bearer": {http.Header{"X-Api-Key": {""}, "Authorization": {"Bearer ck_a"}}, "ck_a", nil},
		"basic":                         {http.Header{"Authorization": {"Basic eDp5"}}, "", identity.ErrNoKey},
		"bare key":                      {http.Header{"Authorization": {"ck_a"}}, "", identity.ErrNoKey},
		"longer scheme":                 {http.Header{"Authorization": {"BearerX ck_a"}}, "", identity.ErrNoKey},
		"not ASCII":                     {http.Header{"Authorization": {"Beare\u0280 ck_a"}}, "", identity.ErrNoKey},
		"empty authorization":           {http.Header{"Authorization": {""}}, "", identity.ErrNoKey},
		"bearer alone":                  {http.Header{"Authorization": {"Bearer"}}, "", identity.ErrNoKey},
		"bearer and a space":            {http.Header{"Authorization": {"Bearer "}}, "", identity.ErrNoKey},
		"bearer and a tab":              {http.Header{"Authorization": {"Bearer\tck_a"}}, "", identity.ErrInvalidKey},
		"two spaces: a malformed key":   {http.Header{"Authorization": {"Bearer  ck_a"}}, " ck_a", nil},
		"something behind":              {http.Header{"Authorization": {"Bearer ck_a ck_b"}}, "ck_a ck_b", nil},
		"x-api-key twice":               {http.Header{"X-Api-Key": {"ck_a", "ck_a"}}, "", identity.ErrInvalidKey},
		"authorization twice":           {http.Header{"Authorization": {"Bearer ck_a", "Bearer ck_a"}}, "", identity.ErrInvalidKey},
		"basic and bearer":              {http.Header{"Authorization": {"Basic eDp5", "Bearer ck_a"}}, "", identity.ErrInvalidKey},
		"one key, authorization twice":  {http.Header{"X-Api-Key": {"ck_a"}, "Authorization": {"Bearer a", "Bearer b"}}, "", identity.ErrInvalidKey},
	} {
		raw, err := identity.Credential(c.header)
		require.Equal(t, c.raw, raw, name)
		require.ErrorIs(t, err, c.err, name)
		if strings.ContainsAny(raw, " ") {
			_, _, ok := identity.ParseKey(raw)
			require.False(t, ok, name)
		}
	}
}
