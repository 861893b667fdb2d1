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
	message := destinationOf(out.Address)
	message["text"] = out.Text
	var result sentMessage
	r, err := b.call(ctx, out.Credentials, "/sendMessage", &platforms.Request{JSON: message}, &result)
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
	action := destinationOf(signal.Address)
	action["action"] = "typing"
	_, err := b.call(ctx, signal.Credentials, "/sendChatAction", &platforms.Request{JSON: action}, new(bool))
	return err
}

// destinationOf returns the parameters of a call that say where a message goes, by an address "<chat.id>" or
// "<chat.id>:<message_thread_id>": a chat, which is a number or the @name of a public chat, and one of its topics if the customer has topics
// in their private chat with the bot. An answer without the topic would appear in the general topic.
func destinationOf(address string) map[string]any {
	chat, topic, _ := strings.Cut(address, ":")
	to := map[string]any{"chat_id": chat}
	if digits := strings.TrimPrefix(chat, "-"); platforms.IsDigits(digits) && digits[0] != '0' {
		to["chat_id"] = json.Number(chat)
	}
	if topic != "" {
		to["message_thread_id"] = json.Number(topic)
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
	r, err := b.call(ctx, channel.Credentials, "/getFile", &platforms.Request{JSON: map[string]string{"file_id": id}}, &file)
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

// Extract reads one update of the bot platform (core.telegram.org/bots/api, Update): a message in a private chat, its new text,
// or the customer's block of the bot. Groups, other bots, reactions and all other updates are skipped.
func (*bot) Extract(body []byte) ([]platforms.Inbound, error) {
	update, err := platforms.ParseObject(body)
	if err != nil {
		return nil, err
	}
	found := platforms.Collect(len(body))
	found.ByChannel()
	var m message
	m.read(update.Member("message"))
	in := m.inbound()
	if in.Kind != 0 {
		found.Attach(&in, m.attachment())
	}
	found.Add(in)
	var edited message
	edited.read(update.Member("edited_message"))
	found.Add(edited.inbound().AsEdited())
	found.Add(blocked(update.Member("my_chat_member")))
	return found.All(), nil
}

type message struct {
	id        string
	from      sender
	chat      chat
	topic     string
	isTopic   bool // topic belongs to the chat
	date      time.Time
	text      string
	caption   string
	mediaRank int
	media     platforms.Value // of the member with mediaRank
}

// mediaMembers are the members of a message that name its content, with our names for them. The first member that is present
// counts: an animation, for example, also has a document. An album arrives as a message for each picture, of which one has the
// caption; only that message becomes a Text and is answered.
var mediaMembers = []struct{ member, media string }{
	{"photo", "image"},
	{"video", "video"},
	{"video_note", "video"},
	{"animation", "animation"},
	{"audio", "audio"},
	{"voice", "audio"},
	{"document", "file"},
	{"sticker", "sticker"},
	{"dice", "sticker"},
	{"location", "location"}, // venues have it as well
	{"contact", "contact"},
	{"poll", "poll"},
	{"story", "attachment"},
	{"paid_media", "attachment"},
}

func (m *message) read(value platforms.Value) {
	m.mediaRank = len(mediaMembers)
	var from platforms.Value
	value.Read([]platforms.Field{
		{Name: "message_id", ID: &m.id},
		{Name: "from", Value: &from},
		{Name: "id", Of: "chat", ID: &m.chat.id},
		{Name: "type", Of: "chat", Word: &m.chat.kind},
		{Name: "message_thread_id", ID: &m.topic},
		{Name: "is_topic_message", Flag: &m.isTopic},
		{Name: "date", Time: &m.date},
		{Name: "text", Text: &m.text},
		{Name: "caption", Text: &m.caption},
	})
	from.Read([]platforms.Field{
		{Name: "is_bot", Flag: &m.from.isBot},
		{Name: "first_name", Person: &m.from.first},
		{Name: "last_name", Person: &m.from.last},
		{Name: "username", Person: &m.from.username},
	})
	for w := value.Members(); w.Next(); {
		for rank := range mediaMembers[:m.mediaRank] {
			if w.Key() == mediaMembers[rank].member && w.Value.Given() {
				m.mediaRank, m.media = rank, w.Value
				break
			}
		}
	}
}

func (m *message) inbound() platforms.Inbound {
	if !m.chat.private() || m.from.isBot {
		return platforms.Inbound{}
	}
	in := platforms.Inbound{Type: Type, Conversation: m.chat.id, Address: m.chat.id, CustomerName: m.from.name(), SentAt: m.date}
	if m.isTopic && platforms.IsDigits(m.topic) {
		in.Address += ":" + m.topic
	}
	if m.id != "" {
		in.MessageID = m.chat.id + ":" + m.id // the platform's id is unique only within its chat
	}
	media := "" // as in service messages, such as a new title of the chat
	if m.mediaRank < len(mediaMembers) {
		media = mediaMembers[m.mediaRank].media
	}
	return in.WithContent(platforms.FirstText(m.text, m.caption), media)
}

// attachment returns the file of the message. It is empty for a message without a file, and for animated stickers and dice, which
// have a format of their own.
func (m *message) attachment() platforms.Attachment {
	if m.mediaRank >= len(mediaMembers) {
		return platforms.Attachment{}
	}
	a := platforms.Attachment{Kind: mediaMembers[m.mediaRank].media}
	switch member := mediaMembers[m.mediaRank].member; member {
	case "photo":
		a.Reference = largest(m.media)
	case "animation":
		a.Kind = "video"
		a.Reference = m.media.Member("file_id").Reference()
	case "video", "video_note", "audio", "voice", "document", "sticker":
		a.Reference = m.media.Member("file_id").Reference()
	}
	a.Name = m.media.Member("file_name").Name()
	return a
}

// largest returns the id of the largest size of a photo that may be fetched. The sizes come in rising order. A photo has up to 10
// MB, and all sizes but the original are far smaller than mostFetched.
func largest(sizes platforms.Value) (id string) {
	for w := sizes.Elements(); w.Next(); {
		bytes := w.Value.Member("file_size").ID()
		if id == "" || len(bytes) < len(mostFetched) || len(bytes) == len(mostFetched) && bytes <= mostFetched {
			id = w.Value.Member("file_id").Reference()
		}
	}
	return id
}

// mostFetched is the greatest number of bytes of a file that the product fetches, in decimal digits.
const mostFetched = "8388608"

// blocked reads a change of our membership in a chat. In a private chat it means that the customer blocked the bot.
func blocked(value platforms.Value) platforms.Inbound {
	var chat chat
	var date time.Time
	status := ""
	value.Read([]platforms.Field{
		{Name: "id", Of: "chat", ID: &chat.id},
		{Name: "type", Of: "chat", Word: &chat.kind},
		{Name: "date", Time: &date},
		{Name: "status", Of: "new_chat_member", Word: &status},
	})
	if !chat.private() || status != "kicked" {
		return platforms.Inbound{}
	}
	return platforms.Inbound{Type: Type, Kind: platforms.Blocked, Conversation: chat.id, Address: chat.id, SentAt: date}
}

type chat struct{ id, kind string }

// private reports whether the chat has only one customer. Without a type the id decides: the platform gives positive numbers to
// people and negative ones to groups and channels.
func (c *chat) private() bool {
	if c.kind != "" {
		return c.kind == "private"
	}
	return c.id != "" && strings.Trim(c.id, "0123456789") == "" && strings.Trim(c.id, "0") != ""
}

type sender struct {
	isBot                 bool
	first, last, username string
}

func (u *sender) name() string {
	if u.first != "" && u.last != "" {
		return platforms.JoinNames(u.first, u.last)
	}
	return platforms.FirstText(u.first, u.last, u.username)
}
