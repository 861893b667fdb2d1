package inbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// codesOfTemplates are the attentions that a template resolves.
var codesOfTemplates = []string{string(errcode.TemplateRequired), codes.TemplatePaused, codes.TemplateRefused}

// SendTemplate queues a template that a member of the organization sends to a customer, and returns the message as it is listed: text is
// the template's with its variables filled in, template what the worker sends ([Outbound.Template]). It ends an attention that wants a
// template, or another one. key is that of [Queue.SendKeyed], nil for none. Errors are those of [Queue.SendKeyed], and [ErrInvalid]
// without a text or a template.
func (q *Queue) SendTemplate(
	ctx context.Context, actor, orgID, conversationID, text string, template []byte, key *SendKey,
) (sent []Message, replayed bool, err error) {
	if text == "" || len(template) == 0 {
		return nil, false, fmt.Errorf("send a template: %w: it has no text or no template", ErrInvalid)
	}
	op := humanOp{ownOp: ownOp{actor: actor, orgID: orgID, id: conversationID}, parts: q.sealParts(orgID, []string{text})}
	part := &op.parts[0]
	part.template = q.ring.Seal(template, vault.OutboundTemplate(orgID, part.id))
	return q.sendAsHuman(ctx, op, key)
}

// resolveByTemplate ends an attention that a template resolves. If another turn stands, its code becomes the attention.
func (op *humanOp) resolveByTemplate(ctx context.Context, s *session, c *conversationRow) error {
	if !slices.Contains(codesOfTemplates, c.attention) {
		return nil
	}
	standing := standingOp{ownOp: op.ownOp}
	turns, _, err := standing.turns(ctx, s)
	if err != nil {
		return err
	}
	c.stands(newestCode(turns))
	return nil
}
