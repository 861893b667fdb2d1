package dashboard

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// shownMessages is the number of messages on a page of a conversation.
const shownMessages = "100"

// messageRow is one message of a conversation.
type messageRow struct {
	*api.MessageObject

	// Files are the files of the object, with their addresses.
	Files []fileRow
	// Resend is the button of a message that wasn't delivered, or perhaps not.
	Resend form
}

// fileRow is a file that a customer sent.
type fileRow struct {
	*api.FileObject

	// Address has the content of a stored file.
	Address string
}

// author returns in words who wrote a message.
func author(m *api.MessageObject) ui.Text {
	switch {
	case m.Author == "customer":
		return "Customer"
	case m.Author == "assistant":
		return "Assistant"
	case m.State == nil:
		return "One of you, in the platform's app"
	default:
		return "One of you"
	}
}

// The states of a delivery that a person can act on.
const (
	deliveryFailed  = "failed"
	deliveryUnclear = "delivery_unknown"
)

// deliveryTexts name the states of a delivery.
var deliveryTexts = map[string]ui.Text{
	"pending":       "Waits to be sent",
	"sending":       "Is being sent",
	"sent":          "Sent",
	deliveryFailed:  "Not delivered",
	deliveryUnclear: "Unclear",
	"discarded":     "Discarded, not sent",
}

// undelivered returns in words why a message was not delivered, or not yet. It is empty when the message was delivered.
func undelivered(m *api.MessageObject) ui.Text {
	switch state := text(m.State); {
	case state == deliveryFailed, state == deliveryUnclear:
		return ui.Text(codes.Of(text(m.Code)).Message)
	case state == "pending" && text(m.Code) == codes.NeedsReauth:
		return "The channel must be reconnected. The message goes out by itself afterwards."
	}
	return ""
}

// fileLabel names a file.
func fileLabel(say *ui.Printer, f *api.FileObject) string {
	return cmp.Or(text(f.Name), say.T(cmp.Or(fileKinds[f.Kind], ui.Text("File"))))
}

// fileSize returns the size of a file for people.
func fileSize(say *ui.Printer, bytes *int64) string {
	const kilo, mega = 1 << 10, 1 << 20
	switch {
	case bytes == nil:
		return ""
	case *bytes < mega:
		return say.Tf("%d KB", max(1, *bytes/kilo))
	}
	return say.Tf("%.1f MB", float64(*bytes)/mega)
}

// missingFile returns in words why a file has no content here.
func missingFile(say *ui.Printer, f *api.FileObject) string {
	code := text(f.Code)
	switch {
	case f.State == "waiting" && code == "media_storage_full":
		return say.T(fileTexts[code]) + " " + say.T("It is fetched when there is room, if the platform still has it.")
	case f.State == "waiting":
		return say.T("It is being fetched from the platform.")
	}
	return say.T(cmp.Or(fileTexts[code], ui.Text("It could not be fetched.")))
}

var fileKinds = map[string]ui.Text{
	"image": "Picture", "audio": "Voice or sound", "video": "Video", "sticker": "Sticker", "file": "File",
}

// fileTexts explain why a file wasn't stored (docs/conversations.md#files).
var fileTexts = map[string]ui.Text{
	"media_too_large":    "It has more than 8 MB. Look at it in the platform's own app.",
	"media_type":         "What the platform sent is no such file.",
	"media_expired":      "The platform no longer had it when it was fetched. Ask the customer to send it again.",
	"media_refused":      "Its address is none that may be called.",
	"media_unavailable":  "It could not be fetched for too long. Look at it in the platform's own app.",
	"media_replaced":     "It made room for newer files of this customer. Look at it in the platform's own app.",
	"media_storage_full": "Your files take all of the space that there is for them. Erase conversations, or keep them for a shorter time.",
}

