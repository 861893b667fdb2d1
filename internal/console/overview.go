package console

import (
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

// overviewData is the data of the overview.
type overviewData struct {
	Figures          []ui.Figure
	Vendors, Actions any
}

func showOverview(req *request) (any, error) {
	figures, err := req.queueFigures()
	if err != nil {
		return nil, err
	}
	vendors, err := ask(req, api.ListVendors, nil)
	if err != nil {
		return nil, err
	}
	actions, err := ask(req, api.ListActions, values{"limit": "8"})
	if err != nil {
		return nil, err
	}
	return overviewData{figures, vendors.Data, actions.Data}, nil
}
