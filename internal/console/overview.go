package console

import (
	"net/url"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// overviewData is the data of the overview.
type overviewData struct {
	// AsOf is the time of the figures, for pages without the script.
	AsOf       string
	Conditions []condition
	// Figures are numbers of the service, Queue is the depth of the queue.
	Figures, Queue []ui.Figure
	// Money is the plot of the last 30 days. It is nil if no call was charged.
	Money    *ui.Drawing
	Wallets  []endingWallet
	Overview *api.OverviewObject

	Doctor, Vendors, Actions any
	// Findings is the number of the doctor's findings. Unfinished: the last run was cut off.
	Findings   int64
	Unfinished bool
	RunDoctor  *ui.Form
}

// condition is a condition with the address of the page about it, which may be empty.
type condition struct {
	Kind, Severity, Text, Action, Node, Since, Path string
}

// endingWallet is a wallet that ends soon with the time that is left. Badge is bad for the last day, and warn for the days before.
type endingWallet struct {
	api.EndingWallet

	Lasts, Badge string
}

// conditionPaths are the addresses of the pages about conditions, by their kinds. Kinds without a page are left out.
var conditionPaths = map[string]string{
	"vendor_failing": root + "/vendors", "other_model": root + "/vendors", "queue_waits": root + "/queue", "turns_stalled": root + "/queue",
	"turns_dead": root + "/queue#dead", "doctor_findings": "#doctor", "payments_wait": paymentsPath,
	"wallet_ends": organizationPath("{subject}"), "channel_pending": searchPath + "?q={subject}",
	"channel_needs_reauth": searchPath + "?q={subject}", "channel_expiring": searchPath + "?q={subject}",
	"model_ends": usagePath + "?by=organization&model={subject}", "price_changes": usagePath + "?by=organization&model={subject}",
}

var doctorForm = ui.FormOf(api.RunDoctor, ui.Form{ID: "doctor-run", Action: root + "/doctor", Submit: "Run again"})

func showOverview(req *request) (any, error) {
	shown := overviewData{AsOf: time.Now().UTC().Format("15:04"), Overview: site.Read(req, api.GetOverview, nil)}
	for _, c := range site.Read(req, api.ListConditions, nil).Data {
		path := strings.ReplaceAll(conditionPaths[c.Kind], "{subject}", url.QueryEscape(c.Subject))
		shown.Conditions = append(shown.Conditions, condition{c.Kind, c.Severity, c.Text, c.Action, c.Node, c.Since, path})
	}
	if shown.Figures = req.overviewFigures(shown.Overview); req.Query("fragment") != "" {
		return shown, nil
	}
	shown.Money = req.moneyPlot(shown.Overview.Days)
	for _, wallet := range shown.Overview.EndingWallets {
		made := endingWallet{EndingWallet: wallet, Badge: "warn"}
		if days := wallet.DaysLeft; days != nil {
			made.Lasts = req.Say.Tf("%.1f days", *days)
			if *days < 1 {
				made.Badge = "bad"
			}
		}
		shown.Wallets = append(shown.Wallets, made)
	}
	doctor := site.Read(req, api.GetDoctor, nil)
	shown.Doctor, shown.Vendors = doctor, site.Read(req, api.ListVendors, nil).Data
	shown.Actions = site.Read(req, api.ListActions, values{"limit": "8"}).Data
	shown.Unfinished = doctor.State != nil && *doctor.State == "unfinished"
	for _, invariant := range doctor.Invariants {
		shown.Findings += int64(len(invariant.Findings))
	}
	if req.may("doctor:write") && doctor.RunningSince == nil {
		shown.RunDoctor = new(req.Form(doctorForm))
	}
	shown.Queue = req.queueFigures()
	return shown, nil
}

// overviewFigures returns the numbers of the service. Each leads to the list of the things that it counts.
func (req *request) overviewFigures(o *api.OverviewObject) []ui.Figure {
	week := time.Now().AddDate(0, 0, -7).UTC().Format(time.RFC3339)
	minutes, last := o.CallsByMinute, int64(0)
	if len(minutes) > 0 {
		last = minutes[len(minutes)-1]
	}
	calls := req.figure("calls", "Calls a minute", last, usagePath+"?by=organization")
	calls.Spark = ui.NewSpark(req.Say.Tf("Calls of each of the last %d minutes", len(minutes)), minutes)
	waiting := req.figure("waiting-customers", "Customers wait longer than 15 minutes", o.Waiting, "#waits")
	waiting.Note = req.Say.Tf("in %d organizations", o.WaitingIn)
	days := &o.Last30Days
	charged := req.money("charged", "Charged, 30 days", days.ChargedMicros, usagePath)
	margin := req.money("margin", "Margin, 30 days", days.MarginMicros, usagePath+"?by=model")
	if days.MarginPercent != nil {
		margin.Note = req.Say.Tf("%.1f %% of the charges", *days.MarginPercent)
	}
	req.compare(&charged, "%+.1f %%", days.ChargedChange)
	req.compare(&margin, "%+.1f points", days.MarginPercentChange)
	return []ui.Figure{
		req.figure("organizations", "Organizations", o.Organizations, organizationsPath),
		req.figure("new-organizations", "New in 7 days", o.NewOrganizations, organizationsPath+"?createdSince="+url.QueryEscape(week)),
		req.figure("suspended", "Suspended", o.Suspended, organizationsPath+"?suspended=true"),
		calls, charged, margin, waiting,
	}
}

// compare adds the change against the 30 days before. Nil adds nothing.
func (req *request) compare(figure *ui.Figure, format text.Text, change *float64) {
	if change == nil {
		return
	}
	figure.Change, figure.Trend = req.Say.Tf(format, *change), "good"
	if *change < 0 {
		figure.Trend = "warn"
	}
}