type conversationData struct {
	Conversation             *api.ConversationObject
	ChannelName, ChannelPath string
	// Messages are oldest first.
	Messages []messageRow
	// Older is the address of earlier messages, empty without any. Newest is the address of the newest, empty on their page.
	Older, Newest string
	// Live is the address of the messages' live part, empty for older messages, which don't change.
	Live, LiveState string

	HandOver, HandBack, Retry, Dismiss, Block, Unblock, Answer, Delete form
	// Template is the address at which a template is sent, empty if the platform has no templates.
	Template string
	// Export is the address of the file with all data about the customer.
	Export string
	// Draft is the proposed answer, nil if there is none.
	Draft *draftData
	// File sends a file. It has no id on channels that don't accept files.
	File form
}

func (d *conversationData) PageTitle() string { return customer(d.Conversation) }

var conversationPage = page{
	Path: conversationsPath + "/{id}", Template: "conversation", Title: "Conversation", Section: conversationsPath,
	Fragments: []string{"message-list", "conversation-state"},
	Show:      showConversation,
	Relays: []relay{{Method: http.MethodGet, Name: "export", Do: func(req *pageRequest) error {
		return req.pass(http.MethodGet, "/conversations/"+req.ID()+"/export", "", nil)
	}}, {Method: http.MethodGet, Name: "file", Do: func(req *pageRequest) error {
		id := req.Query("id")
		if !handlers.WellFormedID(id) {
			return handlers.NotFound("%s", ui.Text("There is no such file."))
		}
		return req.pass(http.MethodGet, "/conversations/"+req.ID()+"/files/"+id, "", nil)
	}}},
	Actions: []action{
		{Verb: "messages", Form: "message-create", Done: "Your answer is on its way.", Do: func(req *pageRequest) (string, error) {
			return req.Path(), req.explained(req.sendMessage(values{"text": req.Text("text")}))
		}},
		{Verb: "files", Form: "file-create", Done: "The file is on its way.", MaxBody: maxSentUpload, Do: sendFile},
		button("conversation-handover", "", api.HandOver, "The conversation is yours. The assistant is silent in it."),
		button("conversation-handback", "", api.HandBack, "The assistant answers again."),
		button("conversation-retry", "", api.RetryConversation, "The assistant tries again."),
		button("conversation-dismiss", "", api.DismissConversation, "Nobody needs to look at this conversation any more."),
		{Verb: "draft", Form: "draft-send", Done: "The answer is on its way.", Do: sendDraft},
		button("draft-discard", "", api.DiscardDraft, "The proposed answer was discarded."),
		{Verb: "resend", Form: "message-resend", Done: "The message is sent again.", Do: func(req *pageRequest) (string, error) {
			in := values{"id": req.ID(), "messageId": req.Text("messageId"), "mayArriveTwice": req.Sent.Flag("mayArriveTwice")}
			return req.Path(), req.explained(req.Run(api.ResendMessage, in))
		}},
		button("conversation-block", "", api.BlockCustomer, "The customer is blocked. The assistant answers nothing of theirs."),
		button("conversation-unblock", "", api.UnblockCustomer, "The assistant answers what comes next."),
		button("conversation-delete", conversationsPath, api.DeleteConversation, "The customer was erased."),
	},
}

