package widget

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/providers"
)

const (
	// maxVisitorBody is the largest body of a message in bytes: room for 4,000 characters that are escaped to 12 bytes each.
	// It is read only after the visitor's token was checked.
	maxVisitorBody = 64 << 10
	// takeOver is how long the queue keeps a message for the request that brought it before any worker leases it.
	takeOver = 5 * time.Second
	// shownMessages limits the messages of the conversation that a visitor gets.
	shownMessages = 100
	// streamsPerChannel limits the answers of a channel that are written, or waited for, at a time in this process.
	streamsPerChannel = 50
	// streamsPerSource is the same limit for one address, and for one visitor.
	streamsPerSource = 10
	// listsWaiting is how many readings of an organization's conversations may wait for their turn, each for up to
	// listWait.
	listsWaiting = 100
	listWait     = 2 * time.Second
	// longList is the memory in bytes that must be free before a conversation is read: about the size of the largest
	// list.
	longList = 1 << 20
)

// listBounds let visitors of one organization read one conversation at a time: each may have several MiB, and visitors may be as many as
// they like. They leave half of the processors to everything else.
func listBounds() dispatch.Bounds {
	return dispatch.Bounds{Places: max(1, runtime.GOMAXPROCS(0)/2), Each: 1, Line: listsWaiting, Lines: 10 * listsWaiting}
}

// waitingNotice is shown to a visitor when there is no immediate answer. The reason isn't shown: it is the business's
// own.
const waitingNotice = "Your message has arrived. The answer will appear here."

// visitMessageCreation is the body of POST /widget/{channelId}/messages.
type visitMessageCreation struct {
	ID   string `json:"id"   minLength:"1" maxLength:"64" pattern:"^[0-9A-Za-z_-]+$" patternDescription:"letters, digits, _ and -" doc:"Made by the client; a message that is sent again under its id is the same message"` //nolint:lll // a struct tag can't be broken
	Text string `json:"text" minLength:"1" maxLength:"4000"`
}

// visitReceipt acknowledges a message that gets no immediate answer.
type visitReceipt struct {
	ID     string `json:"id"`
	State  string `json:"state"  enum:"waiting" doc:"The message is stored; its answer comes with GET …/messages"`
	Notice string `json:"notice" doc:"A sentence for the visitor"`
}

// VisitMessageObject is one line of the conversation in the visitor's view.
type VisitMessageObject struct {
	ID     string `json:"id"     doc:"Of the visitor's own messages the id that the client made"`
	Author string `json:"author" enum:"visitor,assistant,human"`
	Text   string `json:"text"`
	At     string `json:"at"     format:"date-time"`
}

type visitMessageList struct {
	Data []VisitMessageObject `json:"data" nullable:"false"`
}

type visitMessageInput struct {
	ChannelPath

	Body visitMessageCreation
}

// writeAsVisitor stores the message and answers it while the visitor waits. A repeated message gets the outcome of the
// first: it is stored, answered and charged once.
func writeAsVisitor(ctx context.Context, _ *identity.Principal, in *visitMessageInput) (*endpoint.Stream, error) {
	v := visitFrom(ctx)
	if strings.TrimSpace(in.Body.Text) == "" {
		return nil, handlers.InvalidRequest("text", "text is blank.")
	}
	// The visitor and the address are counted first. Each has up to two thirds of the channel's rate, so that the rest is left
	// for others.
	perMinute := v.channel.Settings.RequestsPerMinute
	if err := v.admitSource(ctx, "messages", min(messagesPerMinute, max(perMinute*2/3, 1))); err != nil {
		return nil, err
	}
	if err := v.admit(ctx, "messages", perMinute); err != nil {
		return nil, err
	}
	return endpoint.Streamed(func(w http.ResponseWriter, r *http.Request) error { return v.answer(w, r, &in.Body) }), nil
}

// taskID is the message's id in the queue, where ids are unique for a channel: no visitor reaches another's message.
func (v *visitRequest) taskID(clientID string) string { return v.visit.Visitor + ":" + clientID }

