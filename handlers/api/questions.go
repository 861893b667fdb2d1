package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Bounds of the questions to platforms within one minute of the clock, by one process. A tenant causes them with tokens of its choice, while
// platforms count calls by the operator's application and address: without bounds one tenant could have all of them throttled.
const (
	// AccountQuestionsPerMinute limits the calls that find the account of credentials, per organization. The limit for the same
	// credentials of a channel is one.
	AccountQuestionsPerMinute = 10
	// TemplatePagesPerMinute limits the pages of templates that are read from platforms, per organization. Pages in which a template to be
	// sent was found don't count.
	TemplatePagesPerMinute = 60
)

// questions bounds the questions to platforms.
type questions struct {
	rates   *endpoint.Rates
	running sync.Map // the ids of channels whose account is being asked for
}

// question is a permitted question about a channel. It counts when it is asked.
type question struct {
	asked   bool
	counted []func() // uncount it
	done    func()
}

// account begins the question to which account a channel's credentials of that version belong. The caller ends it.
func (q *questions) account(ctx context.Context, channel *store.Channel, version int64) (*question, error) {
	if _, runs := q.running.LoadOrStore(channel.ID, true); runs {
		return nil, endpoint.RateLimited(identifyTimeout, nil, "The platform is being asked for this channel. Wait for the answer.")
	}
	begun := &question{done: func() { q.running.Delete(channel.ID) }}
	for _, bound := range []struct {
		subject string
		most    int64
	}{{fmt.Sprint("account ", channel.ID, " ", version), 1}, {"accounts " + channel.OrgID, AccountQuestionsPerMinute}} {
		forgive, err := q.rates.Count(ctx, bound.subject, bound.most)
		if err != nil {
			begun.end()
			return nil, err
		}
		begun.counted = append(begun.counted, forgive)
	}
	return begun, nil
}

func (q *question) end() {
	q.done()
	if q.asked {
		return
	}
	for _, forgive := range q.counted {
		forgive()
	}
}

// page counts a page of templates of a channel. forgive uncounts it.
func (q *questions) page(ctx context.Context, channel *store.Channel) (forgive func(), err error) {
	return q.rates.Count(ctx, "templates "+channel.OrgID, TemplatePagesPerMinute)
}

const (
	// templatesLife is how long a page of templates is shown again.
	templatesLife = time.Minute
	// maxKeptTemplates bounds the texts of pages that are kept, in bytes. When it is reached, all are dropped.
	maxKeptTemplates = 8 << 20
)

// keptTemplates are pages of templates that were read a moment ago. The zero value is empty.
type keptTemplates struct {
	mu    sync.Mutex
	pages map[templatesKey]keptPage
	bytes int
}

// templatesKey identifies a page by its request. Other credentials may have access to other templates.
type templatesKey struct {
	channelID string
	version   int64
	query     platforms.TemplateQuery
}

type keptPage struct {
	platforms.TemplatePage

	until time.Time
}

func (k *keptTemplates) get(key templatesKey, now time.Time) (platforms.TemplatePage, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	page, found := k.pages[key]
	return page.TemplatePage, found && now.Before(page.until)
}