func showConversation(req *pageRequest) (any, error) {
	c := site.Read(req, api.GetConversation, values{"id": req.ID()})
	data := conversationData{Conversation: c}
	req.readMessages(&data)
	on, err := site.Ask(req, api.GetChannel, values{"id": c.ChannelID})
	switch {
	case err == nil:
		data.ChannelName, data.ChannelPath = on.Name, channelsPath+"/"+on.ID
		kind, _ := req.channelTypeOf(on.Type)
		if kind.AfterWindow == platforms.TemplateRequired {
			data.Template = conversationsPath + "/" + c.ID + "/template"
		}
		if len(kind.Files) > 0 {
			data.File = req.Form(sendFileForm(conversationsPath+"/"+c.ID, kind.Files))
		}
	case handlers.AsError(err).Code != errcode.NotFound: // the channel was deleted, and the conversation goes with it
		return nil, err
	}
	here := conversationsPath + "/" + c.ID
	data.LiveState = req.live("conversation-state")
	if text(c.Attention) == codes.Draft {
		req.addDraft(&data, here)
	} else if c.Attention != nil {
		data.Retry = req.button("conversation-retry", "", "Try again", "")
		data.Dismiss = req.button("conversation-dismiss", "", "Dismiss", "Leave what stands here unanswered? The customer gets no answer to it.")
	}
	switch c.State { // a form that isn't shown must not hide the message of its refusal
	case answeredByAssistant:
		data.HandOver = req.button("conversation-handover", "", "Take over", "")
		if paused(c) {
			data.HandBack = req.button("conversation-handback", "", "Let the assistant go on", "")
		}
	case answeredByHuman:
		data.HandBack = req.button("conversation-handback", "", "Hand back to the assistant", "")
	}
	data.Answer = req.Form(once(answerForm.Of(here+"/messages", nil)))
	if c.BlockedAt == nil {
		data.Block = req.button("conversation-block", "", "Block the customer",
			req.Phrase("Block %s? The assistant answers nothing of theirs until you unblock them. What they write is kept.", customer(c)))
	} else {
		data.Unblock = req.button("conversation-unblock", "", "Unblock the customer", "")
	}
	data.Export = here + "/export"
	data.Delete = req.button("conversation-delete", "", "Erase everything",
		req.Phrase("Erase everything that is stored about %s, with all messages? This can't be undone. At the platform it stays.", customer(c)))
	return &data, nil
}

// readMessages reads the newest messages, or those before the cursor in the address.
func (req *pageRequest) readMessages(data *conversationData) {
	in := req.Cursor()
	in["id"], in["order"], in["limit"] = req.ID(), "newest", shownMessages
	messages := site.Read(req, api.ListMessages, in)
	here := conversationsPath + "/" + req.ID()
	for i := range messages.Data {
		m := &messages.Data[len(messages.Data)-1-i]
		row := messageRow{MessageObject: m}
		switch text(m.State) {
		case deliveryFailed:
			row.Resend = req.button("message-resend", m.ID, "Send again", "", "messageId", m.ID)
		case deliveryUnclear: // the answer to the question goes along
			row.Resend = req.button("message-resend", m.ID, "Send again", "Send it again? The customer may get it twice.",
				"messageId", m.ID, "mayArriveTwice", "true")
			row.Resend.Danger = false
		}
		for k := range m.Files {
			row.Files = append(row.Files, fileRow{&m.Files[k], here + "/file?" + url.Values{"id": {m.Files[k].ID}}.Encode()})
		}
		data.Messages = append(data.Messages, row)
	}
	if messages.NextCursor != nil {
		data.Older = here + "?" + url.Values{"cursor": {*messages.NextCursor}}.Encode()
	}
	if req.Query("cursor") != "" {
		data.Newest = here
	} else {
		data.Live = req.live("message-list")
	}
}

// explained returns a refusal to send with words for people, where the operation's are for programs.
func (req *pageRequest) explained(err error) error {
	if err == nil {
		return nil
	}
	refused := req.RefusalOf(err)
	refused.Message = cmp.Or(codes.All[string(refused.Code)].Message, refused.Message)
	return refused
}

var answerForm = ui.FormOf(
	api.SendMessage, form{ID: "message-create", Submit: "Send to the customer"},
	field{Name: "text", Kind: ui.AreaField, Label: "Your answer", Required: true, Rows: 4, Hint: "A long one is sent in several parts."},
)

// onceName is the hidden field of a form by which the customer gets the message once, although a double click sends the form twice.
const onceName = "once"

// once returns the form with the field [onceName].
func once(f form) form {
	f.Fields = append([]field{{Name: onceName, Kind: ui.HiddenField, Value: rand.Text()}}, f.Fields...)
	return f
}

