package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Conversations reads and changes conversations, as [inbox.Queue] does. The error is [store.ErrNotFound] for a conversation that
// the organization doesn't have, and [inbox.ErrConversationClosed] for a change, other than deletion, of a conversation after
// its customer has blocked the channel.
type Conversations interface {
	CustomerRights
	OutgoingMessages
	StandingConversations

	Conversations(ctx context.Context, orgID string, filter inbox.ConversationFilter, page store.Page) ([]inbox.Conversation, error)
	Conversation(ctx context.Context, orgID, id string) (inbox.Conversation, error)
	// Messages of both directions, oldest first.
	Messages(ctx context.Context, orgID, conversationID string, page store.Page) ([]inbox.Message, error)
	// LatestMessages are the same, newest first; page.After is the message before which the page begins.
	LatestMessages(ctx context.Context, orgID, conversationID string, page store.Page) ([]inbox.Message, error)
	HandOver(ctx context.Context, actor, orgID, id string) error
	HandBack(ctx context.Context, actor, orgID, id string) error
	// TurnPlaces returns the conversations of turns; ids that are no turn's of the organization are left out.
	TurnPlaces(ctx context.Context, orgID string, turnIDs []string) (map[string]inbox.TurnPlace, error)
}

// CustomerRights are what concerns a customer as a person, as [inbox.Queue] has it.
type CustomerRights interface {
	DeleteConversation(ctx context.Context, actor, orgID, id string) error
	Block(ctx context.Context, actor, orgID, id string) error
	Unblock(ctx context.Context, actor, orgID, id string) error
	// Export writes everything that is stored of a conversation, after begin.
	Export(ctx context.Context, orgID, id string, w io.Writer, begin func()) error
	// File reads a file that a customer sent or received.
	File(ctx context.Context, orgID, conversationID, id string) (media.File, error)
	// WriteFile writes the content of a stored file; after an error w may have got a part.
	WriteFile(ctx context.Context, file *media.File, w io.Writer) error
}

// OutgoingMessages are those to customers, as [inbox.Queue] has them.
type OutgoingMessages interface {
	Drafts(ctx context.Context, orgID, conversationID string) ([]inbox.Draft, error)
	// SendDraft queues a draft as a person's message, once for a key. Nil means no key.
	SendDraft(ctx context.Context, actor, orgID, conversationID, draftID string, parts []string, changed bool, key *inbox.SendKey) (
		sent []inbox.Message, replayed bool, err error)
	DiscardDraft(ctx context.Context, actor, orgID, conversationID, draftID string) error
	// SendAsHuman queues the parts in order, and returns a message for each. SendKeyed does so once for a key, and SentUnder returns the
	// messages that it has sent.
	SendAsHuman(ctx context.Context, actor, orgID, conversationID string, parts []string) ([]inbox.Message, error)
	SendKeyed(ctx context.Context, actor, orgID, conversationID string, parts []string, key inbox.SendKey) ([]inbox.Message, bool, error)
	SentUnder(ctx context.Context, orgID string, key inbox.SendKey) ([]inbox.Message, error)
	// SendTemplate queues a template, once for a key. Nil means no key.
	SendTemplate(ctx context.Context, actor, orgID, conversationID, text string, template []byte, key *inbox.SendKey) ([]inbox.Message, bool, error)
	// SendFile stores a file and queues it, once for a key. Nil means no key. It also returns [media.ErrFull] and
	// [media.ErrBusy].
	SendFile(ctx context.Context, actor, orgID, conversationID string, file *media.Upload, key *inbox.SendKey) ([]inbox.Message, bool, error)
	// Outgoing reads a message that goes to the customer, and Resend queues it again.
	Outgoing(ctx context.Context, orgID, conversationID, messageID string) (inbox.Message, error)
	Resend(ctx context.Context, actor, orgID, conversationID, messageID string, mayArriveTwice bool) error
}

// StandingConversations counts the conversations that wait for people, and retries and dismisses turns that stand, as
// [inbox.Queue] does.
type StandingConversations interface {
	// WaitingForPeople counts the conversations that wait for a person, to [inbox.MaxWaiting].
	WaitingForPeople(ctx context.Context, orgID string) (int, error)
	RetryStanding(ctx context.Context, actor, orgID, id, code string) error
	// DeadTurns reads the turns of all organizations that were given up, and Retry lets one of them run again.
	DeadTurns(ctx context.Context, limit int) ([]inbox.DeadTurn, error)
	// Depth returns how many messages wait, over all organizations.
	Depth(ctx context.Context) (inbox.Depth, error)
	// LongWaits counts the customers who have had no answer since before a moment, by organization, the most customers first.
	LongWaits(ctx context.Context, before int64) ([]inbox.LongWait, error)
	Retry(ctx context.Context, actor, turnID string) error
	Dismiss(ctx context.Context, actor, orgID, id, code string) error
	ForEachStanding(ctx context.Context, actor, orgID string, filter inbox.ConversationFilter, page store.Page,
		act func(ctx context.Context, actor, orgID, id, code string) error) (changed int, last string, err error)
}

