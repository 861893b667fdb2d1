package dashboard

import (
	"encoding/base64"
	"html/template"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	words "github.com/caddy-svc/caddy-svc/internal/ui/text"
)

const (
	loginPath   = root + "/login"
	logoutPath  = root + "/logout"
	accountPath = root + "/account"
)

// session is the signed-in person.
type session struct{ *api.SessionObject }

// Administers reports whether the person is an administrator or an owner.
func (s *session) Administers() bool { return s.has(handlers.RoleAdministrator) }

// Owns reports whether the person is an owner.
func (s *session) Owns() bool { return s.has(handlers.RoleOwner) }

// has reports whether the person's role is at least role. Pages hide only forms that the operations refuse.
func (s *session) has(role handlers.Role) bool { return s != nil && s.Role.Has(role) }

// signInPage is the data of the pages of signing in.
type signInPage struct {
	// Refusal is the reason why signing in is impossible here. A page with a reason has no form.
	Refusal string
	Form    form
}

func (req *pageRequest) signInPage(f form) (any, error) {
	if refusal := req.d.config.SignInRefusal(req.R); refusal != "" {
		return signInPage{Refusal: req.Say.Error("", refusal)}, nil
	}
	return signInPage{Form: req.Form(f)}, nil
}

// lateFields are the fields of signing in that are shown once the API has asked for them: to a person of several organizations, and to one with a
// second factor.
var lateFields = []string{"organization", "code"}

// withLate returns a form without the late fields that were neither asked for nor filled in.
func (req *pageRequest) withLate(f form) form {
	for _, name := range lateFields {
		if (req.Refused == nil || req.Refused.Field != name) && req.Text(name) == "" {
			f = f.Without(name)
		}
	}
	return f
}

var codeField = field{
	Name: "code", Label: "Code", Required: true, Autocomplete: "one-time-code",
	Hint: "The six digits that your authenticator app shows, or a recovery code.",
}

var loginForm = ui.FormOf(
	api.SignIn, form{ID: "login", Submit: "Sign in"},
	field{Name: "email", Kind: ui.EmailField, Label: "E-mail address", Autocomplete: "username"},
	field{Name: "password", Kind: ui.SecretField, Label: "Password", Autocomplete: "current-password"},
	field{Name: "organization", Label: "Organization", Required: true, Autocomplete: "organization"},
	codeField,
)

var loginPage = page{
	Path: loginPath, Template: "login", Title: "Sign in", Public: true,
	Show: func(req *pageRequest) (any, error) { return req.signInPage(req.withLate(loginForm)) },
	Actions: []action{{Form: "login", Secrets: []string{"password", "code"}, Do: func(req *pageRequest) (string, error) {
		return req.Next(), req.Submit(api.SignIn, req.withLate(loginForm), values{})
	}}},
}

var welcomeForm = ui.FormOf(
	api.SetPassword, form{ID: "welcome", Submit: "Set the password and sign in"},
	field{
		Name: "token", Label: "Code of the link", Autocomplete: "off",
		Hint: "The part of your link after the #. It works once.",
	},
	field{Name: "password", Kind: ui.SecretField, Label: "New password", Autocomplete: "new-password", Hint: "At least 12 characters."},
	codeField,
)

// welcomePage accepts a one-time link. Browsers don't send the part behind its #. The script puts it into the form; without the script the
// person does.
var welcomePage = page{
	Path: root + "/welcome", Template: "welcome", Title: "Set your password", Public: true,
	Show: func(req *pageRequest) (any, error) { return req.signInPage(req.withLate(welcomeForm)) },
	Actions: []action{{Form: "welcome", Secrets: []string{"password", "code"}, Do: func(req *pageRequest) (string, error) {
		in := values{"token": strings.TrimSpace(req.Text("token")), "password": req.Text("password")}
		if code := req.Text("code"); code != "" {
			in["code"] = code
		}
		return root, req.Run(api.SetPassword, in)
	}}},
}

// signOutPage has only the action of the button in the header of every page.
func signOutPage() page {
	p := site.Forward[*pageRequest](logoutPath, loginPath)
	p.Actions = []action{{Form: "logout", Done: "You are signed out.", Do: run(loginPath, api.SignOut)}}
	return p
}

type accountData struct {
	Sessions                  []api.LiveSession
	Password, Language, Leave form

	secondFactor
}

// secondFactor is the part of the page about the second factor.
type secondFactor struct {
	// CodesLeft is the number of recovery codes. Codes are new ones.
	CodesLeft int
	Codes     []string
	// Secret is a new secret for an authenticator app, and QR its picture, which is empty after a wrong code.
	Secret string
	QR     template.URL
	// Factor is the form of the next step: to make a secret, to switch on with a code of it, or to switch off.
	Factor form
}

