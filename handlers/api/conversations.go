package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"

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
// the organization doesn't have, and [inbox.ErrConversationClosed] for a change, other than deletion, of one whose customer has
// blocked the channel.
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
	CustomerFiles

	DeleteConversation(ctx context.Context, actor, orgID, id string) error
	Block(ctx context.Context, actor, orgID, id string) error
	Unblock(ctx context.Context, actor, orgID, id string) error
	// Export writes everything that is stored of a conversation, after begin.
	Export(ctx context.Context, orgID, id string, w io.Writer, begin func()) error
}

// OutgoingMessages are those to customers, as [inbox.Queue] has them.
type OutgoingMessages interface {
	Drafts

	// SendAsHuman queues the parts in order, and returns a message for each. SendKeyed does so once for a key, and SentUnder returns what
	// it has sent.
	SendAsHuman(ctx context.Context, actor, orgID, conversationID string, parts []string) ([]inbox.Message, error)
	SendKeyed(ctx context.Context, actor, orgID, conversationID string, parts []string, key inbox.SendKey) ([]inbox.Message, bool, error)
	SentUnder(ctx context.Context, orgID string, key inbox.SendKey) ([]inbox.Message, error)
	// SendTemplate queues a template, once for a key; nil is none.
	SendTemplate(ctx context.Context, actor, orgID, conversationID, text string, template []byte, key *inbox.SendKey) (
		sent []inbox.Message, replayed bool, err error)
	// SendFile stores a file and queues it, once for a key; nil is none. It also returns [media.ErrFull] and [media.ErrBusy].
	SendFile(ctx context.Context, actor, orgID, conversationID string, file *media.Upload, key *inbox.SendKey) (
		sent []inbox.Message, replayed bool, err error)
	// Outgoing reads a message that goes to the customer, and Resend queues it again.
	Outgoing(ctx context.Context, orgID, conversationID, messageID string) (inbox.Message, error)
	Resend(ctx context.Context, actor, orgID, conversationID, messageID string, mayArriveTwice bool) error
}

// StandingConversations takes care of what stands in conversations, as [inbox.Queue] does.
type StandingConversations interface {
	// WaitingForPeople counts the conversations that wait for a person, to [inbox.MaxWaiting].
	WaitingForPeople(ctx context.Context, orgID string) (int, error)
	RetryStanding(ctx context.Context, actor, orgID, id, code string) error
	Dismiss(ctx context.Context, actor, orgID, id, code string) error
	ForEachStanding(ctx context.Context, actor, orgID string, filter inbox.ConversationFilter, page store.Page,
		act func(ctx context.Context, actor, orgID, id, code string) error) (changed int, last string, err error)
}

type conversationObject struct {
	ID             string  `json:"id"`
	ChannelID      string  `json:"channelId"`
	CustomerID     string  `json:"customerId"     doc:"The platform's name of the customer, or of the chat"`
	CustomerName   *string `json:"customerName"`
	State          string  `json:"state"          enum:"assistant,human,closed" doc:"Who answers; closed: the customer has blocked the channel"`
	Attention      *string `json:"attention"      doc:"An error code that says why somebody should look; null: nobody need"`
	PausedUntil    *string `json:"pausedUntil"    format:"date-time" doc:"The agent is silent until then, because a human wrote from the platform's own app"`                         //nolint:lll // a struct tag can't be broken
	BlockedAt      *string `json:"blockedAt"      format:"date-time" doc:"When somebody of the business blocked the customer: the agent answers nothing of theirs; null: nobody has"` //nolint:lll // a struct tag can't be broken
	LastCustomerAt *string `json:"lastCustomerAt" format:"date-time" doc:"When the customer wrote last"`
	// UnansweredSince and HandoverReason are for people who look after what waits.
	UnansweredSince *string `json:"unansweredSince" format:"date-time" doc:"When the first text came that neither the agent nor a person has answered; null: there is none"`                                                                                                                                                         //nolint:lll // a struct tag can't be broken
	HandoverReason  *string `json:"handoverReason"  enum:"person,assistant,words,failures" doc:"Why a person has the conversation, or had it last; person: one took it over; assistant: the agent asked for one; words: the customer wrote one of handoverWords; failures: the agent failed twice in a row; null: none ever had it"` //nolint:lll // a struct tag can't be broken
	CreatedAt       string  `json:"createdAt"      format:"date-time"`
	UpdatedAt       string  `json:"updatedAt"      format:"date-time"`
}