// openStream occupies a place among the streams of the visitor, of their address and of the channel, and returns a function that
// frees the places.
func (v *visitRequest) openStream() (leave func(), err error) {
	var left []func()
	leave = func() {
		for _, leave := range left {
			leave()
		}
	}
	for _, place := range []struct {
		streams *v1.Streams
		owner   string
		most    int
	}{
		{v.bySource, v.channel.ChannelID + " " + v.visit.Visitor, streamsPerSource},
		{v.bySource, v.channel.ChannelID + " " + v.address, streamsPerSource},
		{v.Streams, v.channel.ChannelID, streamsPerChannel},
	} {
		one, err := place.streams.Open(place.owner, place.most)
		if err != nil {
			leave()
			return nil, err
		}
		left = append(left, one)
	}
	return leave, nil
}

// answer stores the message and writes what comes of it.
func (v *visitRequest) answer(w http.ResponseWriter, r *http.Request, message *visitMessageCreation) error {
	taskID := v.taskID(message.ID)
	leave, err := v.openStream()
	if err != nil {
		return tooManyAnswers(err)
	}
	defer leave()
	place, err := v.place(r.Context(), taskID)
	if err != nil {
		return err
	}
	defer place.end()
	if err := v.checkSpend(r.Context(), place); err != nil {
		return err
	}
	route := store.Route{
		ChannelID: v.channel.ChannelID, OrgID: v.channel.OrgID, Type: string(messaging.Widget),
		// In place of the agent's quiet window: this request answers the message. A worker does only if the request
		// can't.
		DebounceMS: takeOver.Milliseconds(), DebounceMaxMS: takeOver.Milliseconds(),
	}
	err = v.Inbox.Enqueue(r.Context(), []inbox.Arrival{{Route: route, Items: []inbox.Item{{
		Kind: platforms.Text, CustomerRef: v.visit.Visitor, Address: v.visit.Visitor, MessageID: taskID, Text: message.Text,
	}}}})
	if err != nil {
		return handlers.Internal(fmt.Errorf("storing a visitor's message: %w", err))
	}
	// From here on the visitor may leave: a message that is stored is answered while its answer has its place.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), takeOver)
	reply, err := v.Inbox.Reply(ctx, v.channel.OrgID, v.channel.ChannelID, taskID)
	cancel()
	if err != nil {
		return handlers.Internal(fmt.Errorf("reading a visitor's message: %w", err))
	}
	stream := newVisitStream(w, r, &reply, place.held)
	defer stream.Free()
	if reply, err = v.Live.AnswerNow(r.Context(), v.channel.OrgID, v.channel.ChannelID, taskID, stream); err != nil {
		v.Logger.Error("answering a visitor failed", "channel", v.channel.ChannelID, "request_id", handlers.RequestIDFrom(r.Context()), "error", err)
	}
	switch {
	case reply.Text == "" && !stream.Begun:
		handlers.WriteJSON(w, http.StatusAccepted, handlers.Marshal(visitReceipt{ID: message.ID, State: "waiting", Notice: waitingNotice}))
	case !stream.end(reply.Text):
		brokeOff := endpoint.Refusal(errcode.Conflict, nil, "The answer broke off. What is said instead will appear here.")
		stream.Fail(brokeOff, handlers.RequestIDFrom(r.Context()))
	}
	return nil
}

