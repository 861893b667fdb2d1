package dashboard

import "net/http"

// draft is an answer that the assistant proposes, as the API shows it.
type draft struct {
	ID        string `json:"id"`
	Text      string `json:"text"`
	CreatedAt string `json:"createdAt"`
}

// draftData is the part of a conversation's page with a proposed answer; its forms are empty without one.
type draftData struct {
	draft

	Send, Discard form
}

// addDraft reads what waits to be sent. It may have ended since the conversation was read.
func (req *pageRequest) addDraft(data *conversationData, here string) error {
	waiting, err := req.waitingDraft()
	if err != nil {
		return err
	}
	if waiting.ID == "" {
		return nil
	}
	id := field{Name: "draftId", Kind: hiddenField, Value: waiting.ID}
	data.Draft = draftData{draft: waiting, Send: req.form(form{
		ID: "draft-send", Action: here + "/draft", Submit: "Send to the customer", Fields: []field{id, {
			Name: "text", Kind: areaField, Label: "The assistant proposes", Value: waiting.Text, Required: true, MaxLength: 20_000, Rows: 8,
			Hint: "Send it as it is, or change it first. When the customer writes again, a new proposal takes its place.",
		}},
	})}
	discard := button("draft-discard", here+"/discard", "Discard", "Discard the proposed answer? The customer gets no answer from the assistant.")
	discard.Fields = []field{id}
	data.Draft.Discard = req.form(discard)
	return nil
}

// waitingDraft reads the conversation's draft; its id is "" without one.
func (req *pageRequest) waitingDraft() (draft, error) {
	var drafts list[draft]
	if err := req.get("/conversations/"+req.id()+"/drafts", nil, &drafts); err != nil || len(drafts.Data) == 0 {
		return draft{}, err
	}
	return drafts.Data[0], nil
}

// draftPath returns the API's path of the draft that the form is about.
func (req *pageRequest) draftPath() (path string, err error) {
	id := req.text("draftId")
	if !wellFormedID(id) {
		return "", &apiError{Status: http.StatusNotFound, Code: codeNotFound, Message: "There is no such proposal."}
	}
	return "/conversations/" + req.id() + "/drafts/" + id, nil
}

// sendDraft sends a draft: split into messages as it was proposed, or with the person's text if they have changed it.
func sendDraft(req *pageRequest) (outcome, error) {
	path, err := req.draftPath()
	if err != nil {
		return outcome{}, err
	}
	waiting, err := req.waitingDraft()
	if err != nil {
		return outcome{}, err
	}
	body := object{"text": req.text("text")}
	if waiting.Text == req.text("text") {
		body = object{}
	}
	return goTo(conversationsPath + "/" + req.id()), req.explained(req.send(http.MethodPost, path+"/send", body, nil))
}

func discardDraft(req *pageRequest) (outcome, error) {
	path, err := req.draftPath()
	if err != nil {
		return outcome{}, err
	}
	return goTo(conversationsPath + "/" + req.id()), req.send(http.MethodDelete, path, nil, nil)
}