// ConversationObject is a conversation as the API shows it, without its messages.
type ConversationObject struct {
	ID             string  `json:"id"`
	ChannelID      string  `json:"channelId"`
	CustomerID     string  `json:"customerId"     doc:"The platform's name of the customer, or of the chat"`
	CustomerName   *string `json:"customerName"`
	State          string  `json:"state"          enum:"assistant,human,closed" doc:"Who answers; closed: the customer has blocked the channel"`
	Attention      *string `json:"attention"      doc:"An error code that says why somebody should look; null: nobody need"`
	PausedUntil    *string `json:"pausedUntil"    format:"date-time" doc:"The agent is silent until then, because a human wrote from the platform's own app"`                         //nolint:lll // a struct tag can't be broken
	BlockedAt      *string `json:"blockedAt"      format:"date-time" doc:"When somebody of the business blocked the customer: the agent answers nothing of theirs; null: nobody has"` //nolint:lll // a struct tag can't be broken
	LastCustomerAt *string `json:"lastCustomerAt" format:"date-time" doc:"When the customer wrote last"`
	// UnansweredSince and HandoverReason are for people who look after waiting conversations.
	UnansweredSince *string `json:"unansweredSince" format:"date-time" doc:"When the first text came that neither the agent nor a person has answered; null: there is none"`                                                                                                                                                         //nolint:lll // a struct tag can't be broken
	HandoverReason  *string `json:"handoverReason"  enum:"person,assistant,words,failures" doc:"Why a person has the conversation, or had it last; person: one took it over; assistant: the agent asked for one; words: the customer wrote one of handoverWords; failures: the agent failed twice in a row; null: none ever had it"` //nolint:lll // a struct tag can't be broken
	CreatedAt       string  `json:"createdAt"      format:"date-time"`
	UpdatedAt       string  `json:"updatedAt"      format:"date-time"`
}

func (d *Deps) showConversation(c *inbox.Conversation) ConversationObject {
	paused := c.PausedUntil
	if paused <= d.Now().UnixMilli() {
		paused = 0
	}
	return ConversationObject{
		ID: c.ID, ChannelID: c.ChannelID, CustomerID: c.CustomerRef, CustomerName: endpoint.OrNull(c.CustomerName),
		State: c.State, Attention: endpoint.OrNull(c.Attention),
		PausedUntil: endpoint.TimestampOrNull(paused), BlockedAt: endpoint.TimestampOrNull(c.BlockedAt),
		LastCustomerAt:  endpoint.TimestampOrNull(c.LastCustomerAt),
		UnansweredSince: endpoint.TimestampOrNull(c.UnansweredSince), HandoverReason: endpoint.OrNull(c.HandoverReason),
		CreatedAt: endpoint.Timestamp(c.CreatedAt), UpdatedAt: endpoint.Timestamp(c.UpdatedAt),
	}
}

