package dashboard

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const budgetsPath = walletPath + "/budgets"

// budgetRow is a budget in a list.
type budgetRow struct{ api.BudgetObject }

// Limit is the limit with its rises, in micros.
func (b budgetRow) Limit() string {
	return strconv.FormatInt(micros(b.LimitMicros)+micros(b.RisenMicros), 10)
}

// share returns the spent part of the limit.
func (b budgetRow) share() float64 {
	return float64(micros(b.SpentMicros)) / float64(micros(b.Limit()))
}

// budgets reads the open budgets of wallets, those nearest to their limits first.
func (req *pageRequest) budgets(environments ...string) (rows []budgetRow) {
	for _, environment := range environments {
		for _, budget := range site.Read(req, api.ListBudgets, values{"environment": environment}).Data {
			rows = append(rows, budgetRow{budget})
		}
	}
	slices.SortStableFunc(rows, func(a, b budgetRow) int { return cmp.Compare(b.share(), a.share()) })
	return rows
}

// keyBudgets reads the budgets of API keys by the ids of their keys.
func (req *pageRequest) keyBudgets() map[string][]budgetRow {
	of := map[string][]budgetRow{}
	for _, row := range req.budgets("live", "test") {
		of[text(row.KeyID)] = append(of[text(row.KeyID)], row)
	}
	return of
}

var (
	periods = []option{
		{Value: "day", Label: "day"},
		{Value: "week", Label: "week"},
		{Value: "month", Label: "month", Selected: true},
		{Value: "total", Label: "total"},
	}
	budgetName  = field{Name: "name", Label: "Name", Hint: "Refused programs read it."}
	budgetLimit = field{Name: "limitMicros", Label: "Limit", Micros: true}

	budgetForm = ui.FormOf(
		api.CreateBudget, form{ID: "budget-create", Submit: "Set the budget"}, budgetName, budgetLimit,
		field{Name: "period", Label: "Holds for", Options: periods, Hint: "Days, weeks from Monday, and months in your organization's time zone."},
		field{Name: "keyId", Kind: ui.SelectField, Label: "Only calls with the key"},
		field{Name: "agentId", Kind: ui.SelectField, Label: "Only answers of the assistant"},
		field{Name: "environment", Label: "Environment", Options: []option{{Value: "live", Label: "Live"}, {Value: "test", Label: "Test"}}},
	)
	budgetEditForm = ui.FormOf(api.UpdateBudget, form{ID: "budget-edit", Submit: "Save"}, budgetName, budgetLimit)
	budgetRiseForm = ui.FormOf(
		api.RaiseBudget, form{ID: "budget-raise", Submit: "Raise for now"},
		field{Name: "amountMicros", Label: "Amount on top", Micros: true},
		field{Name: "endsAt", Kind: ui.DateField, Label: "Last day", Hint: "In your organization's time zone."},
		field{Name: "reason", Label: "Reason"},
	)
)

// editBudget returns the form of a budget with a hint about the amount that a new limit frees.
func (req *pageRequest) editBudget(id string, b *api.BudgetObject) form {
	edit := budgetEditForm.Of(budgetsPath+"/"+b.ID, b)
	hint := ui.Text("%s are spent and %s reserved. Above them, a new limit is free immediately; below, the next call is refused.")
	edit.ID, edit.Fields[1].Hint = id, req.Phrase(hint, req.Say.Amount(b.SpentMicros), req.Say.Amount(b.ReservedMicros))
	return req.Form(edit)
}

type budgetData struct {
	budgetRow

	Rises             []riseRow
	Edit, Raise, Done form
}

func (d *budgetData) PageTitle() string { return d.Name }

// riseRow is a rise with the button in its row.
type riseRow struct {
	api.BudgetRiseObject

	End form
}

var budgetPages = []page{
	{
		Path: budgetsPath, Template: "budgets", Title: "Budgets",
		Show: func(req *pageRequest) (any, error) {
			shown := listData[budgetRow]{List: req.budgets("live", "test")}
			if req.session.Administers() {
				keys, agents := req.callers()
				shown.Create = req.Form(budgetForm.With("keyId", keys).With("agentId", agents))
			}
			return shown, nil
		},
		Actions: []action{{
			Form: "budget-create", Done: "The budget holds from the next call on.",
			Do: create(api.CreateBudget, budgetForm, budgetsPath, func(b *api.BudgetDetail) string { return b.ID }),
		}},
	},
	{
		Path: budgetsPath + "/{id}", Template: "budget", Title: "Budget", Section: budgetsPath, Show: showBudget,
		Actions: []action{
			{Form: "budget-edit", Done: "The budget is saved and holds from the next call on.", Do: submit("", api.UpdateBudget, budgetEditForm)},
			{Verb: "raise", Form: "budget-raise", Done: "The limit is raised from the next call on.", Do: raiseBudget},
			{Verb: "lower", Form: "budget-lower", Done: "The rise has ended.", Do: run("", api.EndBudgetRise)},
			button("budget-end", budgetsPath, api.EndBudget, "The budget has ended."),
		},
	},
}

func showBudget(req *pageRequest) (any, error) {
	budget := site.Read(req, api.GetBudget, values{"id": req.ID()})
	question := req.Phrase("End the budget %s? Its calls have no such limit then.", budget.Name)
	shown := &budgetData{
		budgetRow: budgetRow{budget.BudgetObject}, Edit: req.editBudget("budget-edit", &budget.BudgetObject),
		Raise: req.Form(budgetRiseForm.Of(req.Path()+"/raise", nil)), Done: req.button("budget-end", "", "End the budget", question),
	}
	for _, rise := range budget.Rises {
		shown.Rises = append(shown.Rises, riseRow{rise, req.button("budget-lower", rise.ID, "End", "", "riseId", rise.ID)})
	}
	return shown, nil
}

// raiseBudget raises a limit until the end of a day.
func raiseBudget(req *pageRequest) (string, error) {
	in, err := budgetRiseForm.Read(req.Sent, values{"id": req.ID()})
	if err != nil {
		return "", err
	}
	organization, err := site.Ask(req, api.GetOrganization, nil)
	if err != nil {
		return "", err
	}
	zone, err := time.LoadLocation(organization.TimeZone)
	if err != nil {
		zone = time.UTC // of a newer program
	}
	if day, err := time.ParseInLocation(time.DateOnly, req.Text("endsAt"), zone); err == nil {
		in["endsAt"] = day.AddDate(0, 0, 1).Format(time.RFC3339)
	}
	return req.Path(), req.Run(api.RaiseBudget, in)
}
