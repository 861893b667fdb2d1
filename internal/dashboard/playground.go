package dashboard

import "net/http"

// maxTry bounds what the playground's script sends, in bytes.
const maxTry = 1 << 20

// playgroundData is the assistant that is tried.
type playgroundData struct{ Agent agent }

// PageTitle names the assistant.
func (d *playgroundData) PageTitle() string { return "Playground: " + d.Agent.Name }

// playgroundPage lets a person speak to an assistant as a customer would. Its script keeps what was said and sends it to the
// relay, whose answer is the stream of spec §2.6.
func playgroundPage() page {
	return page{
		path: agentsPath + "/{id}/playground", template: "playground", title: "Playground", section: agentsPath,
		scripts: []string{"playground.js"},
		show: func(v *visit) (any, error) {
			data := playgroundData{}
			err := v.get("/agents/"+v.id(), nil, &data.Agent)
			return &data, err
		},
		relays: []relay{{method: http.MethodPost, name: "stream", maxBody: maxTry, ask: askAgent}},
	}
}

func askAgent(v *visit) (apiRequest, error) {
	said, err := v.readJSON()
	if err != nil {
		return apiRequest{}, err
	}
	return apiRequest{
		method: http.MethodPost, path: "/agents/" + v.id() + "/playground", body: said,
		accept: "text/event-stream",
	}, nil
}