// The operations on conversations.
var (
	ListConversations = operation(members("listConversations", "GET /conversations", identity.ConversationsRead,
		"List the conversations, oldest first unless order says otherwise"), (*Deps).listConversations)
	GetConversation = operation(members("getConversation", "GET /conversations/{id}", identity.ConversationsRead,
		"Get a conversation"), (*Deps).getConversation)
	DeleteConversation = operationOf(members("deleteConversation", "DELETE /conversations/{id}", identity.ConversationsWrite,
		"Erase a conversation: everything that is stored about the customer"), (*Deps).deleteConversation)
	ListMessages = operation(members("listMessages", "GET /conversations/{id}/messages", identity.ConversationsRead,
		"List a conversation's messages of both directions, oldest first unless order says otherwise"), (*Deps).listMessages)
	SendMessage = operationOf(reading(maxMessageBody, members("sendMessage", "POST /conversations/{id}/messages", identity.ConversationsWrite,
		"Write to the customer as a human")), (*Deps).sendMessage)
	HandOver = operation(acting(members("handOver", "POST /conversations/{id}/handover", identity.ConversationsWrite,
		"Take a conversation from the agent")), changing(Conversations.HandOver, ""))
	HandBack = operation(acting(members("handBack", "POST /conversations/{id}/handback", identity.ConversationsWrite,
		"Give a conversation back to the agent")), changing(Conversations.HandBack, ""))
	BlockCustomer = operation(acting(members("blockCustomer", "POST /conversations/{id}/block", identity.ConversationsWrite,
		"Let the agent answer nothing of the customer any more")), changing(Conversations.Block, ""))
	UnblockCustomer = operation(acting(members("unblockCustomer", "POST /conversations/{id}/unblock", identity.ConversationsWrite,
		"Let the agent answer the customer again")), changing(Conversations.Unblock, ""))
	ListDrafts = operation(members("listDrafts", "GET /conversations/{id}/drafts", identity.ConversationsRead,
		"List the answers that the agent proposes: one, or none"), (*Deps).listDrafts)
	SendDraft = operationOf(members("sendDraft", "POST /conversations/{id}/drafts/{draftId}/send", identity.ConversationsWrite,
		"Send a proposed answer, as it is or changed"), (*Deps).sendDraft)
	DiscardDraft = operationOf(members("discardDraft", "DELETE /conversations/{id}/drafts/{draftId}", identity.ConversationsWrite,
		"Discard a proposed answer"), (*Deps).discardDraft)
	GetFile = operationOf(containing(fileContent(), members("getFile", "GET /conversations/{id}/files/{fileId}", identity.ConversationsRead,
		"Get a file that the customer sent, or was sent")), (*Deps).getFile)
	ExportConversation = operationOf(containing(exportContent, members("exportConversation", "GET /conversations/{id}/export",
		identity.ConversationsRead, "Get everything that is stored about the customer, as one file")), (*Deps).exportConversation)
	RetryConversation = operation(acting(members("retryConversation", "POST /conversations/{id}/retry", identity.ConversationsWrite,
		"Let the agent answer again what stands unanswered")), changing(func(c Conversations, ctx context.Context, actor, orgID, id string) error {
		return c.RetryStanding(ctx, actor, orgID, id, "")
	}, "No message of this conversation stands unanswered."))
	DismissConversation = operation(acting(members("dismissConversation", "POST /conversations/{id}/dismiss", identity.ConversationsWrite,
		"End a conversation's attention without an answer")), changing(func(c Conversations, ctx context.Context, actor, orgID, id string) error {
		return c.Dismiss(ctx, actor, orgID, id, "")
	}, "This conversation doesn't need attention."))
	ActOnConversations = operation(acting(members("actOnConversations", "POST /conversations", identity.ConversationsWrite,
		"Retry or dismiss a page of the conversations that need attention")), (*Deps).actOnConversations)
	ResendMessage = operation(acting(members("resendMessage", "POST /conversations/{id}/messages/{messageId}/resend", identity.ConversationsWrite,
		"Send a message again that wasn't delivered, or perhaps not")), (*Deps).resendMessage)
)

type conversationQuery struct {
	endpoint.PageQuery

	StandingQuery

	State     string `query:"state" enum:"assistant,human,closed" doc:"Only in this state"`
	Attention bool   `query:"attention" doc:"true: only those at which somebody should look"`
	Waiting   bool   `query:"waiting" doc:"true: only those that wait for a person: at which somebody should look, or that a person has and whose customer has no answer yet"` //nolint:lll // a struct tag can't be broken
	Order     string `query:"order" enum:"oldest,recent" default:"oldest" doc:"recent: whose customer wrote last comes first"`
}

func (d *Deps) listConversations(ctx context.Context, principal *identity.Principal, in *conversationQuery) (*pageOf[ConversationObject], error) {
	filter := inbox.ConversationFilter{
		ChannelID: in.ChannelID, Code: in.Code, State: in.State, Attention: in.Attention, Waiting: in.Waiting,
		Recent: in.Order == "recent",
	}
	return listConversations(ctx, d, principal, in.PageQuery, filter, d.showConversation)
}

// listConversations returns a page of the conversations that a filter selects.
func listConversations[T any](
	ctx context.Context, d *Deps, principal *identity.Principal, in endpoint.PageQuery, filter inbox.ConversationFilter,
	show func(*inbox.Conversation) T,
) (*pageOf[T], error) {
	read := func(ctx context.Context, orgID string, page store.Page) ([]inbox.Conversation, error) {
		return d.Conversations.Conversations(ctx, orgID, filter, page)
	}
	return listRows(ctx, principal, in, read, func(row *inbox.Conversation) string { return row.ID }, show)
}

