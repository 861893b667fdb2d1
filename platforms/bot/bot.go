// Package bot is the adapter to the bot platform, by default Telegram's Bot API. Every bot is a channel with a webhook address
// and a secret of its own.
package bot

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// Type is the channel type of a bot.
const Type platforms.Type = "bot"

// Names of the credential fields.
const (
	secretToken = "secretToken"
	botToken    = "botToken"
)

// maxSecretToken is the greatest length of secret_token in the platform's method setWebhook, in characters.
const maxSecretToken = 256

// Driver is the [platforms.Driver] of the bot platform.
type Driver struct{}

// Describe implements [platforms.Driver].
func (Driver) Describe() *platforms.Description {
	return &platforms.Description{
		Name: "bot", Deliveries: "Updates of the bot platform", ChannelWebhooks: true,
		SignatureHeader: verify.BotHeader, SignatureHelp: "The secret token that was given when the webhook was registered.",
		Channels: []platforms.ChannelType{{
			Type: Type, Label: "Bot platform", Like: "Telegram",
			Credentials: []platforms.CredentialField{
				{
					Name: botToken, Label: "Bot token", Check: checkBotToken,
					Hint: "The platform gave it to you with the bot: digits, a colon, and a secret.",
				},
				{
					Name: secretToken, Label: "Secret for deliveries", MaxLength: maxSecretToken, Proposed: true, Check: checkSecretToken,
					Hint: "The platform sends it with each delivery. Take this one, or 1 to 256 letters, digits, _ and - of your own, " +
						"and note it: it is never shown again.",
				},
			},
			// The platform counts UTF-16 units, after it has parsed entities.
			Limit: platforms.Limit{Most: 4096, Unit: platforms.UTF16Units},
			// About 30 messages a second for all chats, and 1 in each, with short bursts (core.telegram.org/bots/faq, "My bot is hitting
			// limits"): no second has more than 5 and 20 of ours.
			Pace:         platforms.Pace{Every: 50 * time.Millisecond, Burst: 5},
			CustomerPace: platforms.Pace{Every: time.Second, Burst: 3},
			TypingFor:    5 * time.Second,
			Files:        platforms.FileKinds(),
			Before: []string{
				"Make the bot at the platform and note its token.",
				"Note the secret below, and connect the channel.",
			},
			After: []string{
				"Call the platform's method setWebhook with url = %u",
				"In the same call give secret_token = the secret that you noted.",
				`In the same call give allowed_updates = ["message", "edited_message", "my_chat_member"], so that only these updates are sent.`,
				"Write to the bot from a private chat: the conversation appears here. Groups are not answered.",
			},
			WindowHelp: "The bot can always write to a person who has written to it.",
		}},
	}
}

// New implements [platforms.Driver].
func (Driver) New(config *platforms.Config) (platforms.Platform, error) {
	base, err := config.Base("https://api.telegram.org", "api_base")
	if err != nil {
		return nil, fmt.Errorf("api_base: %w", err)
	}
	return &bot{client: config.Client, base: base, header: config.Options["header"]}, nil
}

type bot struct {
	client *platforms.Client
	base   *url.URL
	header string
}

var (
	_ platforms.Driver         = Driver{}
	_ platforms.Platform       = (*bot)(nil)
	_ platforms.ChannelSecrets = (*bot)(nil)
	_ platforms.MediaSource    = (*bot)(nil)
	_ platforms.Signaler       = (*bot)(nil)
	_ platforms.FileSender     = (*bot)(nil)
)

func checkSecretToken(s string) string {
	if len(s) > maxSecretToken {
		return fmt.Sprintf("has %d characters, at most %d are allowed", len(s), maxSecretToken)
	}
	if !platforms.IsWord(s) {
		return "may only contain A-Z, a-z, 0-9, _ and -"
	}
	return ""
}

func checkBotToken(s string) string {
	id, secret, _ := strings.Cut(s, ":")
	if len(s) > platforms.MaxCredential || !platforms.IsDigits(id) || !platforms.IsWord(secret) {
		return "is not of the form <bot id>:<secret>, with digits before the colon and A-Z, a-z, 0-9, _ and - behind it"
	}
	return ""
}

func (b *bot) VerifyChannel(header http.Header, credentials platforms.Credentials) error {
	return verify.Bot(header, b.header, credentials[secretToken])
}

// Send calls sendMessage. A message id is unique only within its chat, so the returned id is "<chat.id>:<message_id>", as in an
// Inbound.
func (b *bot) Send(ctx context.Context, out *platforms.Outgoing) (string, error) {
	var result sentMessage
	r, err := b.call(ctx, out.Credentials, "/sendMessage", &platforms.Request{JSON: struct {
		destination

		Text string `json:"text"`
	}{destinationOf(out.Address), out.Text}}, &result)
	return result.id(out, r, err)
}

// maxPhoto is the greatest size, in bytes, of a file that the platform accepts as a photo. It scales photos down.
const maxPhoto = 10 << 20

// SendFile implements [platforms.FileSender]. It sends still pictures as photos and everything else unchanged
// (core.telegram.org/bots/api#sending-files).
func (b *bot) SendFile(ctx context.Context, out *platforms.Outgoing, file *platforms.File) (string, error) {
	method, name := "/sendDocument", "document"
	if (file.MediaType == "image/jpeg" || file.MediaType == "image/png") && len(file.Content) <= maxPhoto {
		method, name = "/sendPhoto", "photo"
	}
	chat, topic, _ := strings.Cut(out.Address, ":")
	parts := []platforms.Part{{Name: "chat_id", Content: []byte(chat)}}
	if topic != "" {
		parts = append(parts, platforms.Part{Name: "message_thread_id", Content: []byte(topic)})
	}
	parts = append(parts, platforms.Part{Name: name, FileName: file.Name, MediaType: file.MediaType, Content: file.Content})
	var result sentMessage
	r, err := b.call(ctx, out.Credentials, method, &platforms.Request{Parts: parts}, &result)
	return result.id(out, r, err)
}