// sendMessage sends the form's message to the customer. Its Idempotency-Key is made of the form and the message, because a person may go
// back to a form and send another text with it.
func (req *pageRequest) sendMessage(message values) error {
	if once := req.Text(onceName); once != "" {
		text, err := json.Marshal(message)
		if err != nil {
			return fmt.Errorf("encoding a message: %w", err)
		}
		sum := sha256.Sum256(text)
		message[handlers.HeaderIdempotencyKey] = once + "-" + hex.EncodeToString(sum[:16])
	}
	message["id"] = req.ID()
	return req.Run(api.SendMessage, message)
}

const (
	// maxSentFile is the largest file of the API, in bytes; maxSentUpload the largest form with one.
	maxSentFile   = 8 << 20
	maxSentUpload = maxSentFile + 64<<10
)

// sendFileForm sends a file of some kinds to the customer.
func sendFileForm(here string, kinds []string) form {
	accept := ""
	if !slices.Contains(kinds, platforms.FileOther) {
		families := make([]string, len(kinds))
		for i, kind := range kinds {
			families[i] = kind + "/*"
		}
		accept = strings.Join(families, ",")
	}
	return once(form{ID: "file-create", Action: here + "/files", Submit: "Send the file", Fields: []field{{
		Name: "file", Kind: ui.FileField, Label: "A file for the customer", Accept: accept, Hint: "At most 8 MiB.",
	}}})
}

// sendFile sends the form's file to the customer.
func sendFile(req *pageRequest) (string, error) {
	name, content, chosen := req.File("file")
	switch {
	case !chosen || len(content) == 0:
		return "", site.RefuseField("file", "Choose a file that isn't empty.")
	case len(content) > maxSentFile:
		return "", site.RefuseField("file", "The file has more than 8 MiB.")
	}
	err := req.sendMessage(values{"file": object{"name": name, "content": base64.StdEncoding.EncodeToString(content)}})
	if err == nil {
		return req.Path(), nil
	}
	if refused := req.RefusalOf(err); strings.HasPrefix(refused.Field, "file") {
		return "", site.RefuseField("file", ui.Text(refused.Message))
	}
	return "", req.explained(err)
}

// draftData is the part of a conversation's page with a proposed answer.
type draftData struct {
	*api.DraftObject

	Send, Discard form
}

var draftForm = ui.FormOf(
	api.SendDraft, form{ID: "draft-send", Submit: "Send to the customer"},
	field{
		Name: "text", Kind: ui.AreaField, Label: "The assistant proposes", Required: true, Rows: 8,
		Hint: "Send it as it is, or change it first. When the customer writes again, a new proposal takes its place.",
	},
)

// addDraft loads the pending draft. The draft may have been sent or discarded since the conversation was read.
func (req *pageRequest) addDraft(data *conversationData, here string) {
	drafts := site.Read(req, api.ListDrafts, values{"id": req.ID()})
	if len(drafts.Data) == 0 {
		return
	}
	pending := &drafts.Data[0]
	send := draftForm.Of(here+"/draft", pending)
	send.Fields = append([]field{{Name: "draftId", Kind: ui.HiddenField, Value: pending.ID}}, send.Fields...)
	data.Draft = &draftData{
		DraftObject: pending, Send: req.Form(send),
		Discard: req.button("draft-discard", "", "Discard",
			"Discard the proposed answer? The customer gets no answer from the assistant.", "draftId", pending.ID),
	}
}

// sendDraft sends a draft: an unchanged one in the messages of the proposal, a changed one with the person's text.
func sendDraft(req *pageRequest) (string, error) {
	drafts, err := site.Ask(req, api.ListDrafts, values{"id": req.ID()})
	if err != nil {
		return "", err
	}
	in := values{"id": req.ID(), "draftId": req.Text("draftId")}
	if typed := req.Text("text"); len(drafts.Data) == 0 || drafts.Data[0].Text != typed {
		in["text"] = typed
	}
	return req.Path(), req.explained(req.Run(api.SendDraft, in))
}