func (d *Deps) getConversation(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*ConversationObject, error) {
	return getRow(ctx, d, principal, store.OwnedConversations, in.ID, d.Conversations.Conversation, d.showConversation)
}

func (d *Deps) deleteConversation(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, d.change(ctx, principal, store.OwnedConversations, in.ID, d.Conversations.DeleteConversation)
}

// changing returns the method of an operation that changes a conversation and returns it. nothing is the message if there was nothing to change.
func changing(
	change func(c Conversations, ctx context.Context, actor, orgID, id string) error, nothing string,
) func(d *Deps, ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*ConversationObject, error) {
	return func(d *Deps, ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*ConversationObject, error) {
		err := change(d.Conversations, ctx, principal.Actor(), principal.OrgID, in.ID)
		switch {
		case errors.Is(err, inbox.ErrEnded):
			return nil, endpoint.Refusal(errcode.Conflict, err, "%s", nothing)
		case errors.Is(err, inbox.ErrHandedOver):
			return nil, silentAssistant(err)
		case err != nil:
			return nil, d.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
		}
		return d.getConversation(ctx, principal, in)
	}
}

// MessageObject is one line of a conversation as the API shows it.
type MessageObject struct {
	ID      string  `json:"id"`
	Author  string  `json:"author" enum:"customer,assistant,human"`
	Kind    string  `json:"kind"   enum:"text,event,template" doc:"event: something without text, whose text is a short name of it, like image; template: a template with its variables filled in"` //nolint:lll // a struct tag can't be broken
	Text    string  `json:"text"`
	State   *string `json:"state"  enum:"pending,sending,sent,failed,delivery_unknown,discarded" doc:"Of the delivery to the customer; null: it came from the platform"` //nolint:lll // a struct tag can't be broken
	Code    *string `json:"code"   doc:"The error code of a delivery that failed or has to wait"`
	TurnID  *string `json:"turnId" doc:"The same for an answer and the messages that it answers"`
	Handled bool    `json:"handled" doc:"It came in, and nobody has to answer it"`
	Edited  bool    `json:"edited" doc:"It came in, and its sender has changed it since"`
	At      string  `json:"at"     format:"date-time"`

	Files []FileObject `json:"files" nullable:"false" doc:"The files that the customer sent with it, or that it is"`
}

func showMessage(m *inbox.Message) MessageObject {
	return MessageObject{
		ID: m.ID, Author: m.Author, Kind: m.Kind, Text: m.Text, State: endpoint.OrNull(m.State), Code: endpoint.OrNull(m.Code),
		TurnID: endpoint.OrNull(m.TurnID), Handled: m.Handled, Edited: m.Edited, At: endpoint.Timestamp(m.At), Files: showAll(m.Files, showFile),
	}
}

type messagesInput struct {
	endpoint.PathID
	endpoint.PageQuery

	Order string `query:"order" enum:"oldest,newest" default:"oldest" doc:"newest: the newest message comes first"`
}

func (d *Deps) listMessages(ctx context.Context, principal *identity.Principal, in *messagesInput) (*pageOf[MessageObject], error) {
	read := d.Conversations.Messages
	if in.Order == "newest" {
		read = d.Conversations.LatestMessages
	}
	return listRows(ctx, principal, in.PageQuery, func(ctx context.Context, orgID string, page store.Page) ([]inbox.Message, error) {
		messages, err := read(ctx, orgID, in.ID, page)
		return messages, d.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}, func(row *inbox.Message) string { return row.ID }, showMessage)
}

// messageCreation is the body of POST /conversations/{id}/messages.
type messageCreation struct {
	Text     string        `json:"text,omitempty"     minLength:"1" maxLength:"20000" doc:"Either this, template or file"`
	Template *templateWish `json:"template,omitempty" doc:"An approved template, which may be sent at any time"`
	File     *fileWish     `json:"file,omitempty"     doc:"A picture, sound, video or document, where the platform takes it"`
}

type sentMessage struct {
	MessageObject

	Parts []string `json:"parts" doc:"The ids of all messages that the text was split into, this one first"`
}

type messageInput struct {
	endpoint.PathID
	endpoint.KeyHeader

	Body messageCreation
}

