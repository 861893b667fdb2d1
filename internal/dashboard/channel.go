package dashboard

import "net/http"

// channelData is what the page of one channel shows.
type channelData struct {
	Channel channel
	Type    channelType
	// Steps are what is left to do at the platform.
	Steps     []string
	AgentName string
	// Snippet is what a page needs to show the widget.
	Snippet string

	Verify    form
	Reconnect form
	Edit      form
	Delete    form
}

// PageTitle is the channel's name.
func (d *channelData) PageTitle() string { return d.Channel.Name }

func channelPage() page {
	return page{
		path: channelsPath + "/{id}", template: "channel", title: "Channel", section: channelsPath,
		show: showChannel,
		actions: []action{
			{form: "channel-edit", done: "The channel was changed.", do: changeChannel},
			{verb: "verify", form: "channel-verify", do: verifyChannel},
			{
				verb: "reconnect", form: "channel-reconnect", done: "The channel has its new credentials.", secrets: secretNames(),
				do: reconnectChannel,
			},
			{verb: "delete", form: "channel-delete", done: "The channel was deleted.", do: func(v *visit) (outcome, error) {
				return goTo(channelsPath), v.send(http.MethodDelete, "/channels/"+v.id(), nil, nil)
			}},
		},
	}
}

func showChannel(v *visit) (any, error) {
	data := channelData{}
	c := &data.Channel
	if err := v.get("/channels/"+v.id(), nil, c); err != nil {
		return nil, err
	}
	agents, err := v.agentOptions("Nobody", c.AgentID)
	if err != nil {
		return nil, err
	}
	data.Type, _ = channelTypeOf(c.Type)
	data.Steps, data.AgentName = data.Type.after(c.WebhookURL), labelOf(agents, c.AgentID)
	if c.Type == widgetTypeName {
		data.Snippet = widgetSnippet(v.d.config.BaseURL, c.ID)
	}
	if v.session.Administers() {
		v.addChannelForms(&data, agents)
	}
	return &data, nil
}

// addChannelForms makes the forms that the page shows, and no others: what was wrong with a form that isn't shown stands at the
// top of the page.
func (v *visit) addChannelForms(data *channelData, agents []option) {
	c := &data.Channel
	here := channelsPath + "/" + c.ID
	fields := []field{versionField(c.UpdatedAt), channelNameField(c.Name), agentField(agents)}
	if c.Type == widgetTypeName {
		fields = append(fields, c.fields()...)
	}
	data.Edit = v.form(form{ID: "channel-edit", Action: here, Submit: "Save", Fields: fields})
	data.Delete = v.form(button("channel-delete", here+"/delete", "Delete the channel",
		"Delete the channel "+c.Name+" with all its conversations? What arrives for it afterwards is dropped."))
	if c.State == channelPending && c.LostExternalID == "" {
		data.Verify = v.form(button("channel-verify", here+"/verify", "Ask the platform again", ""))
	}
	if len(data.Type.Credentials) > 0 && c.LostExternalID == "" {
		data.Reconnect = v.form(form{
			ID: "channel-reconnect", Action: here + "/reconnect", Submit: "Save the new credentials", Fields: data.Type.newCredentials(),
		})
	}
}

func changeChannel(v *visit) (outcome, error) {
	var before channel
	if err := v.get("/channels/"+v.id(), nil, &before); err != nil {
		return outcome{}, err
	}
	if err := v.refuseStale(before.UpdatedAt); err != nil {
		return outcome{}, err
	}
	change := object{"name": v.text("name"), "agentId": orNull(v.text("agentId"))}
	if before.Type == widgetTypeName {
		if err := v.addWidgetSettings(change); err != nil {
			return outcome{}, err
		}
	}
	return goTo(channelsPath + "/" + v.id()), v.send(http.MethodPatch, "/channels/"+v.id(), change, nil)
}

// verified says on the page what the platform answered.
type verified struct{ Active bool }

func verifyChannel(v *visit) (outcome, error) {
	var after channel
	err := v.send(http.MethodPost, "/channels/"+v.id()+"/verify", nil, &after)
	return reveal(verified{after.State == channelActive}), err
}

func reconnectChannel(v *visit) (outcome, error) {
	var before channel
	if err := v.get("/channels/"+v.id(), nil, &before); err != nil {
		return outcome{}, err
	}
	of, _ := channelTypeOf(before.Type)
	return goTo(channelsPath + "/" + v.id()),
		v.send(http.MethodPatch, "/channels/"+v.id(), object{"credentials": v.typedCredentials(&of)}, nil)
}