var (
	enableForm = ui.FormOf(
		api.EnableSecondFactor, form{ID: "account-enable", Submit: "Switch on"},
		field{Name: "secret", Kind: ui.HiddenField},
		field{Name: "code", Label: "Code", Autocomplete: "one-time-code", Hint: "The six digits that the app shows."},
	)
	disableForm = ui.FormOf(
		api.DisableSecondFactor, form{ID: "account-disable", Submit: "Switch off"},
		field{Name: "code", Label: "Code", Autocomplete: "one-time-code", Hint: codeField.Hint},
	)
)

var passwordForm = ui.FormOf(
	api.ChangePassword, form{ID: "account-password", Submit: "Change password"},
	field{Name: "currentPassword", Label: "Current password", Autocomplete: "current-password"},
	field{
		Name: "password", Label: "New password", Autocomplete: "new-password",
		Hint: "At least 12 characters, and none of the commonest passwords.",
	},
)

var languageForm = ui.FormOf(
	api.UpdateSession, form{ID: "account-language", Submit: "Save"},
	field{Name: "language", Label: "Language"}, field{Name: "scheme", Label: "Colours"},
)

// languages returns the languages of pages as options of a select.
func languages(chosen string) []option {
	options := []option{{Label: "The browser's"}}
	for _, language := range words.Languages() {
		options = append(options, named(string(language), language.Name()))
	}
	return ui.Choices(options, chosen)
}

var accountPage = page{
	Path: accountPath, Template: "account", Title: "Your account",
	Show: func(req *pageRequest) (any, error) {
		factor, err := req.secondFactor()
		return accountData{
			Sessions: site.Read(req, api.ListSessions, nil).Data, Password: req.Form(passwordForm.Of(accountPath+"/password", nil)),
			Language: req.Form(languageForm.With("language", languages(text(req.session.User.Language))).
				With("scheme", ui.Schemes(text(req.session.User.Scheme))).Of(accountPath+"/language", nil)),
			Leave:        req.button("account-leave", "", "Sign out everywhere", "Sign out on all devices, this one too?"),
			secondFactor: factor,
		}, err
	},
	Actions: []action{
		{
			Verb: "password", Form: "account-password", Done: "Your password was changed, and your other sessions have ended.",
			Secrets: []string{"currentPassword", "password"}, MaxBody: site.SmallForm,
			Do: submit(accountPath, api.ChangePassword, passwordForm),
		},
		{Verb: "begin", Form: "account-begin", Do: reveal(api.BeginSecondFactor, form{})},
		{
			Verb: "enable", Form: "account-enable", Done: "From now on you sign in with a code, too.", Secrets: []string{"code"},
			Do: reveal(api.EnableSecondFactor, enableForm),
		},
		{
			Verb: "disable", Form: "account-disable", Done: "You sign in without a code again.", Secrets: []string{"code"},
			Do: submit(accountPath, api.DisableSecondFactor, disableForm),
		},
		{
			Verb: "language", Form: "account-language", Done: "Saved.", MaxBody: site.SmallForm,
			Do: submit(accountPath, api.UpdateSession, languageForm),
		},
		{
			Verb: "leave", Form: "account-leave", Done: "You are signed out everywhere.", MaxBody: site.SmallForm,
			Do: run(loginPath, api.SignOutEverywhere),
		},
	},
}

func (req *pageRequest) secondFactor() (shown secondFactor, err error) {
	state := site.Read(req, api.GetSecondFactor, nil)
	if state.Enabled {
		shown.CodesLeft, shown.Factor = state.RecoveryCodes, req.Form(disableForm.Of(accountPath+"/disable", nil))
		if enabled, ok := req.Once.(*api.EnabledSecondFactor); ok {
			shown.Codes = enabled.Codes
		}
		return shown, nil
	}
	made, begun := req.Once.(*api.SecondFactorSecret)
	if begun {
		picture, err := identity.QR(made.URI)
		shown.Secret, shown.QR = made.Secret, template.URL("data:image/png;base64,"+base64.StdEncoding.EncodeToString(picture)) //nolint:gosec // ours
		shown.Factor = req.Form(enableForm.Of(accountPath+"/enable", made))
		return shown, err
	}
	if shown.Secret = req.Text("secret"); shown.Secret != "" {
		shown.Factor = req.Form(enableForm.Of(accountPath+"/enable", nil))
		return shown, nil
	}
	shown.Factor = req.button("account-begin", "", "Set up", "")
	return shown, nil
}