// listVisit returns the conversation to its visitor: received and sent messages, and nothing about the business's
// decisions.
func listVisit(ctx context.Context, _ *identity.Principal, _ *ChannelPath) (*endpoint.JSON[visitMessageList], error) {
	v := visitFrom(ctx)
	if err := v.admitSource(ctx, "reads", readsPerMinute); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, listWait, dispatch.ErrBusy)
	defer cancel()
	if err := v.lists.Enter(waiting, v.channel.OrgID); err != nil {
		return nil, endpoint.RateLimited(time.Second, err, "Too many visitors read their conversations. Retry shortly.")
	}
	defer v.lists.Leave(v.channel.OrgID)
	room := handlers.NewRoom(v.Bodies, handlers.Account{Share: handlers.ShareStrangers, Owner: v.address})
	defer room.Close()
	if !room.Grow(longList) { // it would be read and then refused
		return nil, handlers.NoRoom()
	}
	said := visitMessageList{Data: []VisitMessageObject{}}
	conversation, err := v.Inbox.ConversationOf(ctx, v.channel.OrgID, v.channel.ChannelID, v.visit.Visitor)
	if errors.Is(err, store.ErrNotFound) {
		return endpoint.Answer(said), nil
	}
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading a visitor's conversation: %w", err))
	}
	latest, err := v.Inbox.LatestMessages(ctx, v.channel.OrgID, conversation.ID, store.Page{Limit: shownMessages})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, handlers.Internal(fmt.Errorf("reading a visitor's messages: %w", err))
	}
	for i := range latest {
		if object, visible := v.show(&latest[len(latest)-1-i]); visible {
			said.Data = append(said.Data, object)
		}
	}
	return endpoint.Answer(said), nil
}

// show returns the visitor's view of a message. Answers that failed, wait or were discarded aren't visible.
func (v *visitRequest) show(m *inbox.Message) (object VisitMessageObject, visible bool) {
	object = VisitMessageObject{ID: m.ID, Author: m.Author, Text: m.Text, At: endpoint.Timestamp(m.At)}
	switch {
	case m.Author == inbox.AuthorCustomer:
		object.Author = "visitor"
		object.ID = strings.TrimPrefix(m.PlatformMessageID, v.taskID(""))
	case m.State != inbox.OutboundSent && m.State != inbox.OutboundDeliveryUnknown:
		return object, false
	}
	return object, true
}

// visitModel replaces the model in a visitor's stream: a business doesn't show its visitors which model it uses.
const visitModel = "assistant"

// visitStream writes an answer to a visitor in the form of [v1.ChunkWriter]. Model, usage and charge are the
// business's: a visitor gets a word for the first and zeros for the others. It implements [gateway.Sink].
type visitStream struct {
	*v1.ChunkWriter

	// head is the same for every try of the message, whether this process or a worker answers it.
	head gateway.Head
	// text is the part of the answer that was sent to the visitor.
	text strings.Builder
	// held is called when the answer's hold, if it has one, is committed.
	held func()
}

var _ gateway.QuotedSink = (*visitStream)(nil)

func newVisitStream(w http.ResponseWriter, r *http.Request, message *inbox.Reply, held func()) *visitStream {
	return &visitStream{ChunkWriter: v1.NewChunkWriter(w, r), held: held, head: gateway.Head{
		ID: "chatcmpl-" + strings.TrimPrefix(message.MessageID, "msg_"), Created: message.ReceivedAt / 1000, Model: visitModel,
	}}
}

// Begin writes nothing: until the first text the answer may still become a receipt.
func (s *visitStream) Begin(gateway.Head) error {
	s.held()
	return nil
}

// Text adds a piece of the answer.
func (s *visitStream) Text(piece string) error {
	if !s.Begun {
		if err := s.ChunkWriter.Begin(s.head); err != nil {
			return err
		}
	}
	s.text.WriteString(piece)
	return s.ChunkWriter.Text(piece)
}

// Quoted adds a piece of the answer.
func (s *visitStream) Quoted(piece providers.JSONString) error { return s.Text(piece.Text()) }

// end writes the missing rest of the stored answer, and the end of the stream. It writes nothing and returns false when the
// visitor has seen another text. Errors of writing are ignored: the visitor has left.
func (s *visitStream) end(stored string) bool {
	rest, ok := strings.CutPrefix(stored, s.text.String())
	if stored == "" || !ok {
		return false
	}
	if rest != "" {
		_ = s.Text(rest)
	}
	_ = s.Finish(&gateway.Result{FinishReason: "stop"})
	return true
}
