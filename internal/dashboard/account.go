package dashboard

import "net/http"

const accountPath = root + "/account"

// liveSession is one of the person's sessions, as GET /session/all has it.
type liveSession struct {
	Current   bool   `json:"current"`
	Client    string `json:"client"`
	CreatedAt string `json:"createdAt"`
	SeenAt    string `json:"seenAt"`
}

type accountData struct {
	Sessions        []liveSession
	Password, Leave form
}

func accountPage() page {
	return page{
		path: accountPath, template: "account", title: "Your account",
		show: showAccount,
		actions: []action{
			{
				verb: "password", form: "account-password", done: "Your password was changed, and your other sessions have ended.",
				secrets: []string{"currentPassword", "password"}, maxBody: maxFormWithoutSession, do: changePassword,
			},
			{
				verb: "leave", form: "account-leave", done: "You are signed out everywhere.",
				maxBody: maxFormWithoutSession, do: signOutEverywhere,
			},
		},
	}
}

func showAccount(req *pageRequest) (any, error) {
	var sessions list[liveSession]
	if err := req.get("/session/all", nil, &sessions); err != nil {
		return nil, err
	}
	return accountData{
		Sessions: sessions.Data,
		Password: req.form(form{ID: "account-password", Action: accountPath + "/password", Submit: "Change password", Fields: []field{
			{Name: "currentPassword", Kind: secretField, Label: "Current password", Required: true, Autocomplete: "current-password"},
			{
				Name: "password", Kind: secretField, Label: "New password", Required: true, Autocomplete: "new-password",
				Hint: "At least 12 characters, and none of the commonest passwords.",
			},
		}}),
		Leave: req.form(button("account-leave", accountPath+"/leave", "Sign out everywhere", "Sign out on all devices, this one too?")),
	}, nil
}

func signOutEverywhere(req *pageRequest) (outcome, error) {
	return goTo(loginPath), req.send(http.MethodDelete, "/session/all", nil, nil)
}

func changePassword(req *pageRequest) (outcome, error) {
	body := object{"currentPassword": req.text("currentPassword"), "password": req.text("password")}
	return goTo(accountPath), req.send(http.MethodPut, "/session/password", body, nil)
}
