package dashboard

import "net/http"

type channelData struct {
	Channel channel
	Type    channelType
	// Steps are left to do at the platform.
	Steps     []string
	AgentName string
	// Snippet is the line of HTML that shows the widget on a page.
	Snippet string

	Verify    form
	Reconnect form
	Edit      form
	Delete    form
}

func (d *channelData) PageTitle() string { return d.Channel.Name }

func channelPage(secrets []string) page {
	return page{
		path: channelsPath + "/{id}", template: "channel", title: "Channel", section: channelsPath,
		show: showChannel,
		actions: []action{
			{form: "channel-edit", done: "The channel was changed.", do: changeChannel},
			{verb: "verify", form: "channel-verify", do: verifyChannel},
			{
				verb: "reconnect", form: "channel-reconnect", done: "The channel has its new credentials.", secrets: secrets,
				do: reconnectChannel,
			},
			{verb: "delete", form: "channel-delete", done: "The channel was deleted.", do: func(req *pageRequest) (outcome, error) {
				return goTo(channelsPath), req.send(http.MethodDelete, "/channels/"+req.id(), nil, nil)
			}},
		},
	}
}

func showChannel(req *pageRequest) (any, error) {
	data := channelData{}
	c := &data.Channel
	if err := req.get("/channels/"+req.id(), nil, c); err != nil {
		return nil, err
	}
	agents, err := req.namedOptions("/agents", "Nobody", c.AgentID)
	if err != nil {
		return nil, err
	}
	data.Type, _ = req.d.channelTypeOf(c.Type)
	data.Steps, data.AgentName = data.Type.after(c.WebhookURL), labelOf(agents, c.AgentID)
	if c.Type == widgetTypeName {
		data.Snippet = widgetSnippet(req.d.config.BaseURL, c.ID)
	}
	if req.session.Administers() {
		req.addChannelForms(&data, agents)
	}
	return &data, nil
}

// addChannelForms makes the forms that the page shows, and no others: the error of a form that isn't shown stands at the top of
// the page.
func (req *pageRequest) addChannelForms(data *channelData, agents []option) {
	c := &data.Channel
	here := channelsPath + "/" + c.ID
	fields := []field{versionField(c.UpdatedAt), channelNameField(c.Name), agentField(agents)}
	fields = append(fields, c.answerRules.fields()...)
	if c.Type == widgetTypeName {
		fields = append(fields, c.widgetSettings.fields()...)
	}
	data.Edit = req.form(form{ID: "channel-edit", Action: here, Submit: "Save", Fields: fields})
	data.Delete = req.form(button("channel-delete", here+"/delete", "Delete the channel",
		"Delete the channel "+c.Name+" with all its conversations? What arrives for it afterwards is dropped."))
	if c.State == channelPending && c.LostExternalID == "" {
		data.Verify = req.form(button("channel-verify", here+"/verify", "Ask the platform again", ""))
	}
	if len(data.Type.Credentials) > 0 && c.LostExternalID == "" {
		data.Reconnect = req.form(form{
			ID: "channel-reconnect", Action: here + "/reconnect", Submit: "Save the new credentials", Fields: data.Type.newCredentials(),
		})
	}
}

func changeChannel(req *pageRequest) (outcome, error) {
	var before channel
	if err := req.get("/channels/"+req.id(), nil, &before); err != nil {
		return outcome{}, err
	}
	if err := req.refuseStale(before.UpdatedAt); err != nil {
		return outcome{}, err
	}
	change := object{"name": req.text("name"), "agentId": orNull(req.text("agentId"))}
	req.addAnswerRules(change)
	if before.Type == widgetTypeName {
		if err := req.addWidgetSettings(change); err != nil {
			return outcome{}, err
		}
	}
	return goTo(channelsPath + "/" + req.id()), req.send(http.MethodPatch, "/channels/"+req.id(), change, nil)
}

type verified struct{ Active bool }

func verifyChannel(req *pageRequest) (outcome, error) {
	var after channel
	err := req.send(http.MethodPost, "/channels/"+req.id()+"/verify", nil, &after)
	return reveal(verified{after.State == channelActive}), err
}

func reconnectChannel(req *pageRequest) (outcome, error) {
	var before channel
	if err := req.get("/channels/"+req.id(), nil, &before); err != nil {
		return outcome{}, err
	}
	of, _ := req.d.channelTypeOf(before.Type)
	return goTo(channelsPath + "/" + req.id()),
		req.send(http.MethodPatch, "/channels/"+req.id(), object{"credentials": req.typedCredentials(&of)}, nil)
}