func (g *conversations) show(c *inbox.Conversation) conversationObject {
	paused := c.PausedUntil
	if paused <= g.Now().UnixMilli() {
		paused = 0
	}
	return conversationObject{
		ID: c.ID, ChannelID: c.ChannelID, CustomerID: c.CustomerRef, CustomerName: endpoint.TextOrNull(c.CustomerName),
		State: c.State, Attention: endpoint.TextOrNull(c.Attention),
		PausedUntil: endpoint.TimestampOrNull(paused), BlockedAt: endpoint.TimestampOrNull(c.BlockedAt),
		LastCustomerAt:  endpoint.TimestampOrNull(c.LastCustomerAt),
		UnansweredSince: endpoint.TimestampOrNull(c.UnansweredSince), HandoverReason: endpoint.TextOrNull(c.HandoverReason),
		CreatedAt: endpoint.Timestamp(c.CreatedAt), UpdatedAt: endpoint.Timestamp(c.UpdatedAt),
	}
}

type conversations struct{ *Deps }

func (g *conversations) register(s *endpoint.Server) {
	const all, one, read, write = "/conversations", "/conversations/{id}", identity.ConversationsRead, identity.ConversationsWrite
	members := operations{s, handlers.RoleMember}
	add(members, "listConversations", http.MethodGet, all, read, "List the conversations, oldest first unless order says otherwise", g.list)
	add(members, "getConversation", http.MethodGet, one, read, "Get a conversation", g.get)
	add(members, "deleteConversation", http.MethodDelete, one, write, "Erase a conversation: everything that is stored about the customer", g.remove)
	add(members, "listMessages", http.MethodGet, one+"/messages", read,
		"List a conversation's messages of both directions, oldest first unless order says otherwise", g.listMessages)
	endpoint.Register(s, endpoint.Operation{
		ID: "sendMessage", Route: members.route(http.MethodPost, one+"/messages", write, "Write to the customer as a human"), MaxBody: maxMessageBody,
	}, g.sendMessage)
	act := func(id, path, summary string) endpoint.Operation {
		return endpoint.Operation{ID: id, Status: http.StatusOK, Route: members.route(http.MethodPost, path, write, summary)}
	}
	endpoint.Register(s, act("handOver", one+"/handover", "Take a conversation from the agent"), g.handOver)
	endpoint.Register(s, act("handBack", one+"/handback", "Give a conversation back to the agent"), g.handBack)
	endpoint.Register(s, act("blockCustomer", one+"/block", "Let the agent answer nothing of the customer any more"), g.block)
	endpoint.Register(s, act("unblockCustomer", one+"/unblock", "Let the agent answer the customer again"), g.unblock)
	g.registerDrafts(members)
	g.registerFile(s, members.route(http.MethodGet, one+"/files/{fileId}", read, "Get a file that the customer sent, or was sent"))
	g.registerExport(s, members.route(http.MethodGet, one+"/export", read, "Get everything that is stored about the customer, as one file"))
	endpoint.Register(s, act("retryConversation", one+"/retry", "Let the agent answer again what stands unanswered"), g.retry)
	endpoint.Register(s, act("dismissConversation", one+"/dismiss", "End a conversation's attention without an answer"), g.dismiss)
	endpoint.Register(s, act("actOnConversations", all, "Retry or dismiss a page of the conversations that need attention"), g.actOnAll)
	endpoint.Register(s, act("resendMessage", one+"/messages/{messageId}/resend", "Send a message again that wasn't delivered, or perhaps not"),
		g.resend)
}

