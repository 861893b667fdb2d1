package messaging_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func graphError(code, subcode int) string {
	return fmt.Sprintf(`{"error":{"message":"%s","type":"OAuthException","code":%d,"error_subcode":%d}}`, platformfake.Secret, code, subcode)
}

// The mapping rules of notes/platforms.md §4, in the platforms' own words.
func TestErrorsInThePlatformsOwnWords(t *testing.T) {
	t.Parallel()
	const (
		bot, messenger, photo, chatApp = bot.Type, social.Messenger, social.PhotoDM, social.ChatApp
		local, marketA, marketB        = localchat.Type, marketa.Type, marketb.Type
	)
	const (
		retry, reauth, window   = platforms.Retry, platforms.NeedsReauth, platforms.WindowExpired
		blocked, refuse, unsure = platforms.CustomerBlocked, platforms.Refused, platforms.Unknown
	)
	for _, test := range []struct {
		platform platforms.Type
		status   int
		body     string
		want     platforms.Class
	}{
		{bot, 401, `{"ok":false,"error_code":401,"description":"Unauthorized"}`, reauth},
		{bot, 404, `{"ok":false,"error_code":404,"description":"Not Found"}`, reauth},
		{bot, 403, `{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}`, blocked},
		{bot, 429, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 5","parameters":{"retry_after":5}}`, retry},
		{bot, 500, `{"ok":false,"error_code":500,"description":"Internal Server Error"}`, retry},
		{bot, 400, `{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}`, refuse},
		{bot, 200, `{"ok":false,"error_code":400,"description":"Bad Request"}`, refuse},
		{bot, 200, `{"ok":true,"result":{}}`, unsure},
		{bot, 200, `{"ok":true,"result":true}`, unsure},
		{bot, 200, `{"ok":true}`, unsure},
		{bot, 404, `not found`, refuse},

		{messenger, 400, graphError(10, 2018278), window},
		{messenger, 400, graphError(10, 2018065), window},
		{photo, 400, graphError(10, 2534022), window},
		{messenger, 403, graphError(10, 0), reauth},
		{messenger, 400, graphError(10, 99), refuse},
		{messenger, 400, graphError(190, 463), reauth},
		{messenger, 400, graphError(200, 0), reauth},
		{messenger, 400, graphError(299, 0), reauth},
		{messenger, 400, graphError(551, 1545041), blocked},
		{messenger, 400, graphError(200, 1545041), blocked},
		{messenger, 400, graphError(4, 0), retry},
		{messenger, 400, graphError(613, 0), retry},
		{messenger, 400, graphError(80006, 0), retry},
		{messenger, 500, graphError(2, 0), retry},
		{messenger, 500, graphError(99999, 0), retry},
		{messenger, 429, graphError(99999, 0), retry},
		{messenger, 401, graphError(99999, 0), reauth},
		{messenger, 400, graphError(100, 2018001), refuse},
		{messenger, 400, `{"error":{"code":99999,"is_transient":true}}`, retry},
		{messenger, 200, graphError(190, 0), reauth},
		{messenger, 400, graphError(3, 0), refuse},
		{messenger, 200, `{"recipient_id":"1"}`, unsure},
		{messenger, 200, `{"message_id":null}`, unsure},

		{chatApp, 400, graphError(131047, 0), platforms.TemplateRequired},
		{chatApp, 400, graphError(470, 0), platforms.TemplateRequired},
		{chatApp, 401, graphError(0, 0), reauth},
		{chatApp, 400, graphError(3, 0), reauth},
		{chatApp, 403, graphError(10, 0), reauth},
		{chatApp, 403, graphError(131005, 0), reauth},
		{chatApp, 403, graphError(131031, 0), reauth},
		{chatApp, 400, graphError(131026, 0), blocked},
		{chatApp, 403, graphError(4, 0), retry},
		{chatApp, 403, graphError(80007, 0), retry},
		{chatApp, 429, graphError(130429, 0), retry},
		{chatApp, 400, graphError(131048, 0), retry},
		{chatApp, 400, graphError(131056, 0), retry},
		{chatApp, 400, graphError(133016, 0), retry},
		{chatApp, 400, graphError(131009, 0), refuse},
		{chatApp, 200, `{"messages":[]}`, unsure},

		{local, 200, `{"error":-216,"message":"x"}`, reauth},
		{local, 200, `{"error":"-220","message":"x"}`, reauth},
		{local, 200, `{"error":-219}`, reauth},
		{local, 200, `{"error":-230}`, window},
		{local, 200, `{"error":-232}`, window},
		{local, 200, `{"error":-213}`, window},
		{local, 200, `{"error":-305}`, window},
		{local, 200, `{"error":-244}`, blocked},
		{local, 200, `{"error":-32}`, retry},
		{local, 200, `{"error":-201}`, refuse},
		{local, 503, `{"error":-1}`, retry},
		{local, 200, `{"error":0,"data":{}}`, unsure},
		{local, 200, `{"message":"Success"}`, unsure},

		{marketA, 403, `{"error":"error_auth","message":"Invalid access_token."}`, reauth},
		{marketA, 200, `{"error":"invalid_acceess_token"}`, reauth},
		{marketA, 403, `{"error":"error_permission"}`, reauth},
		{marketA, 429, `{"error":"error_limit"}`, retry},
		{marketA, 200, `{"error":"error_limit"}`, retry},
		{marketA, 500, `{"error":"error_unheard_of"}`, retry},
		{marketA, 200, `{"error":"error_param","message":"x"}`, refuse},
		{marketA, 200, `{"error":"","response":{}}`, unsure},
		{marketA, 200, `{}`, unsure},

		{marketB, 200, `{"code":"IllegalAccessToken","type":"ISP"}`, reauth},
		{marketB, 200, `{"code":"InsufficientPermission"}`, reauth},
		{marketB, 200, `{"code":"ApiCallLimit"}`, retry},
		{marketB, 200, `{"code":"ServiceTimeout"}`, unsure},
		{marketB, 200, `{"code":"0","success":"false","err_code":"-22"}`, window},
		{marketB, 200, `{"code":0,"err_code":-22}`, window},
		{marketB, 200, `{"code":"0","success":false}`, refuse},
		{marketB, 200, `{"code":"IncompleteSignature"}`, refuse},
		{marketB, 200, `{"code":"0","data":{}}`, unsure},
	} {
		t.Run(fmt.Sprintf("%s %d %s", test.platform, test.status, test.body), func(t *testing.T) {
			t.Parallel()
			v := &vendor{status: test.status, body: test.body}
			_, err := v.client(t).Send(t.Context(), outgoing(test.platform))
			failure := requireFailure(t, err)
			require.Equal(t, test.want, failure.Class, failure.Error())
			if test.want == reauth {
				mendable := refreshable(test.platform) && !strings.Contains(test.body, "-219") && !strings.Contains(strings.ToLower(test.body), "permission")
				require.Equal(t, mendable, failure.Refreshable)
			}
		})
	}
}

// Answers that something else than the platform's program gave.
func TestAnswersInNobodysWords(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]platforms.Class{
		200: platforms.Unknown, 204: platforms.Unknown, 301: platforms.Refused, 307: platforms.Refused, 400: platforms.Refused,
		401: platforms.NeedsReauth, 403: platforms.Refused, 404: platforms.Refused, 408: platforms.Unknown, 413: platforms.Refused,
		429: platforms.Retry, 500: platforms.Unknown, 502: platforms.Unknown, 503: platforms.Unknown, 504: platforms.Unknown,
	} {
		for _, body := range []string{"", "<html>" + platformfake.Secret, `[]`, `"x"`, `null`, `{"error":`, `{"error":null}`, strings.Repeat("[", 70000)} {
			if status == 204 && body != "" {
				continue
			}
			v := &vendor{status: status, body: body, header: map[string]string{"Retry-After": "7", "Location": "/elsewhere"}}
			client := v.client(t)
			for _, platform := range sendingTypes {
				_, err := client.Send(t.Context(), outgoing(platform))
				failure := requireFailure(t, err)
				require.Equal(t, want, failure.Class, "%s %d %.20s", platform, status, body)
				require.Equal(t, want == platforms.NeedsReauth && refreshable(platform), failure.Refreshable)
				require.NotContains(t, v.last.path, "elsewhere")
				if want == platforms.Retry {
					require.Equal(t, 7*time.Second, failure.RetryAfter)
				} else {
					require.Zero(t, failure.RetryAfter)
				}
			}
		}
	}
}

