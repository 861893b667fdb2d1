package dashboard

import (
	"encoding/base64"
	"html/template"
	"net/url"
	"path"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/identity"
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
	if refusal := req.d.config.SignInRefusal(req.r); refusal != "" {
		return signInPage{Refusal: req.say.Error("", refusal)}, nil
	}
	return signInPage{Form: req.form(f)}, nil
}

// lateFields are the fields of signing in that are shown once the API has asked for them: to a person of several organizations, and to one with a
// second factor.
var lateFields = []string{"organization", "code"}

// withLate returns a form without the late fields that were neither asked for nor filled in.
func (req *pageRequest) withLate(f form) form {
	for _, name := range lateFields {
		if (req.refused == nil || req.refused.Field != name) && req.text(name) == "" {
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

func loginPage() page {
	return page{
		path: loginPath, template: "login", title: "Sign in", public: true,
		show: func(req *pageRequest) (any, error) { return req.signInPage(req.withLate(loginForm)) },
		actions: []action{{form: "login", secrets: []string{"password", "code"}, do: func(req *pageRequest) (outcome, error) {
			return goTo(req.next()), req.submit(api.SignIn, req.withLate(loginForm), values{})
		}}},
	}
}

// next returns the page that was requested before signing in. It is always one of ours, whatever the address contains.
func (req *pageRequest) next() string {
	next, err := url.Parse(req.query("next"))
	if err != nil || next.Host != "" || next.Scheme != "" || next.Path != path.Clean(next.Path) {
		return root
	}
	if next.Path != root && !strings.HasPrefix(next.Path, root+"/") {
		return root
	}
	return next.RequestURI()
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
func welcomePage() page {
	return page{
		path: root + "/welcome", template: "welcome", title: "Set your password", public: true,
		show: func(req *pageRequest) (any, error) { return req.signInPage(req.withLate(welcomeForm)) },
		actions: []action{{form: "welcome", secrets: []string{"password", "code"}, do: func(req *pageRequest) (outcome, error) {
			in := values{"token": strings.TrimSpace(req.text("token")), "password": req.text("password")}
			if code := req.text("code"); code != "" {
				in["code"] = code
			}
			return goTo(root), req.run(api.SetPassword, in)
		}}},
	}
}

// signOutPage has only the action of the button in the header of every page.
func signOutPage() page {
	p := forward(logoutPath, loginPath)
	p.actions = []action{{form: "logout", done: "You are signed out.", do: func(req *pageRequest) (outcome, error) {
		return goTo(loginPath), req.run(api.SignOut, nil)
	}}}
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
	api.UpdateSession, form{ID: "account-language", Submit: "Save"}, field{Name: "language", Label: "Language"},
)

// languages returns the languages of pages as options of a select.
func languages(chosen string) []option {
	options := []option{{Label: "The browser's"}}
	for _, language := range words.Languages() {
		options = append(options, option{Value: string(language), Label: ui.Text(language.Name()), Named: true})
	}
	return ui.Choices(options, chosen)
}

func accountPage() page {
	return page{
		path: accountPath, template: "account", title: "Your account",
		show: func(req *pageRequest) (any, error) {
			sessions, err := ask(req, api.ListSessions, nil)
			if err != nil {
				return nil, err
			}
			factor, err := req.secondFactor()
			return accountData{
				Sessions: sessions.Data, Password: req.form(passwordForm.Of(accountPath+"/password", nil)),
				Language: req.form(languageForm.With("language", languages(text(req.session.User.Language))).Of(accountPath+"/language", nil)),
				Leave: req.form(ui.Button(
					"account-leave", accountPath+"/leave", "Sign out everywhere", "Sign out on all devices, this one too?",
				)),
				secondFactor: factor,
			}, err
		},
		actions: []action{
			{
				verb: "password", form: "account-password", done: "Your password was changed, and your other sessions have ended.",
				secrets: []string{"currentPassword", "password"}, maxBody: maxFormWithoutSession,
				do: func(req *pageRequest) (outcome, error) {
					return goTo(accountPath), req.submit(api.ChangePassword, passwordForm, values{})
				},
			},
			{verb: "begin", form: "account-begin", do: func(req *pageRequest) (outcome, error) {
				made, err := ask(req, api.BeginSecondFactor, nil)
				return reveal(made), err
			}},
			{
				verb: "enable", form: "account-enable", done: "From now on you sign in with a code, too.", secrets: []string{"code"},
				do: func(req *pageRequest) (outcome, error) {
					made, err := askForm(req, api.EnableSecondFactor, enableForm, values{})
					return reveal(made), err
				},
			},
			{
				verb: "disable", form: "account-disable", done: "You sign in without a code again.", secrets: []string{"code"},
				do: func(req *pageRequest) (outcome, error) {
					return goTo(accountPath), req.submit(api.DisableSecondFactor, disableForm, values{})
				},
			},
			{
				verb: "language", form: "account-language", done: "Your pages are in this language.", maxBody: maxFormWithoutSession,
				do: func(req *pageRequest) (outcome, error) {
					return goTo(accountPath), req.submit(api.UpdateSession, languageForm, values{})
				},
			},
			{
				verb: "leave", form: "account-leave", done: "You are signed out everywhere.", maxBody: maxFormWithoutSession,
				do: func(req *pageRequest) (outcome, error) { return goTo(loginPath), req.run(api.SignOutEverywhere, nil) },
			},
		},
	}
}

func (req *pageRequest) secondFactor() (shown secondFactor, err error) {
	state, err := ask(req, api.GetSecondFactor, nil)
	if err != nil {
		return shown, err
	}
	if state.Enabled {
		shown.CodesLeft, shown.Factor = state.RecoveryCodes, req.form(disableForm.Of(accountPath+"/disable", nil))
		if enabled, ok := req.once.(*api.EnabledSecondFactor); ok {
			shown.Codes = enabled.Codes
		}
		return shown, nil
	}
	made, begun := req.once.(*api.SecondFactorSecret)
	if begun {
		picture, err := identity.QR(made.URI)
		shown.Secret, shown.QR = made.Secret, template.URL("data:image/png;base64,"+base64.StdEncoding.EncodeToString(picture)) //nolint:gosec // ours
		shown.Factor = req.form(enableForm.Of(accountPath+"/enable", made))
		return shown, err
	}
	if shown.Secret = req.text("secret"); shown.Secret != "" {
		shown.Factor = req.form(enableForm.Of(accountPath+"/enable", nil))
		return shown, nil
	}
	shown.Factor = req.form(ui.Button("account-begin", accountPath+"/begin", "Set up", ""))
	return shown, nil
}