func (d *Deps) sendMessage(ctx context.Context, principal *identity.Principal, in *messageInput) (*endpoint.Replayable[sentMessage], error) {
	queue, err := d.queueOf(&in.Body)
	if err != nil {
		return nil, err
	}
	return d.send(ctx, principal, in.ID, &in.KeyHeader, in.content(), func(to *recipient) ([]inbox.Message, bool, error) {
		return queue(ctx, principal, in, to)
	})
}

// recipient is the conversation that a message goes to. The message is sent once for the key, which is nil if the request has none.
type recipient struct {
	conversation inbox.Conversation
	channel      store.Channel
	key          *inbox.SendKey
}

// send calls queue to queue a message with a content. It first checks everything the platform would reject, so a repeated request with a known
// Idempotency-Key doesn't come that far. Its error is public, or one of the queue.
func (d *Deps) send(
	ctx context.Context, principal *identity.Principal, id string, header *endpoint.KeyHeader, content string,
	queue func(to *recipient) (messages []inbox.Message, replayed bool, err error),
) (*endpoint.Replayable[sentMessage], error) {
	key, err := sendKey(header, content)
	if err != nil {
		return nil, err
	}
	conversation, channel, err := d.placeMessage(ctx, principal, id)
	if err != nil {
		return nil, err
	}
	if key != nil {
		sent, err := d.Conversations.SentUnder(ctx, principal.OrgID, *key)
		if err != nil || len(sent) > 0 {
			return d.showSent(ctx, principal, id, sent, true, err)
		}
	}
	messages, replayed, err := queue(&recipient{conversation, channel, key})
	return d.showSent(ctx, principal, id, messages, replayed, err)
}

// queueMessage queues a message with one kind of content.
type queueMessage func(ctx context.Context, principal *identity.Principal, in *messageInput, to *recipient) ([]inbox.Message, bool, error)

// queueOf returns the function that queues the message. It refuses a message that doesn't have exactly one content.
func (d *Deps) queueOf(body *messageCreation) (queueMessage, error) {
	switch {
	case body.Text == "" && body.Template == nil && body.File == nil:
		return nil, handlers.InvalidRequest("text", "text is required, or template or file.")
	case body.Text != "" && body.Template != nil:
		return nil, handlers.InvalidRequest("template", "A message has either text or template.")
	case body.File != nil && (body.Text != "" || body.Template != nil):
		return nil, handlers.InvalidRequest("file", "A message with a file has neither text nor template.")
	case body.File != nil:
		return d.queueFile, nil
	case body.Template != nil:
		return d.queueTemplate, nil
	}
	return d.queueText, nil
}

// queueText queues a text.
func (d *Deps) queueText(ctx context.Context, principal *identity.Principal, in *messageInput, to *recipient) ([]inbox.Message, bool, error) {
	if err := d.checkSendable(to, inbox.KindText); err != nil {
		return nil, false, err
	}
	parts, err := d.splitDraft(&to.channel, in.Body.Text)
	if err != nil {
		return nil, false, err
	}
	if to.key != nil {
		return d.Conversations.SendKeyed(ctx, principal.Actor(), principal.OrgID, in.ID, parts, *to.key)
	}
	messages, err := d.Conversations.SendAsHuman(ctx, principal.Actor(), principal.OrgID, in.ID, parts)
	return messages, false, err
}

// queueTemplate queues a template, which its platform is asked for first.
func (d *Deps) queueTemplate(ctx context.Context, principal *identity.Principal, in *messageInput, to *recipient) ([]inbox.Message, bool, error) {
	if !d.Platforms.HasTemplates(platforms.Type(to.channel.Type)) {
		return nil, false, handlers.InvalidRequest("template", "Channels of type %s have no templates.", to.channel.Type)
	}
	if err := d.checkSendable(to, inbox.KindTemplate); err != nil {
		return nil, false, err
	}
	template, err := d.fillTemplate(ctx, &to.channel, in.Body.Template)
	if err != nil {
		return nil, false, err
	}
	messages, replayed, err := d.Conversations.SendTemplate(
		ctx, principal.Actor(), principal.OrgID, in.ID, template.text, template.stored, to.key)
	if err == nil && !replayed {
		template.forgive() // sending has a pace of its own
	}
	return messages, replayed, err
}

