package dashboard

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

const (
	loginPath  = root + "/login"
	logoutPath = root + "/logout"
)

// signInPage is what the pages of signing in show.
type signInPage struct {
	// Refusal is why nobody can sign in this way; then there is no form.
	Refusal string
	Form    form
}

func (v *visit) signInPage(f form) (any, error) {
	if refusal := v.d.config.SignInRefusal(v.r); refusal != "" {
		return signInPage{Refusal: refusal}, nil
	}
	return signInPage{Form: v.form(f)}, nil
}

func loginPage() page {
	return page{
		path: loginPath, template: "login", title: "Sign in", public: true,
		show: func(v *visit) (any, error) {
			return v.signInPage(form{
				ID: "login", Submit: "Sign in", Fields: []field{
					{Name: "email", Kind: emailField, Label: "E-mail address", Required: true, Autocomplete: "username"},
					{Name: "password", Kind: secretField, Label: "Password", Required: true, Autocomplete: "current-password"},
				},
			})
		},
		actions: []action{
			{form: "login", secrets: []string{"password"}, do: signIn},
		},
	}
}

func signIn(v *visit) (outcome, error) {
	err := v.send(http.MethodPost, "/session", object{"email": v.text("email"), "password": v.text("password")}, nil)
	return goTo(v.next()), err
}

// next is the page that somebody wanted before signing in: one of ours, whatever the address says.
func (v *visit) next() string {
	next, err := url.Parse(v.query("next"))
	if err != nil || next.Host != "" || next.Scheme != "" || next.Path != path.Clean(next.Path) {
		return root
	}
	if next.Path != root && !strings.HasPrefix(next.Path, root+"/") {
		return root
	}
	return next.RequestURI()
}

// welcomePage takes a one-time link. What stands behind its # never leaves the browser by itself: the script puts it into
// the form; without the script the person does.
func welcomePage() page {
	return page{
		path: root + "/welcome", template: "welcome", title: "Set your password", public: true,
		show: func(v *visit) (any, error) {
			return v.signInPage(form{
				ID: "welcome", Submit: "Set the password and sign in", Fields: []field{
					{
						Name: "token", Kind: textField, Label: "Code of the link", Required: true, Autocomplete: "off",
						Hint: "What stands behind the # of the link that you were given. It works once.",
					},
					{
						Name: "password", Kind: secretField, Label: "New password", Required: true, Autocomplete: "new-password",
						Hint: "At least 12 characters.",
					},
				},
			})
		},
		actions: []action{
			{form: "welcome", secrets: []string{"password"}, do: setPassword},
		},
	}
}

func setPassword(v *visit) (outcome, error) {
	body := object{"token": strings.TrimSpace(v.text("token")), "password": v.text("password")}
	return goTo(root), v.send(http.MethodPost, "/session/password", body, nil)
}

// signOutPage has no page of its own, only what the button in every page's head does.
func signOutPage() page {
	p := forward(logoutPath, loginPath)
	p.actions = []action{{form: "logout", done: "You are signed out.", do: func(v *visit) (outcome, error) {
		return goTo(loginPath), v.send(http.MethodDelete, "/session", nil, nil)
	}}}
	return p
}
