package tests

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
)

// TestBrowserKeys guarantees the way of a key through the dashboard: a user signs in and creates a key, which is shown once;
// an OpenAI client works with it; its cost is in the wallet and its plot; and when the key is revoked, the next request is
// refused.
func TestBrowserKeys(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	p := b.person(t, "administrator")

	p.submit("form#logout")
	require.Equal(t, "/dashboard/login", p.path())
	p.open("/dashboard/keys")
	require.Equal(t, "/dashboard/login", p.path(), "who isn't signed in is asked to")
	p.fill("#login-email", p.Email)
	p.fill("#login-password", "wrong")
	p.submitBad("form#login")
	require.Equal(t, p.Email, p.value("#login-email"), "what was typed is kept")
	require.Empty(t, p.value("#login-password"), "but for the password")
	require.NotEmpty(t, p.text("form#login [role=alert]"))
	p.signIn()
	require.Equal(t, "/dashboard/keys", p.path(), "signing in leads to what was asked for")

	p.fill("#key-create-name", "Shop backend")
	p.submit("form#key-create")
	raw := p.text("#new-key")
	p.requireAccessible()
	require.Regexp(t, `^ck_live_\w+$`, raw)
	p.click(`[data-copy="#new-key"]`)
	p.awaitText(`[data-copy="#new-key"]`, "Copied")
	p.picture("a new key")
	p.open("/dashboard/keys")
	require.NotContains(t, js[string](p.tab, "document.documentElement.outerHTML"), raw, "a key is shown once")
	require.Contains(t, p.text("main"), "Shop backend")

	client := openai.NewClient(option.WithBaseURL(c.BaseURL+"/v1"), option.WithAPIKey(raw), option.WithMaxRetries(0), option.WithHTTPClient(c.clear))
	ask := openai.ChatCompletionNewParams{Model: modelStd, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	_, err := client.Chat.Completions.New(t.Context(), ask)
	require.NoError(t, err)
	var ended int64
	require.NoError(t, c.operator().db.Reader().QueryRowContext(t.Context(), `SELECT ended_at FROM calls`).Scan(&ended))
	day := time.UnixMilli(ended).UTC().Format(time.DateOnly)
	p.open("/dashboard/wallet")
	require.Equal(t, strconv.Itoa(1_000_000-usualCharge), js[string](p.tab, `document.querySelector("#balance").dataset.micros`))
	bars := js[[]string](p.tab, `[...document.querySelectorAll("svg#spend-plot rect[data-series]")]
		.map(bar => bar.dataset.series + " " + bar.dataset.value)`)
	require.Equal(t, []string{fmt.Sprintf("%s %d", modelStd, usualCharge)}, bars)
	require.True(t, p.has(fmt.Sprintf(`svg#spend-plot rect[data-step="%s"][data-value="%d"]`, day, usualCharge)), "the bar of the call's day")
	require.Positive(t, js[float64](p.tab, `document.querySelector("svg#spend-plot rect[data-value='25']").getBoundingClientRect().height`))
	p.picture("the wallet")

	p.open("/dashboard/keys")
	row := `#keys tr[data-id="` + call[string](p.tab, `name => [...document.querySelectorAll("#keys tr[data-id]")]
		.find(row => row.innerText.includes(name)).dataset.id`, "Shop backend") + `"]`
	p.submit(row + ` form[id^="key-revoke-"]`)
	require.False(t, p.has(row+" form"))
	_, err = client.Chat.Completions.New(t.Context(), ask)
	refused := new(openai.Error)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusUnauthorized, refused.StatusCode)
	require.Equal(t, "api_key_revoked", refused.Code)
}
