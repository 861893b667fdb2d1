package console

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const usagePath = root + "/usage"

// usageData is the data of the page of usage and margin.
type usageData struct {
	Filter ui.Form
	// By is the sort of the rows.
	By   string
	Rows []usageRow
	// Money is the plot of the selected days. It is nil if no call was charged.
	Money *ui.Drawing
	Pager ui.Pager
	// File is the address of the rows as CSV.
	File string
}

// usageRow is a row of usage with the address of the things that it counts.
type usageRow struct {
	api.UsageObject

	Label, Path string
}

var usageForm = ui.FormOf(api.ListUsage, ui.Form{ID: "usage-filter", Action: usagePath, Submit: "Show"},
	ui.Field{Name: "by", Label: "By", Options: []ui.Option{
		{Value: "day", Label: "Day"},
		{Value: "organization", Label: "Organization"},
		{Value: "model", Label: "Model"},
		{Value: "vendor", Label: "Vendor"},
		{Value: "key", Label: "API key"},
	}},
	ui.Field{Name: "from", Kind: ui.DateField, Label: "First day"},
	ui.Field{Name: "to", Kind: ui.DateField, Label: "Last day"},
	ui.Field{Name: "orgId", Label: "Id of an organization"},
	ui.Field{Name: "model", Label: "Model"},
	ui.Field{Name: "environment", Label: "Environment", Options: []ui.Option{{Value: "live", Label: "Live"}, {Value: "test", Label: "Test"}}},
)

// usageParameters are the parameters of the address of usage.
var usageParameters = []string{"by", "from", "to", "orgId", "model", "environment"}

// callParameters are the parameters of the address of the calls of an organization.
var callParameters = []string{"environment", "from", "to", "keyId", "agentId", "model", "outcome"}

// listed returns the input of a list: up to 100 rows from the cursor of the page's address, with other parameters of the address.
func (req *request) listed(names ...string) values {
	in := req.parameters(append(names, "cursor")...)
	in["limit"] = "100"
	return in
}

// parameters returns parameters of the page's address as the input of an operation.
func (req *request) parameters(names ...string) values {
	in := values{}
	for _, name := range names {
		in[name] = req.Query(name)
	}
	return in
}

// filePage returns the address of a list as CSV, with parameters of the page of the list.
func filePage(path string, o api.Operation, parameters ...string) page {
	return page{Path: path + ".csv", Title: "Download", Show: func(req *request) (any, error) {
		in := req.parameters(parameters...)
		in["format"] = "csv"
		answer, err := req.Ask(o, in)
		if err != nil {
			return nil, err
		}
		file, ok := answer.(endpoint.File)
		if !ok {
			return nil, errors.New("operation " + o.Spec().ID + " has no file")
		}
		file(req.W, req.R)
		return nil, site.ErrAnswered
	}}
}

// fileAddress returns the address of all rows of the page's list as CSV.
func (req *request) fileAddress() string {
	query := req.R.URL.Query()
	query.Del("cursor")
	return req.Path() + ".csv?" + query.Encode()
}

func showUsage(req *request) (any, error) {
	shown := usageData{By: cmp.Or(req.Query("by"), "day"), Filter: req.Filter(usageForm)}
	in := req.parameters(usageParameters...)
	in["limit"] = "100"
	inDays := maps.Clone(in)
	inDays["by"] = "day"
	days, err := site.AskTable[api.UsageObject](req, api.ListUsage, inDays)
	rows := days
	if err == nil && (shown.By != "day" || req.Query("cursor") != "") {
		in["cursor"] = req.Query("cursor")
		rows, err = site.AskTable[api.UsageObject](req, api.ListUsage, in)
	}
	if refused, ok := errors.AsType[*handlers.Error](err); ok && refused.Field != "" && refused.Field != "cursor" {
		shown.Filter.Refuse(req.Translated(req.RefusalOf(refused)))
		return shown, nil
	}
	if err != nil {
		return nil, err
	}
	shown.Money, shown.Pager = req.moneyPlot(days.Data), req.Pager(rows.NextCursor)
	shown.File = req.fileAddress()
	for _, row := range rows.Data {
		made := usageRow{UsageObject: row, Label: row.ID, Path: usageRowPath(shown.By, row.ID, req.R.URL.Query())}
		if row.Name != nil {
			made.Label = *row.Name
		} else if shown.By == "day" {
			made.Label = req.Say.Day(row.ID)
		}
		shown.Rows = append(shown.Rows, made)
	}
	return shown, nil
}

// usageRowPath returns the address of the things that a row of usage counts, with the filters of the page.
func usageRowPath(by, id string, query url.Values) string {
	next, orgID := url.Values{}, query.Get("orgId")
	for _, name := range usageParameters {
		if query.Get(name) != "" {
			next.Set(name, query.Get(name))
		}
	}
	switch {
	case by == "key":
		return organizationPath(orgID) + "/keys"
	case by == "vendor":
		return root + "/vendors"
	case by == "day" && orgID != "":
		return organizationPath(orgID) + "/calls?" + url.Values{"from": {id}, "to": {id}, "environment": query["environment"]}.Encode()
	case by == "day":
		next.Set("by", "organization")
		next.Set("from", id)
		next.Set("to", id)
	case by == "organization":
		next.Set("by", "model")
		next.Set("orgId", id)
	default:
		next.Set("by", "day")
		next.Set("model", id)
	}
	return usagePath + "?" + next.Encode()
}

// moneyPlot returns the plot of the vendors' cost with the margin above it. It returns nil if there are no rows. Rows are days, oldest first.
func (req *request) moneyPlot(rows []api.UsageObject) *ui.Drawing {
	if len(rows) == 0 {
		return nil
	}
	first, last := rows[0].ID, rows[len(rows)-1].ID
	p := ui.Plot{
		ID: "money", Title: req.Say.T("Charged and cost"), Step: req.Say.T("Day"), Name: req.Say.Day, Format: req.Say.Decimal,
		Steps:  ui.Days(first, last),
		Series: []ui.Series{{Name: req.Say.T("Vendors' cost")}, {Name: req.Say.T("Margin"), Colour: 2}},
	}
	charged := int64(0)
	for _, day := range p.Steps {
		cost, margin := int64(0), int64(0)
		if rows[0].ID == day {
			cost, margin = micros(rows[0].CostMicros), micros(rows[0].MarginMicros)
			charged += micros(rows[0].ChargedMicros)
			rows = rows[min(1, len(rows)-1):]
		}
		p.Series[0].Values, p.Series[1].Values = append(p.Series[0].Values, cost), append(p.Series[1].Values, margin)
	}
	total := req.Say.Amount(strconv.FormatInt(charged, 10))
	p.Sentence = req.Say.Tf("%s from %s to %s. The table below has the figures.", total, req.Say.Day(first), req.Say.Day(last))
	return p.Draw()
}

// micros returns an amount of the API. A malformed amount counts as 0.
func micros(text string) int64 {
	amount, _ := strconv.ParseInt(text, 10, 64)
	return amount
}
