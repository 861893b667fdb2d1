package dashboard

import "net/url"

// overviewData is what the first page shows.
type overviewData struct {
	Wallet wallet
	// Plot is of the last 30 days; nil when it can't be drawn now.
	Plot *plot
	// Channels are those that somebody must do something about.
	Channels []channel
	// Waiting are conversations that somebody should look at; More: there are others.
	Waiting []conversation
	More    bool
	// Agents is how many assistants there are, as far as the first steps want to know: none or some.
	Agents, AllChannels int
}

func overviewPage() page {
	return page{path: root, template: "overview", title: "Overview", show: showOverview}
}

func showOverview(v *visit) (any, error) {
	var shown overviewData
	if err := v.get("/wallet", nil, &shown.Wallet); err != nil {
		return nil, err
	}
	var spent spend
	var err error
	if shown.Plot, err = v.plotOf(&spent, v.get("/wallet/spend", nil, &spent)); err != nil {
		return nil, err
	}
	channels, err := everything[channel](v, "/channels")
	if err != nil {
		return nil, err
	}
	shown.AllChannels = len(channels)
	for _, one := range channels {
		if one.State != channelActive {
			shown.Channels = append(shown.Channels, one)
		}
	}
	var agents list[agent]
	if err := v.get("/agents", url.Values{"limit": {"1"}}, &agents); err != nil {
		return nil, err
	}
	shown.Agents = len(agents.Data)
	var waiting list[conversation]
	if err := v.get("/conversations", url.Values{"limit": {"10"}, "attention": {"true"}, "order": {"recent"}}, &waiting); err != nil {
		return nil, err
	}
	shown.Waiting, shown.More = waiting.Data, waiting.NextCursor != ""
	return shown, nil
}