func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "30": 30 * time.Second, "3600": time.Hour, "86400": time.Hour, "99999999999999999999": 0,
		"9223372036854775807": time.Hour, "-5": 0, "soon": 0, "": 0,
	} {
		v := &vendor{status: 429, header: map[string]string{"Retry-After": value}}
		_, err := v.client(t).Send(t.Context(), outgoing(social.ChatApp))
		require.Equal(t, want, requireFailure(t, err).RetryAfter, value)
	}
	for value, want := range map[string]time.Duration{"5": 5 * time.Second, `"5"`: 5 * time.Second, "null": 0, "{}": 0} {
		v := &vendor{status: 429, body: `{"ok":false,"error_code":429,"parameters":{"retry_after":` + value + `}}`}
		_, err := v.client(t).Send(t.Context(), outgoing(bot.Type))
		require.Equal(t, want, requireFailure(t, err).RetryAfter, value)
	}
}

// Codes that could hold a secret or an id are not repeated.
func TestCausesShowHarmlessCodesOnly(t *testing.T) {
	t.Parallel()
	for code, shown := range map[string]bool{
		"error_param": true, "common.error_x": true, "-201": true, "131026": true,
		secretToken: false, "165105353": false, "0901234567": false, "Chào": false, "a b": false,
		strings.Repeat("x", 41): false,
	} {
		v := &vendor{status: 400, body: `{"error":"` + code + `","message":"Chào ` + secretToken + `"}`}
		_, err := v.client(t).Send(t.Context(), outgoing(marketa.Type))
		failure := requireFailure(t, err)
		require.Equal(t, shown, strings.Contains(failure.Error(), code), failure.Error())
	}
}

func TestSendErrorSaysWhatHappened(t *testing.T) {
	t.Parallel()
	cause := errors.New("market_a answered with status 403")
	err := error(&platforms.Error{Class: platforms.NeedsReauth, Cause: cause})
	require.EqualError(t, err, "platform call failed (needs_reauth): market_a answered with status 403")
	require.ErrorIs(t, err, cause)
	require.EqualError(t, &platforms.Error{Class: platforms.Retry}, "platform call failed (retry)")
}

// An id that can't be stored is none: the customer has the message, and nobody can name it.
func TestAnUnusableIDIsUnknown(t *testing.T) {
	t.Parallel()
	for _, id := range []string{strings.Repeat("x", platforms.MaxID+1), `a\u0000b`} {
		v := &vendor{status: 200, body: `{"message_id":"` + id + `"}`}
		_, err := v.client(t).Send(t.Context(), outgoing(social.Messenger))
		require.Equal(t, platforms.Unknown, requireFailure(t, err).Class)
	}
}