type conversationQuery struct {
	endpoint.PageQuery

	StandingQuery

	State     string `query:"state" enum:"assistant,human,closed" doc:"Only in this state"`
	Attention bool   `query:"attention" doc:"true: only those at which somebody should look"`
	Waiting   bool   `query:"waiting" doc:"true: only those that wait for a person: at which somebody should look, or that a person has and whose customer has no answer yet"` //nolint:lll // a struct tag can't be broken
	Order     string `query:"order" enum:"oldest,recent" default:"oldest" doc:"recent: whose customer wrote last comes first"`
}

func (g *conversations) list(
	ctx context.Context, principal *identity.Principal, in *conversationQuery,
) (*endpoint.JSON[endpoint.ListObject[conversationObject]], error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	filter := inbox.ConversationFilter{
		ChannelID: in.ChannelID, Code: in.Code, State: in.State, Attention: in.Attention, Waiting: in.Waiting,
		Recent: in.Order == "recent",
	}
	conversations, err := g.Conversations.Conversations(ctx, principal.OrgID, filter, page)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("listing conversations: %w", err))
	}
	return endpoint.Listed(in.PageQuery, conversations, func(row *inbox.Conversation) string { return row.ID }, g.show), nil
}

func (g *conversations) get(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[conversationObject], error) {
	return getRow(ctx, g.Deps, principal, store.OwnedConversations, in.ID, g.Conversations.Conversation, g.show)
}

func (g *conversations) remove(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, g.change(ctx, principal, store.OwnedConversations, in.ID, g.Conversations.DeleteConversation)
}

func (g *conversations) handOver(
	ctx context.Context, principal *identity.Principal, in *endpoint.PathID,
) (*endpoint.JSON[conversationObject], error) {
	if err := g.change(ctx, principal, store.OwnedConversations, in.ID, g.Conversations.HandOver); err != nil {
		return nil, err
	}
	return g.get(ctx, principal, in)
}

func (g *conversations) handBack(
	ctx context.Context, principal *identity.Principal, in *endpoint.PathID,
) (*endpoint.JSON[conversationObject], error) {
	if err := g.change(ctx, principal, store.OwnedConversations, in.ID, g.Conversations.HandBack); err != nil {
		return nil, err
	}
	return g.get(ctx, principal, in)
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

	Files []fileObject `json:"files" nullable:"false" doc:"The files that the customer sent with it, or that it is"`
}

func showMessage(m *inbox.Message) MessageObject {
	return MessageObject{
		ID: m.ID, Author: m.Author, Kind: m.Kind, Text: m.Text, State: endpoint.TextOrNull(m.State), Code: endpoint.TextOrNull(m.Code),
		TurnID: endpoint.TextOrNull(m.TurnID), Handled: m.Handled, Edited: m.Edited, At: endpoint.Timestamp(m.At), Files: showFiles(m.Files),
	}
}

type messagesInput struct {
	endpoint.PathID
	endpoint.PageQuery

	Order string `query:"order" enum:"oldest,newest" default:"oldest" doc:"newest: the newest message comes first"`
}

