package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Bounds of the questions to platforms within one minute of the clock, by one process. A tenant causes them with tokens of its choice, while
// platforms count calls by the operator's application and address: without bounds one tenant could have all of them throttled.
const (
	// AccountQuestionsPerMinute bounds how often an organization has platforms asked whose account credentials belong to. The same
	// credentials of a channel are asked for once.
	AccountQuestionsPerMinute = 10
	// TemplatePagesPerMinute bounds the pages of templates that an organization has platforms asked for, without those in which a template was
	// found to be sent.
	TemplatePagesPerMinute = 60
)

// questions bounds the questions to platforms.
type questions struct {
	rates   *endpoint.Rates
	running sync.Map // the ids of channels whose account is being asked for
}

// question is one that may be asked about a channel. It counts when it is asked.
type question struct {
	asked   bool
	counted []func() // uncount it
	done    func()
}

// account begins the question whose account a channel's credentials of that version belong to. The caller ends it.
func (q *questions) account(ctx context.Context, channel *store.Channel, version int64) (*question, error) {
	if _, runs := q.running.LoadOrStore(channel.ID, true); runs {
		return nil, &handlers.Error{
			Code: errcode.RateLimited, RetryAfter: identifyTimeout, Message: "The platform is being asked for this channel. Wait for the answer.",
		}
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

// templatesKey names a page as it was asked for. Other credentials may see other templates.
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