// sentMessage is a message that the platform has accepted.
type sentMessage struct {
	MessageID platforms.Word `json:"message_id"`
	Chat      struct {
		ID platforms.Word `json:"id"`
	} `json:"chat"`
}

// id returns the id of the message in the form of Send.
func (m *sentMessage) id(out *platforms.Outgoing, r *platforms.Response, err error) (string, error) {
	id, err := r.ID(m.MessageID, err)
	if err != nil {
		return "", err
	}
	chat, _, _ := strings.Cut(out.Address, ":")
	return cmp.Or(string(m.Chat.ID), chat) + ":" + id, nil
}

// Signal implements [platforms.Signaler]. Ordinary bots can't mark messages as read.
func (b *bot) Signal(ctx context.Context, signal *platforms.Signal) error {
	var done bool
	_, err := b.call(ctx, signal.Credentials, "/sendChatAction", &platforms.Request{JSON: struct {
		destination

		Action string `json:"action"`
	}{destinationOf(signal.Address), "typing"}}, &done)
	return err
}

// destination is where a message goes: a chat, and one of its topics if the customer has topics in their private chat with the
// bot. An answer without the topic would appear in the general topic.
type destination struct {
	Chat  any         `json:"chat_id"` // a number, or the @name of a public chat
	Topic json.Number `json:"message_thread_id,omitempty"`
}

// destinationOf returns the destination of an address, "<chat.id>" or "<chat.id>:<message_thread_id>".
func destinationOf(address string) destination {
	chat, topic, _ := strings.Cut(address, ":")
	to := destination{Chat: chat, Topic: json.Number(topic)}
	if digits := strings.TrimPrefix(chat, "-"); platforms.IsDigits(digits) && digits[0] != '0' {
		to.Chat = json.Number(chat)
	}
	return to
}

// Identify returns the id of the bot.
func (b *bot) Identify(ctx context.Context, channel *platforms.Channel) ([]string, error) {
	var me struct {
		ID platforms.Word `json:"id"`
	}
	r, err := b.call(ctx, channel.Credentials, "/getMe", &platforms.Request{JSON: struct{}{}}, &me)
	id, err := r.ID(me.ID, err)
	return []string{id}, err
}

// Locate implements [platforms.MediaSource]. The path of the file also contains the token. The platform serves files of up to 20
// MB (core.telegram.org/bots/api#getfile).
func (b *bot) Locate(ctx context.Context, channel *platforms.Channel, id string) (platforms.Location, error) {
	var file struct {
		Path  string `json:"file_path"`
		Bytes int64  `json:"file_size"`
	}
	r, err := b.call(ctx, channel.Credentials, "/getFile", &platforms.Request{JSON: struct {
		FileID string `json:"file_id"`
	}{id}}, &file)
	if err != nil {
		return platforms.Location{}, err
	}
	if !isFilePath(file.Path) {
		return platforms.Location{}, platforms.Fail(platforms.Unknown, r.Error("", ""))
	}
	address := b.base.JoinPath("file", "bot"+channel.Credentials[botToken], file.Path)
	return platforms.Location{Address: address.String(), Own: true, Bytes: file.Bytes}, nil
}

// isFilePath reports whether a path is below the files of a bot, such as photos/file_1.jpg. A server of the operator's own may
// return a path on its disk.
func isFilePath(path string) bool {
	plain := platforms.ConsistsOf(path, func(b byte) bool {
		return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("/._-", b) >= 0
	})
	return plain && path[0] != '/' && !strings.Contains(path, "..")
}

// call calls a method with the body of a request and reads its result. The path contains the token, as the platform requires.
func (b *bot) call(
	ctx context.Context, credentials platforms.Credentials, method string, request *platforms.Request, result any,
) (*platforms.Response, error) {
	token := credentials[botToken]
	if problem := checkBotToken(token); problem != "" {
		return nil, platforms.Unauthorized(false, &platforms.FieldError{Field: botToken, Problem: problem})
	}
	request.Name, request.Base, request.Method, request.Path = string(Type), b.base, http.MethodPost, "/bot"+token+method
	r, failure := b.client.Do(ctx, request)
	if failure != nil {
		return nil, failure
	}
	return r, read(r, result)
}

// read reads {"ok":true,"result":…} into result, or classifies the error.
func read(r *platforms.Response, result any) error {
	var body struct {
		OK         *bool           `json:"ok"`
		Result     json.RawMessage `json:"result"`
		ErrorCode  platforms.Word  `json:"error_code"`
		Parameters struct {
			RetryAfter platforms.Word `json:"retry_after"`
		} `json:"parameters"`
	}
	if !r.Decode(&body) || body.OK == nil {
		return r.Unreadable(false)
	}
	if *body.OK {
		if json.Unmarshal(body.Result, result) != nil {
			return r.NoID()
		}
		return nil
	}
	cause := r.Error(string(body.ErrorCode), "")
	switch body.ErrorCode {
	case "401", "404": // unknown tokens are "Not Found"
		return platforms.Unauthorized(false, cause)
	case "403": // blocked, deactivated, kicked, or never written to the bot
		return platforms.Fail(platforms.CustomerBlocked, cause)
	case "429":
		return platforms.TooMany(cmp.Or(platforms.Seconds(string(body.Parameters.RetryAfter)), r.RetryAfter()), cause)
	case "500", "502", "503", "504":
		return platforms.RetryLater(r.RetryAfter(), cause)
	}
	return r.Unlisted(false, cause)
}