// placeMessage reads a conversation and its channel.
func (d *Deps) placeMessage(
	ctx context.Context, principal *identity.Principal, id string,
) (conversation inbox.Conversation, channel store.Channel, err error) {
	conversation, err = d.Conversations.Conversation(ctx, principal.OrgID, id)
	if err != nil {
		return conversation, channel, d.refuse(ctx, principal, store.OwnedConversations, id, err)
	}
	channel, err = d.DB.Channels.ByID(ctx, principal.OrgID, conversation.ChannelID)
	if errors.Is(err, store.ErrNotFound) {
		err = endpoint.Refusal(errcode.Conflict, err, "The channel of this conversation was deleted.")
	} else if err != nil {
		err = handlers.Internal(fmt.Errorf("reading channel %s: %w", conversation.ChannelID, err))
	}
	return conversation, channel, err
}

// content returns the content that a message's Idempotency-Key identifies.
func (in *messageInput) content() string {
	switch {
	case in.Body.Template != nil:
		return "template\n" + in.ID + "\n" + string(handlers.Marshal(in.Body.Template))
	case in.Body.File != nil:
		return "file\n" + in.ID + "\n" + in.Body.File.Name + "\n" + in.Body.File.Content
	}
	return "text\n" + in.ID + "\n" + in.Body.Text
}

// sendKey returns the key of a message with this content, or nil if the request has no key.
func sendKey(in *endpoint.KeyHeader, content string) (*inbox.SendKey, error) {
	key, err := in.IdempotencyKey()
	if key == "" || err != nil {
		return nil, err
	}
	return &inbox.SendKey{Hash: sha256.Sum256([]byte(key)), Fingerprint: sha256.Sum256([]byte(content))}, nil
}

// showSent returns the answer of a message that was queued, now or, replayed, before; or the public form of the reason why it wasn't.
func (d *Deps) showSent(
	ctx context.Context, principal *identity.Principal, id string, messages []inbox.Message, replayed bool, err error,
) (*endpoint.Replayable[sentMessage], error) {
	switch {
	case errors.Is(err, inbox.ErrKeyReused):
		return nil, endpoint.Refusal(errcode.IdempotencyKeyReused, err, "This Idempotency-Key was used with another message within 24 hours.")
	case err != nil:
		return nil, d.refuse(ctx, principal, store.OwnedConversations, id, err)
	case len(messages) == 0:
		return nil, handlers.Internal(errors.New("the queue took a message and returned none"))
	}
	parts := showAll(messages, func(m *inbox.Message) string { return m.ID })
	return endpoint.Replay(sentMessage{showMessage(&messages[0]), parts}, replayed), nil
}

// checkSendable returns an error if the channel, the conversation or the platform's window doesn't allow a message of the kind that a
// person writes.
func (d *Deps) checkSendable(to *recipient, messageKind string) error {
	if err := usable(&to.channel); err != nil {
		return err
	}
	if to.conversation.State == inbox.StateClosed {
		return customerBlocked(nil)
	}
	return d.checkWindow(&to.channel, &to.conversation, inbox.AuthorHuman, messageKind)
}

// checkWindow returns an error if the window is over in which the platform lets the author write text to the customer, or if this build
// doesn't contain the platform.
func (d *Deps) checkWindow(channel *store.Channel, conversation *inbox.Conversation, author, messageKind string) error {
	kind, ok := d.Catalog.Find(channel.Type)
	if !ok {
		return endpoint.Refusal(errcode.Conflict, nil, "%s", missingPlatform(channel.Type))
	}
	window := kind.Window
	if author == inbox.AuthorHuman {
		window = kind.PersonalWindow()
	}
	if messageKind == inbox.KindTemplate || kind.Window == 0 || d.Now().UnixMilli()-conversation.LastCustomerAt < window.Milliseconds() {
		return nil
	}
	return endpoint.Refusal(errcode.Code(messaging.Code(kind.WindowClass())), nil,
		"The customer's last message is more than %d hours old; the platform takes no free text after that.", int64(window.Hours()))
}

// usable returns the reason why the platform of a channel can't be called now: the channel's state.
func usable(channel *store.Channel) error {
	switch channel.State {
	case store.ChannelActive:
		return nil
	case store.ChannelNeedsReauth:
		return needsReauth(channel)
	}
	return endpoint.Refusal(errcode.Conflict, nil, "The channel is not verified yet.")
}

func needsReauth(channel *store.Channel) *handlers.Error {
	return endpoint.Refusal(errcode.ChannelNeedsReauth, nil,
		"The platform refuses the channel's credentials. Give new ones with PATCH /channels/%s.", channel.ID)
}

func customerBlocked(cause error) *handlers.Error {
	return endpoint.Refusal(errcode.Conflict, cause, "The customer has blocked the channel; the conversation is closed.")
}
