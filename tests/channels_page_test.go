package tests

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// shellBlock is what docs/channels.md shows for a shell, also in an item of a list.
var shellBlock = regexp.MustCompile("(?sm)^ *```sh\n(.*?)\n *```$")

// pageBlock returns the shell block of a section of docs/channels.md that calls an address: the commands, and what they print.
func pageBlock(t *testing.T, section, address string) (commands, printed string) {
	t.Helper()
	page, err := os.ReadFile("../docs/channels.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(page), "\n"+section+"\n")
	require.True(t, found, section)
	for _, block := range shellBlock.FindAllStringSubmatch(text, -1) {
		if strings.Contains(block[1], address) {
			commands, printed, found = strings.Cut(block[1], "\n# ")
			if !found {
				commands, printed, found = strings.Cut(block[1], "\n   # ")
			}
			require.True(t, found, "%s says what is printed", section)
			return commands, printed
		}
	}
	t.Fatalf("section %s calls no %s", section, address)
	return "", ""
}

// TestChannelsPageTries guarantees that the deliveries which docs/channels.md shows can be tried as they stand there: each is accepted, and the
// customer in it gets an answer from the platform that it is for.
func TestChannelsPageTries(t *testing.T) {
	t.Parallel()
	c := startConnected(t, store.SQLite)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	for _, section := range []struct {
		heading, address string
		kind             platforms.Type
		account          string // the variable with the external id
		customer         string
	}{
		{"### Bot platform", "/webhooks/bot", bot.Type, "ACCOUNT", "5678"},
		{"#### Messenger and photo DM", "/webhooks/social", social.Messenger, "PAGE", "5678"},
		{"#### Chat app", "/webhooks/social", social.ChatApp, "NUMBER", "5678"},
		{"### Local chat platform", "/webhooks/localchat", localchat.Type, "ACCOUNT", "5678"},
		{"### Marketplace A", "/webhooks/market-a", marketa.Type, "SHOP", "5678"},
		{"### Marketplace B", "/webhooks/market-b", marketb.Type, "SHOP", "100_5678"},
	} {
		l := b.line(t, section.kind)
		commands, printed := pageBlock(t, section.heading, section.address)
		require.Equal(t, printed, c.shell(t, commands, "CHANNEL="+l.ID, "SECRET_TOKEN="+l.Secret, section.account+"="+l.External), section.heading)
		require.Equal(t, []string{"Re: Do you have green tea?"}, c.awaitSent(sender{l, section.customer}, 1), section.heading)
	}
	commands, printed := pageBlock(t, "### Social platform", "hub.challenge")
	require.Equal(t, printed, c.shell(t, commands))
}

// shell runs commands of a page in a shell that knows the address and the secrets of the product.
func (c *connectedProduct) shell(t *testing.T, commands string, variables ...string) string {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	shell.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "NO_PROXY=*", "BASE=" + c.BaseURL, "SOCIAL_APP_SECRET=" + socialAppSecret, "SOCIAL_VERIFY_TOKEN=" + socialVerifyToken,
		"LOCALCHAT_APP_ID=" + localchatAppID, "LOCALCHAT_OA_SECRET_KEY=" + localchatAppSecret, "MARKET_A_PUSH_KEY=" + marketAPartnerKey,
		"MARKET_B_APP_KEY=" + marketBAppKey, "MARKET_B_APP_SECRET=" + marketBAppSecret,
	}, variables...)
	printed, err := shell.Output()
	require.NoError(t, err, "%s", commands)
	return strings.TrimSpace(string(printed))
}
