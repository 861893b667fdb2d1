package console

import (
	"encoding/base64"
	"html/template"
	"net/url"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

var signInForm = ui.Form{ID: "sign-in", Submit: "Sign in", Fields: []ui.Field{
	{Name: "email", Kind: ui.EmailField, Label: "E-mail address", Required: true, Autocomplete: "username"},
	{Name: "password", Kind: ui.SecretField, Label: "Password", Required: true, Autocomplete: "current-password"},
}}

var welcomeForm = ui.Form{ID: "welcome", Submit: "Set the password", Fields: []ui.Field{
	{Name: "token", Label: "Code of the link", Required: true, Autocomplete: "off", Hint: "The part of your link after the #. It works once."},
	{Name: "password", Kind: ui.SecretField, Label: "New password", Required: true, Autocomplete: "new-password", Hint: "At least 12 characters."},
}}

// codeField is the field of a code.
var codeField = ui.Field{
	Name: "code", Kind: ui.NumberField, Label: "Code of your second factor", Required: true, Autocomplete: "one-time-code",
	Hint: "Six digits of your authenticator app, or a recovery code.",
}

// factorData is the data of the page of the second factor.
type factorData struct {
	// QR is a picture of the secret, which an operator without a second factor reads into an app. Secret is for typing.
	QR     template.URL
	Secret string
	Form   ui.Form
	Next   string
	// Colours is the form of the colours of the pages.
	Colours ui.Form
}

func signInPages() []page {
	operators := func(req *request) *handlers.OperatorSessions { return req.c.config.Operators }
	return []page{
		site.Forward[*request](root+"/{$}", root),
		{
			Path: root + "/sign-in", Template: "sign-in", Title: "Sign in as an operator", Public: true,
			Show: func(req *request) (any, error) { return req.Form(signInForm), operators(req).Allowed(req.R) },
			Actions: []action{{Form: "sign-in", Do: func(req *request) (string, error) {
				_, err := operators(req).SignIn(req.W, req.R, req.Sent.Text("email"), req.Sent.Text("password"))
				return root + "/second-factor?next=" + url.QueryEscape(req.Next()), err
			}}},
		},
		{
			Path: root + "/welcome", Template: "welcome", Title: "Set your password", Public: true,
			Show: func(req *request) (any, error) { return req.Form(welcomeForm), operators(req).Allowed(req.R) },
			Actions: []action{{Form: "welcome", Do: func(req *request) (string, error) {
				_, err := operators(req).UseLink(req.W, req.R, strings.TrimSpace(req.Sent.Text("token")), req.Sent.Text("password"))
				return root + "/second-factor", err
			}}},
		},
		{
			Path: root + "/second-factor", Template: "second-factor", Title: "Second factor", Show: showFactor,
			Actions: []action{{Form: "second-factor", Do: func(req *request) (string, error) {
				code := strings.TrimSpace(req.Sent.Text("code"))
				if secret := req.Sent.Text("secret"); secret == "" {
					return req.Next(), operators(req).SecondFactor(req.R, code)
				} else if _, err := req.Reveal(operators(req).EnableSecondFactor(req.R, secret, code)); err != nil {
					return "", err
				}
				return "", req.Enter() // the session as it is now
			}}, {Verb: "colours", Form: "operator-colours", Done: "Saved.", Do: func(req *request) (string, error) {
				scheme := req.Sent.Text("scheme")
				if scheme != "light" && scheme != "dark" {
					scheme = ""
				}
				return factorPath, operators(req).SetScheme(req.R, *req.session, scheme)
			}}},
		},
		{
			Path: root + "/sign-out", Public: true, Show: site.Forward[*request]("", root).Show,
			Actions: []action{{Form: "sign-out", Done: "You are signed out.", Do: func(req *request) (string, error) {
				return root + "/sign-in", operators(req).SignOut(req.W, req.R)
			}}},
		},
	}
}

func showFactor(req *request) (any, error) {
	form := ui.Form{ID: "second-factor", Action: req.R.URL.RequestURI(), Submit: "Continue", Fields: []ui.Field{codeField}}
	shown := factorData{Next: req.Next()}
	if !req.session.SecondFactor {
		enrolment := identity.Enrolment{Secret: req.Sent.Text("secret")}
		issuer, _, _ := strings.Cut(req.R.Host, ":")
		fresh, err := identity.NewEnrolment(issuer, req.session.Email)
		if err != nil {
			return nil, err
		}
		if enrolment.Secret == "" {
			enrolment = fresh
		} else { // the secret of the page that was sent
			enrolment.URI = strings.Replace(fresh.URI, "secret="+fresh.Secret, "secret="+url.QueryEscape(enrolment.Secret), 1)
		}
		picture, err := identity.QR(enrolment.URI)
		if err != nil {
			return nil, err
		}
		shown.Secret = enrolment.Secret
		shown.QR = template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(picture)) //nolint:gosec // G203: our own picture
		form.Fields = append(form.Fields, ui.Field{Name: "secret", Kind: ui.HiddenField, Value: enrolment.Secret})
	}
	shown.Form = req.Form(form)
	shown.Colours = req.Form(ui.Form{ID: "operator-colours", Action: factorPath + "/colours", Submit: "Save", Fields: []ui.Field{
		{Name: "scheme", Kind: ui.SelectField, Label: "Colours", Options: ui.Schemes(req.session.Scheme)},
	}})
	return shown, nil
}

// proveForMoney checks the code in the form, unless the second factor was checked a few minutes ago.
func (req *request) proveForMoney() error {
	if req.session.Fresh(identity.MoneyFactorLifetime) {
		return nil
	}
	if err := req.c.config.Operators.SecondFactor(req.R, strings.TrimSpace(req.Sent.Text(codeField.Name))); err != nil {
		return err
	}
	return req.Enter()
}
