package caddymodule

import (
	"regexp"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// Plan is a named set of limits for organizations. The first plan of the list is the one an organization
// gets when none is named at its creation. A limit that is not given has its default.
type Plan struct {
	// The name by which organizations refer to the plan: 1 to 64 letters, digits, dots, hyphens and underscores, the
	// first one a letter or digit. Required, unique.
	Name string `json:"name,omitempty"`

	// How many authenticated requests to `/v1` an organization may make within one minute of the clock, from 1 to
	// 1,000,000,000. Beyond it they get 429 `rate_limited`. Default: unlimited.
	RequestsPerMinute *int64 `json:"requests_per_minute,omitempty"`

	// How many messaging channels an organization may have, from 1 to 1,000,000. One more gets 402
	// `plan_limit_exceeded`; the operator's `caddy svc channel create` may go beyond it. Default: 1000.
	Channels *int64 `json:"channels,omitempty"`

	// How many bytes the documents of all knowledge bases of an organization may have together, from 0 to 1 PiB. More
	// get 402 `plan_limit_exceeded`. Default: 1GiB.
	KnowledgeBytes *int64 `json:"knowledge_bytes,omitempty"`
}

// Defaults of plans.
const (
	DefaultPlanChannels  = 1000
	DefaultPlanKnowledge = 1 << 30
)

var blockName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// isBlockName reports whether a plan or a provider can have the name; blockNameForm says it in words.
func isBlockName(name string) bool { return len(name) <= 64 && blockName.MatchString(name) }

const blockNameForm = "1 to 64 letters, digits, dots, hyphens and underscores, beginning with a letter or digit"

func (p *Plan) faults(fs *config.Faults, path string) {
	if !isBlockName(p.Name) {
		fs.Addf(path, "the name must be %s", blockNameForm)
	}
	fs.OptionalBetween(path+".requests_per_minute", p.RequestsPerMinute, 1, 1_000_000_000)
	fs.OptionalBetween(path+".channels", p.Channels, 1, 1_000_000)
	fs.OptionalBetween(path+".knowledge_bytes", p.KnowledgeBytes, 0, 1<<50)
}

// readPlan reads `plan NAME { … }`; [App.UnmarshalCaddyfile] has the syntax.
func (a *App) readPlan(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		plan := &Plan{Name: o.Args[0].Text}
		r.Block(path, o, []caddyfile.Rule{
			{Word: "requests_per_minute", Read: r.Integer(&plan.RequestsPerMinute)},
			{Word: "channels", Read: r.Integer(&plan.Channels)},
			{Word: "knowledge_bytes", Read: r.Size(&plan.KnowledgeBytes)},
		})
		caddyfile.Set(r, path, o, &a.Plans, append(a.Plans, plan))
	}
}