func (k *keptTemplates) add(key templatesKey, page platforms.TemplatePage, now time.Time) {
	size := len(key.query.Name) + len(key.query.After) + 256
	for i := range page.Templates {
		size += len(page.Templates[i].Body) + 256
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pages == nil || k.bytes+size > maxKeptTemplates {
		k.pages, k.bytes = make(map[templatesKey]keptPage), 0
	}
	k.pages[key] = keptPage{page, now.Add(templatesLife)}
	k.bytes += size
}

const (
	// templatesTimeout bounds the reading of templates from a platform; a client waits for it.
	templatesTimeout = 10 * time.Second
	// maxTemplatePages bounds the pages in which a template is looked for by its name. A platform also returns templates of longer
	// names that contain it.
	maxTemplatePages = 4
)

// TemplateObject is a template as the API shows it.
type TemplateObject struct {
	Name      string   `json:"name"`
	Language  string   `json:"language"  doc:"As the platform writes it, like en_US. A name has one template for each language"`
	Category  *string  `json:"category"  doc:"What the platform says it is for, like utility or marketing"`
	Body      string   `json:"body"      doc:"Its text, in which each variable stands as {{name}}"`
	Variables []string `json:"variables" nullable:"false" doc:"The names of its variables"`
	Needs     *string  `json:"needs"     doc:"What else the template needs, which can't be given here; null: it can be sent"`
}

func showTemplate(t *platforms.Template) TemplateObject {
	return TemplateObject{
		Name: t.Name, Language: t.Language, Category: endpoint.OrNull(t.Category), Body: t.Body,
		Variables: append([]string{}, t.Variables...), Needs: endpoint.OrNull(t.Needs),
	}
}

type templatesInput struct {
	endpoint.PathID

	Name   string `query:"name"   maxLength:"512" doc:"Only templates with this name, and perhaps others whose names contain it"`
	Cursor string `query:"cursor" maxLength:"512" pattern:"^[!-~]+$" doc:"nextCursor of the page before; absent for the first page"`
}

// listTemplates lists a page of a channel's approved templates.
func (d *Deps) listTemplates(ctx context.Context, principal *identity.Principal, in *templatesInput) (*endpoint.ListObject[TemplateObject], error) {
	channel, err := d.DB.Channels.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, templatesTimeout)
	defer cancel()
	key := templatesKey{channel.ID, channel.CredentialsVersion, platforms.TemplateQuery{Name: in.Name, After: in.Cursor}}
	page, kept := d.keptTemplates.get(key, d.Now())
	if !kept {
		if page, _, err = d.readTemplates(ctx, &channel, key.query); err != nil {
			return nil, err
		}
		d.keptTemplates.add(key, page, d.Now())
	}
	return &pageOf[TemplateObject]{Data: showAll(page.Templates, showTemplate), NextCursor: endpoint.OrNull(page.Next)}, nil
}

// readTemplates reads a page of a channel's templates from its platform, until ctx ends. forgive uncounts the question. The error is public.
func (d *Deps) readTemplates(
	ctx context.Context, channel *store.Channel, query platforms.TemplateQuery,
) (page platforms.TemplatePage, forgive func(), err error) {
	if !d.Platforms.HasTemplates(platforms.Type(channel.Type)) {
		return page, nil, endpoint.Refusal(errcode.Conflict, nil, "Channels of type %s have no templates.", channel.Type)
	}
	if err := usable(channel); err != nil {
		return page, nil, err
	}
	if channel.Credentials == nil {
		return page, nil, needsReauth(channel)
	}
	credentials, err := messaging.OpenCredentials(d.Ring, channel.OrgID, channel.ID, channel.Credentials)
	if err != nil {
		return page, nil, handlers.Internal(err)
	}
	if forgive, err = d.questions.page(ctx, channel); err != nil {
		return page, nil, err
	}
	page, err = d.Platforms.Templates(ctx, &platforms.Channel{
		Type: platforms.Type(channel.Type), ExternalID: channel.ExternalID, Credentials: credentials,
	}, query)
	if err == nil {
		return page, forgive, nil
	}
	d.Logger.Info("a platform did not list a channel's templates", "channel", channel.ID, "type", channel.Type, "error", err)
	return page, nil, platformRefusal(ctx, channel, err)
}

// platformRefusal returns the public form of the failure of a call that read something from a channel's platform until ctx ended.
func platformRefusal(ctx context.Context, channel *store.Channel, err error) error {
	refusal := endpoint.Refusal(errcode.ProviderError, err, "The platform did not list the channel's templates.")
	failure, _ := errors.AsType[*platforms.Error](err)
	switch {
	case ctx.Err() != nil:
		refusal.Code, refusal.Message = errcode.ProviderTimeout, "The platform did not list the channel's templates in time. Try again."
	case failure == nil:
	case failure.Class == platforms.NeedsReauth:
		refusal.Code = errcode.ChannelNeedsReauth
		refusal.Message = "The platform refuses the channel's credentials, or doesn't let them read templates. Give others with PATCH /channels/" +
			channel.ID + "."
	case failure.Class == platforms.Retry:
		refusal.Code, refusal.RetryAfter = errcode.ProviderOverloaded, failure.RetryAfter
		refusal.Message = "The platform can't be reached, or asks for patience. Try again later."
	}
	return refusal
}

