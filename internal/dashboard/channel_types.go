package dashboard

import "strings"

// channelType is what a person has to know about a type of channel (docs/channels.md).
type channelType struct {
	Value, Label string
	// Like names services that the neutral label stands for.
	Like string
	// External is what the type calls its external id, "" when it has none; ExternalHint says where it stands.
	External, ExternalHint string
	// Credentials are the fields of credentials.
	Credentials []field
	// Before are the steps before the channel is made, After those with its webhook address; %u in them is that address.
	Before, After []string
	// Window says until when the platform takes free text.
	Window string
}

// Title is the label with what it stands for.
func (t *channelType) Title() string {
	if t.Like == "" {
		return t.Label
	}
	return t.Label + " (such as " + t.Like + ")"
}

// after are the steps after the channel was made, with its address.
func (t *channelType) after(webhookURL string) []string {
	steps := make([]string, len(t.After))
	for i, step := range t.After {
		steps[i] = strings.ReplaceAll(step, "%u", webhookURL)
	}
	return steps
}

const (
	secretToken  = "credentials.secretToken" //nolint:gosec // G101: the name of a field
	accessToken  = "credentials.accessToken"
	refreshToken = "credentials.refreshToken"
)

func accessTokenField(hint string) field {
	return field{Name: accessToken, Kind: secretField, Label: "Access token", Required: true, Hint: hint}
}

// bothTokens are the credentials of the platforms whose access tokens are renewed.
func bothTokens() []field {
	return []field{
		accessTokenField("It is renewed by itself before it ends."),
		{
			Name: refreshToken, Kind: secretField, Label: "Refresh token", Required: true,
			Hint: "It works once: don't use it anywhere else.",
		},
	}
}

// channelTypes are all types, in the order of docs/channels.md.
func channelTypes() []channelType {
	return append([]channelType{botType()}, append(socialTypes(), append(shopTypes(), widgetType())...)...)
}

func botType() channelType {
	return channelType{
		Value: "bot", Label: "Bot platform", Like: "Telegram",
		Credentials: []field{
			{
				Name: "credentials.botToken", Kind: secretField, Label: "Bot token", Required: true,
				Hint: "The platform gave it to you with the bot: digits, a colon, and a secret.",
			},
			{
				Name: secretToken, Kind: textField, Label: "Secret for deliveries", Required: true, MaxLength: 256,
				Hint: "The platform sends it with each delivery. Take this one, or 1 to 256 letters, digits, _ and - of your own, " +
					"and note it: it is never shown again.",
			},
		},
		Before: []string{
			"Make the bot at the platform and note its token.",
			"Note the secret below, and connect the channel.",
		},
		After: []string{
			"Call the platform's method setWebhook with url = %u",
			"In the same call give secret_token = the secret that you noted.",
			`In the same call give allowed_updates = ["message", "my_chat_member"], which keeps away what nobody reads.`,
			"Write to the bot from a private chat: the conversation appears here. Groups are not answered.",
		},
		Window: "The bot can always write to somebody who has written to it.",
	}
}

func socialTypes() []channelType {
	before := func(account string) []string {
		return []string{
			"One application of the operator serves all pages, accounts and numbers. Ask the operator for access to it.",
			"Subscribe the application to your " + account + ", and make a long-lived access token for it.",
		}
	}
	after := func(echoes string) []string {
		return []string{
			"Once for the application (the operator has done it if another channel works): webhook address %u with the operator's verify token.",
			"Subscribe to the fields messages and, to have it noticed when a person answers from the platform's app, " + echoes + ".",
		}
	}
	token := []field{accessTokenField("A long-lived one. It works until it is revoked.")}
	day := "Free text until 24 hours after the customer wrote."
	return []channelType{
		{
			Value: "social_messenger", Label: "Social platform: messenger", Like: "Messenger", External: "Page id",
			ExternalHint: "It stands in the page's settings.", Credentials: token,
			Before: before("page"), After: after("message_echoes"), Window: day,
		},
		{
			Value: "photo_dm", Label: "Social platform: photo direct messages", Like: "Instagram", External: "Account id",
			ExternalHint: "The id of the professional account, not its name.", Credentials: token,
			Before: before("account"), After: after("message_echoes"), Window: day,
		},
		{
			Value: "chat_app", Label: "Social platform: chat app", Like: "WhatsApp", External: "Phone number id",
			ExternalHint: "The platform's id of the number, not the number itself.", Credentials: token,
			Before: before("number"), After: after("smb_message_echoes"),
			Window: "Free text until 24 hours after the customer wrote; afterwards only approved templates.",
		},
	}
}

func shopTypes() []channelType {
	shop := []string{"Authorize the operator's application for the shop, and note both tokens."}
	return []channelType{
		{
			Value: "localchat", Label: "Local chat platform", Like: "Zalo", External: "Official account id",
			ExternalHint: "The OA id.", Credentials: bothTokens(),
			Before: []string{"Authorize the operator's application for the official account, and note both tokens."},
			After: []string{
				"Once for the application (the operator has done it if another channel works): webhook address %u",
				"Its events: user_send_text and, to have it noticed when a person answers from the platform's app, oa_send_text.",
			},
			Window: "Free text until 7 days after the customer wrote.",
		},
		{
			Value: "market_a", Label: "Marketplace A", Like: "Shopee", External: "Shop id",
			ExternalHint: "A number.", Credentials: bothTokens(), Before: shop,
			After: []string{
				"Once for the application, in the partner console: push address exactly %u",
				"Switch on the push “webchat”.",
				"The marketplace punishes shops for phone numbers, mail addresses and links in messages: say so in the assistant's instructions.",
			},
			Window: "Free text at any time.",
		},
		{
			Value: "market_b", Label: "Marketplace B", Like: "Lazada", External: "Shop id",
			ExternalHint: "Also called seller id.", Credentials: bothTokens(), Before: shop,
			After: []string{
				"Once for the application, in its console: push address %u",
				"Switch on the message type “IM”.",
			},
			Window: "The platform decides until when it takes free text.",
		},
	}
}

func widgetType() channelType {
	return channelType{
		Value: widgetTypeName, Label: "Web widget",
		Before: []string{"Choose the sites on which the chat may appear. It is refused everywhere else."},
		After:  []string{"Paste the snippet into your pages, before </body>. A data-title in it names the chat."},
		Window: "An answer is shown as long as the visitor's page is open, and when they come back.",
	}
}

// channelTypeOf finds a type by the API's name; ok is false for one that isn't known.
func channelTypeOf(value string) (channelType, bool) {
	for _, one := range channelTypes() {
		if one.Value == value {
			return one, true
		}
	}
	return channelType{Value: value, Label: value}, false
}
