package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
)

// handoverMark is the text with which an assistant hands the conversation over to a person. Customers never see it.
const handoverMark = "[[HANDOVER]]"

// handoverInstructions are added to the instructions of an agent that may hand over.
const handoverInstructions = "You work together with people. Hand the conversation over to them when the customer asks for a person, when " +
	"these instructions, the conversation and the reference texts don't contain the answer, or when only a person may decide. Never guess " +
	"instead. To hand over, tell the customer in one sentence, in their language, that a person will answer, and write " + handoverMark +
	" behind it. Write this mark for nothing else, and never mention it to the customer."

// failsAgain reports whether the agent hands conversations over in which it fails twice in a row, this is the second time, and no later
// try would end it. While the first failure isn't answered, the conversation remembers it.
func (p *pass) failsAgain(standing *inbox.Standing) bool {
	agent := p.work.Agent
	return agent != nil && agent.Handover && !standing.Heals() &&
		codes.Of(standing.Code).AssistantFailed && codes.Of(p.work.Conversation.ReportedAttention).AssistantFailed
}

// handOver ends the turn by giving the conversation to people, without an answer of the model's; without a turn the waiting texts become
// one. The agent's words for that case are sent in the next pass, which is immediately due.
func (p *pass) handOver(ctx context.Context, turnID, reason string) error {
	if turnID == "" {
		turn := p.newTurn()
		if err := p.beginAlone(ctx, turn, &storedRequest{Person: reason}); err != nil {
			return err
		}
		turnID = turn.ID
	}
	var parts []string
	if text, _ := p.lastWords(&storedRequest{Person: reason}, ""); text != "" && !p.work.Channel.Answers.Drafts {
		parts = p.split(text)
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if _, err := p.storeAnswer(ctx, turnID, reason, parts, false); err != nil {
		return fmt.Errorf("handing over: %w", err)
	}
	p.turnEnded(endedHandedOver)
	return nil
}

// lastWords returns the text of an answer as the customer gets it, and the reason to hand the conversation over, or none.
func (p *pass) lastWords(request *storedRequest, text string) (last, reason string) {
	reason = request.Person
	if request.MayHandOver {
		var mark markFilter
		text = mark.filter(text, true)
		if mark.found {
			reason = inbox.HandoverAssistant
		}
	}
	if text = strings.TrimSpace(text); text == "" && reason != "" {
		text = p.work.Agent.HandoverReply
	}
	return text, reason
}

// markFilter removes the mark, and the formatting around it, from a text that comes in pieces.
type markFilter struct {
	// held is the end of the text so far, which may belong to a mark: fewer bytes than a formatted one has.
	held  string
	found bool
}

const (
	// formatting are the characters in which models wrap a text that they have to repeat.
	formatting = "*_`"
	// maxFormatting bounds how many of them wrap it on either side.
	maxFormatting = 3
)

// filter adds the next piece, and returns the certain part of the text. After the last piece that is all of the rest.
func (f *markFilter) filter(piece string, ended bool) string {
	var kept strings.Builder
	text := f.held + piece
	f.held = ""
	for {
		at := indexMark(text)
		if at < 0 {
			break
		}
		behind := text[at+len(handoverMark):]
		open, closed := wrapped(text[:at], behind)
		if closed < open && closed == len(behind) && !ended {
			kept.WriteString(text[:at-open])
			f.held = text[at-open:]
			return kept.String()
		}
		f.found = true
		if closed < open {
			open, closed = 0, 0
		}
		kept.WriteString(text[:at-open])
		text = behind[closed:]
	}
	if !ended {
		begun := len(text) - beginsMark(text)
		open, _ := wrapped(text[:begun], "")
		f.held, text = text[begun-open:], text[:begun-open]
	}
	kept.WriteString(text)
	return kept.String()
}

// indexMark returns where the first mark is, in letters of either case, or -1.
func indexMark(text string) int {
	for from := 0; ; from++ {
		at := strings.Index(text[from:], handoverMark[:2])
		if at < 0 || len(text)-from-at < len(handoverMark) {
			return -1
		}
		from += at
		if strings.EqualFold(text[from:from+len(handoverMark)], handoverMark) {
			return from
		}
	}
}

// beginsMark returns how many bytes at the end of a text may be the beginning of a mark.
func beginsMark(text string) int {
	for n := min(len(text), len(handoverMark)-1); n > 0; n-- {
		if strings.EqualFold(text[len(text)-n:], handoverMark[:n]) {
			return n
		}
	}
	return 0
}

// wrapped returns how often the same formatting character stands before a mark, up to [maxFormatting], and how many of as many behind it.
func wrapped(before, behind string) (open, closed int) {
	if before == "" || !strings.Contains(formatting, before[len(before)-1:]) {
		return 0, 0
	}
	character := before[len(before)-1]
	for open < min(len(before), maxFormatting) && before[len(before)-1-open] == character {
		open++
	}
	for closed < min(len(behind), open) && behind[closed] == character {
		closed++
	}
	return open, closed
}

// storeAnswer stores the answer, or with a reason the last words before the conversation is handed over.
func (p *pass) storeAnswer(ctx context.Context, turnID, reason string, parts []string, sendFirst bool) ([]inbox.Outbound, error) {
	if reason == "" {
		return p.Queue.Answer(ctx, p.lease, turnID, parts, sendFirst)
	}
	rows, err := p.Queue.AnswerAndHandOver(ctx, p.lease, turnID, reason, parts, sendFirst)
	if errors.Is(err, inbox.ErrDraftMode) { // last words aren't sent by themselves there
		return p.Queue.AnswerAndHandOver(ctx, p.lease, turnID, reason, nil, false)
	}
	return rows, err
}

// propose stores the model's answer as a draft, which a person sends.
func (p *pass) propose(ctx context.Context, turn *inbox.Turn, text string) error {
	parts := p.split(text)
	err := insist(ctx, func(ctx context.Context) error { return p.Queue.Propose(ctx, p.lease, turn.ID, parts) })
	if err != nil {
		return fmt.Errorf("storing a draft: %w", err)
	}
	p.turnEnded(endedAttention + codes.Draft)
	return nil
}

// countRequests lets the loop guard count model calls in place of sent answers where the assistant writes drafts: nothing is sent there
// that it could count.
func (p *pass) countRequests(ctx context.Context) error {
	if p.work.Turn != nil || !p.work.Channel.Answers.Drafts {
		return nil
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	requests, err := p.Queue.RecentRequests(ctx, p.lease)
	if err != nil {
		return fmt.Errorf("counting drafts: %w", err)
	}
	p.work.RecentReplies = max(p.work.RecentReplies, requests)
	return nil
}