func (g *conversations) listMessages(
	ctx context.Context, principal *identity.Principal, in *messagesInput,
) (*endpoint.JSON[endpoint.ListObject[MessageObject]], error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	read := g.Conversations.Messages
	if in.Order == "newest" {
		read = g.Conversations.LatestMessages
	}
	messages, err := read(ctx, principal.OrgID, in.ID, page)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	return endpoint.Listed(in.PageQuery, messages, func(row *inbox.Message) string { return row.ID }, showMessage), nil
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

// sendMessage queues a message. Whatever would make the platform refuse it is checked before, but for one that was queued before under
// the same key.
func (g *conversations) sendMessage(
	ctx context.Context, principal *identity.Principal, in *messageInput,
) (*endpoint.Replayable[sentMessage], error) {
	queue, err := g.queueOf(&in.Body)
	if err != nil {
		return nil, err
	}
	key, err := sendKey(&in.KeyHeader, in.content())
	if err != nil {
		return nil, err
	}
	conversation, channel, err := g.place(ctx, principal, in.ID)
	if err != nil {
		return nil, err
	}
	if key != nil {
		sent, err := g.Conversations.SentUnder(ctx, principal.OrgID, *key)
		if err != nil || len(sent) > 0 {
			return g.showSent(ctx, principal, in.ID, sent, true, err)
		}
	}
	messages, replayed, err := queue(ctx, principal, in, &channel, &conversation, key)
	if refusal, ok := errors.AsType[*handlers.Error](err); ok {
		return nil, refusal
	}
	return g.showSent(ctx, principal, in.ID, messages, replayed, err)
}

// queueMessage queues a message with one kind of content. Its error is public, or one of the queue.
type queueMessage func(
	ctx context.Context, principal *identity.Principal, in *messageInput,
	channel *store.Channel, conversation *inbox.Conversation, key *inbox.SendKey,
) (messages []inbox.Message, replayed bool, err error)

// queueOf returns what queues the message, or refuses one that has not exactly one content.
func (g *conversations) queueOf(body *messageCreation) (queueMessage, error) {
	switch {
	case body.Text == "" && body.Template == nil && body.File == nil:
		return nil, handlers.InvalidRequest("text", "text is required, or template or file.")
	case body.Text != "" && body.Template != nil:
		return nil, handlers.InvalidRequest("template", "A message has either text or template.")
	case body.File != nil && (body.Text != "" || body.Template != nil):
		return nil, handlers.InvalidRequest("file", "A message with a file has neither text nor template.")
	case body.File != nil:
		return g.queueFile, nil
	case body.Template != nil:
		return g.queueTemplate, nil
	}
	return g.queueText, nil
}

// queueText queues a text. The error is public, or one of the queue.
func (g *conversations) queueText(
	ctx context.Context, principal *identity.Principal, in *messageInput,
	channel *store.Channel, conversation *inbox.Conversation, key *inbox.SendKey,
) (messages []inbox.Message, replayed bool, err error) {
	if err := g.checkSendable(channel, conversation, inbox.KindText); err != nil {
		return nil, false, err
	}
	parts, err := g.split(channel, in.Body.Text)
	if err != nil {
		return nil, false, err
	}
	if key != nil {
		return g.Conversations.SendKeyed(ctx, principal.Actor(), principal.OrgID, in.ID, parts, *key)
	}
	messages, err = g.Conversations.SendAsHuman(ctx, principal.Actor(), principal.OrgID, in.ID, parts)
	return messages, false, err
}

// queueTemplate queues a template, which its platform is asked for first. The error is public, or one of the queue.
func (g *conversations) queueTemplate(
	ctx context.Context, principal *identity.Principal, in *messageInput,
	channel *store.Channel, conversation *inbox.Conversation, key *inbox.SendKey,
) (messages []inbox.Message, replayed bool, err error) {
	if !g.Platforms.HasTemplates(platforms.Type(channel.Type)) {
		return nil, false, handlers.InvalidRequest("template", "Channels of type %s have no templates.", channel.Type)
	}
	if err := g.checkSendable(channel, conversation, inbox.KindTemplate); err != nil {
		return nil, false, err
	}
	template, err := g.fillTemplate(ctx, channel, in.Body.Template)
	if err != nil {
		return nil, false, err
	}
	messages, replayed, err = g.Conversations.SendTemplate(ctx, principal.Actor(), principal.OrgID, in.ID, template.text, template.stored, key)
	if err == nil && !replayed {
		template.forgive() // sending has a pace of its own
	}
	return messages, replayed, err
}

// place reads a conversation and its channel.
func (g *conversations) place(
	ctx context.Context, principal *identity.Principal, id string,
) (conversation inbox.Conversation, channel store.Channel, err error) {
	conversation, err = g.Conversations.Conversation(ctx, principal.OrgID, id)
	if err != nil {
		return conversation, channel, g.refuse(ctx, principal, store.OwnedConversations, id, err)
	}
	channel, err = g.DB.Channels.ByID(ctx, principal.OrgID, conversation.ChannelID)
	if errors.Is(err, store.ErrNotFound) {
		err = &handlers.Error{Code: errcode.Conflict, Message: "The channel of this conversation was deleted.", Cause: err}
	} else if err != nil {
		err = handlers.Internal(fmt.Errorf("reading channel %s: %w", conversation.ChannelID, err))
	}
	return conversation, channel, err
}

// content is what the key of a message stands for.
func (in *messageInput) content() string {
	switch {
	case in.Body.Template != nil:
		return "template\n" + in.ID + "\n" + string(handlers.Marshal(in.Body.Template))
	case in.Body.File != nil:
		return "file\n" + in.ID + "\n" + in.Body.File.Name + "\n" + in.Body.File.Content
	}
	return "text\n" + in.ID + "\n" + in.Body.Text
}

// sendKey returns the key of a message with this content, nil without one.
func sendKey(in *endpoint.KeyHeader, content string) (*inbox.SendKey, error) {
	key, err := in.IdempotencyKey()
	if key == "" || err != nil {
		return nil, err
	}
	return &inbox.SendKey{Hash: sha256.Sum256([]byte(key)), Fingerprint: sha256.Sum256([]byte(content))}, nil
}

// showSent returns the answer of a message that was queued, now or, replayed, before; or the public form of the reason why it wasn't.
func (g *conversations) showSent(
	ctx context.Context, principal *identity.Principal, id string, messages []inbox.Message, replayed bool, err error,
) (*endpoint.Replayable[sentMessage], error) {
	switch {
	case errors.Is(err, inbox.ErrKeyReused):
		return nil, &handlers.Error{
			Code: errcode.IdempotencyKeyReused, Message: "This Idempotency-Key was used with another message within 24 hours.", Cause: err,
		}
	case err != nil:
		return nil, g.refuse(ctx, principal, store.OwnedConversations, id, err)
	case len(messages) == 0:
		return nil, handlers.Internal(errors.New("the queue took a message and returned none"))
	}
	sent := sentMessage{MessageObject: showMessage(&messages[0])}
	for i := range messages {
		sent.Parts = append(sent.Parts, messages[i].ID)
	}
	return endpoint.Replay(sent, replayed), nil
}

// checkSendable returns an error if the channel, the conversation or the platform's window doesn't allow a message of the kind that a
// person writes.
func (g *conversations) checkSendable(channel *store.Channel, conversation *inbox.Conversation, messageKind string) error {
	if err := usable(channel); err != nil {
		return err
	}
	if conversation.State == inbox.StateClosed {
		return customerBlocked(nil)
	}
	return g.checkWindow(channel, conversation, inbox.AuthorHuman, messageKind)
}

// checkWindow returns an error if the window is over in which the platform lets the author write text to the customer, or if this build
// doesn't contain the platform.
func (g *conversations) checkWindow(channel *store.Channel, conversation *inbox.Conversation, author, messageKind string) error {
	kind, ok := g.Catalog.Find(channel.Type)
	if !ok {
		return &handlers.Error{Code: errcode.Conflict, Message: missingPlatform(channel.Type)}
	}
	window := kind.Window
	if author == inbox.AuthorHuman {
		window = kind.PersonalWindow()
	}
	if messageKind == inbox.KindTemplate || kind.Window == 0 || g.Now().UnixMilli()-conversation.LastCustomerAt < window.Milliseconds() {
		return nil
	}
	return &handlers.Error{
		Code: errcode.Code(messaging.Code(kind.WindowClass())),
		Message: fmt.Sprintf("The customer's last message is more than %d hours old; the platform takes no free text after that.",
			int64(window.Hours())),
	}
}

// usable returns the reason why the platform of a channel can't be called now: the channel's state.
func usable(channel *store.Channel) error {
	switch channel.State {
	case store.ChannelActive:
		return nil
	case store.ChannelNeedsReauth:
		return needsReauth(channel)
	}
	return &handlers.Error{Code: errcode.Conflict, Message: "The channel is not verified yet."}
}

func needsReauth(channel *store.Channel) *handlers.Error {
	return &handlers.Error{
		Code:    errcode.ChannelNeedsReauth,
		Message: "The platform refuses the channel's credentials. Give new ones with PATCH /channels/" + channel.ID + ".",
	}
}

func customerBlocked(cause error) *handlers.Error {
	return &handlers.Error{Code: errcode.Conflict, Message: "The customer has blocked the channel; the conversation is closed.", Cause: cause}
}