// templateWish is a template in the body of POST /conversations/{id}/messages.
type templateWish struct {
	Name      string          `json:"name"     minLength:"1" maxLength:"512"`
	Language  string          `json:"language" minLength:"1" maxLength:"512" doc:"As the list of templates has it"`
	Variables []templateValue `json:"variables,omitempty" maxItems:"64" doc:"A value for each variable of the template, in any order"`
}

type templateValue struct {
	Name  string `json:"name"  minLength:"1" maxLength:"512"`
	Value string `json:"value" minLength:"1" maxLength:"1024" doc:"Without line breaks"`
}

// values returns the values by the names of their variables.
func (w *templateWish) values() (map[string]string, error) {
	values := make(map[string]string, len(w.Variables))
	for i, variable := range w.Variables {
		if _, given := values[variable.Name]; given {
			return nil, handlers.InvalidRequest(w.field(i)+".name", "%s.name is that of an earlier one.", w.field(i))
		}
		values[variable.Name] = variable.Value
	}
	return values, nil
}

func (w *templateWish) field(i int) string { return "template.variables[" + strconv.Itoa(i) + "]" }

// refusal returns the public form of a fault in the variables.
func (w *templateWish) refusal(fault *platforms.FieldError) error {
	place := slices.IndexFunc(w.Variables, func(v templateValue) bool { return v.Name == fault.Field })
	switch {
	case place >= 0:
		field := w.field(place) + ".value"
		return handlers.InvalidRequest(field, "%s %s.", field, fault.Problem)
	case fault.Field != "":
		return handlers.InvalidRequest("template.variables", "The value of the template's variable %s %s.", fault.Field, fault.Problem)
	}
	return handlers.InvalidRequest("template.variables", "template.variables %s.", fault.Problem)
}

// findTemplate looks for an approved template by name and language on a channel. forgive uncounts the question that found it. The error is
// public.
func (d *Deps) findTemplate(
	ctx context.Context, channel *store.Channel, wish *templateWish,
) (template platforms.Template, forgive func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, templatesTimeout)
	defer cancel()
	query := platforms.TemplateQuery{Name: wish.Name}
	for range maxTemplatePages {
		page, forgive, err := d.readTemplates(ctx, channel, query)
		if err != nil {
			return template, nil, err
		}
		found := slices.IndexFunc(page.Templates, func(t platforms.Template) bool { return t.Name == wish.Name && t.Language == wish.Language })
		if found >= 0 {
			return page.Templates[found], forgive, nil
		}
		if query.After = page.Next; query.After == "" {
			break
		}
	}
	return template, nil, handlers.InvalidRequest("template.name", "The platform has no approved template with this name and language.")
}

// filledTemplate is a template that can be sent.
type filledTemplate struct {
	text    string
	stored  []byte // as the worker sends it
	forgive func() // uncounts the question to the platform
}

// fillTemplate reads the wished template from the channel's platform and fills its variables in. The error is public.
func (d *Deps) fillTemplate(ctx context.Context, channel *store.Channel, wish *templateWish) (filled filledTemplate, err error) {
	template, forgive, err := d.findTemplate(ctx, channel, wish)
	if err != nil {
		return filled, err
	}
	if template.Needs != "" {
		return filled, handlers.InvalidRequest("template.name", "This template needs %s, which can't be given here.", template.Needs)
	}
	values, err := wish.values()
	if err != nil {
		return filled, err
	}
	sendable, text, err := template.Fill(values)
	if fault, ok := errors.AsType[*platforms.FieldError](err); ok {
		return filled, wish.refusal(fault)
	}
	if err != nil {
		return filled, handlers.Internal(err)
	}
	return filledTemplate{text, handlers.Marshal(sendable), forgive}, nil
}
