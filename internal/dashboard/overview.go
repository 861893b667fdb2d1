package dashboard

import "net/url"

type overviewData struct {
	Wallet wallet
	// Plot shows the last 30 days; nil when it can't be drawn now.
	Plot *plot
	// Channels are those that need attention.
	Channels []channel
	// Waiting are conversations that wait for a person; More reports that there are others.
	Waiting []conversation
	More    bool
	// Agents is 0 or 1: whether there are assistants, for the first steps.
	Agents, AllChannels int
}

func overviewPage() page {
	return page{path: root, template: "overview", title: "Overview", show: showOverview}
}

func showOverview(req *pageRequest) (any, error) {
	var shown overviewData
	if err := req.get("/wallet", nil, &shown.Wallet); err != nil {
		return nil, err
	}
	var spent spend
	var err error
	if shown.Plot, err = req.plotOf(&spent, req.get("/wallet/spend", nil, &spent)); err != nil {
		return nil, err
	}
	channels, err := everything[channel](req, "/channels")
	if err != nil {
		return nil, err
	}
	shown.AllChannels = len(channels)
	for _, one := range channels {
		if !one.Works() {
			shown.Channels = append(shown.Channels, one)
		}
	}
	var agents list[agent]
	if err := req.get("/agents", url.Values{"limit": {"1"}}, &agents); err != nil {
		return nil, err
	}
	shown.Agents = len(agents.Data)
	var waiting list[conversation]
	if err := req.get("/conversations", url.Values{"limit": {"10"}, "waiting": {"true"}, "order": {"recent"}}, &waiting); err != nil {
		return nil, err
	}
	shown.Waiting, shown.More = waiting.Data, waiting.NextCursor != ""
	return shown, nil
}
