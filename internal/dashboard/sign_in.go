package dashboard

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// The roles, each with all rights of those before it.
const (
	roleMember        = "member"
	roleAdministrator = "administrator"
	roleOwner         = "owner"
)

// session is the signed-in person: GET /session.
type session struct {
	User struct {
		ID    string `json:"id"`
		Email string `json:"email"`
	} `json:"user"`
	Organization struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		// Waiting is how many conversations wait for a person, counted to 100.
		Waiting int `json:"waitingConversations"`
	} `json:"organization"`
	Role string `json:"role"`
	// PasswordReset is set for 30 days after another person's link has reset the password.
	PasswordReset *struct {
		By string `json:"by"`
		At string `json:"at"`
	} `json:"passwordReset"`
}

func (s *session) Administers() bool { return s.has(roleAdministrator) }

func (s *session) Owns() bool { return s.has(roleOwner) }

func (s *session) above(role string) bool { return s.has(role) && s.Role != role }

// has reports whether the person's role is at least role. It only hides what the API refuses anyway.
func (s *session) has(role string) bool {
	rank := map[string]int{roleMember: 1, roleAdministrator: 2, roleOwner: 3}
	return s != nil && rank[s.Role] >= rank[role]
}

const (
	loginPath  = root + "/login"
	logoutPath = root + "/logout"
)

// signInPage is the data of the pages of signing in.
type signInPage struct {
	// Refusal is why signing in is impossible here; then there is no form.
	Refusal string
	Form    form
}

func (req *pageRequest) signInPage(f form) (any, error) {
	if refusal := req.d.config.SignInRefusal(req.r); refusal != "" {
		return signInPage{Refusal: refusal}, nil
	}
	return signInPage{Form: req.form(f)}, nil
}

func loginPage() page {
	return page{
		path: loginPath, template: "login", title: "Sign in", public: true,
		show: func(req *pageRequest) (any, error) {
			f := form{
				ID: "login", Submit: "Sign in", Fields: []field{
					{Name: "email", Kind: emailField, Label: "E-mail address", Required: true, Autocomplete: "username"},
					{Name: "password", Kind: secretField, Label: "Password", Required: true, Autocomplete: "current-password"},
				},
			}
			if req.refused != nil && req.refused.Field == organizationName || req.text(organizationName) != "" {
				f.Fields = append(f.Fields, field{
					Name: organizationName, Kind: textField, Label: "Organization", Required: true, Autocomplete: "organization",
				})
			}
			return req.signInPage(f)
		},
		actions: []action{
			{form: "login", secrets: []string{"password"}, do: signIn},
		},
	}
}

func signIn(req *pageRequest) (outcome, error) {
	body := object{"email": req.text("email"), "password": req.text("password")}
	if organization := req.text(organizationName); organization != "" {
		body[organizationName] = organization
	}
	err := req.send(http.MethodPost, "/session", body, nil)
	return goTo(req.next()), err
}

// organizationName is the field of the sign-in that is asked for where several organizations have the person.
const organizationName = "organization"

// next returns the page that was asked for before signing in; always one of ours, whatever the address says.
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

// welcomePage accepts a one-time link. The part behind its # isn't sent by browsers: the script puts it into the form; without
// the script the person does.
func welcomePage() page {
	return page{
		path: root + "/welcome", template: "welcome", title: "Set your password", public: true,
		show: func(req *pageRequest) (any, error) {
			return req.signInPage(form{
				ID: "welcome", Submit: "Set the password and sign in", Fields: []field{
					{
						Name: "token", Kind: textField, Label: "Code of the link", Required: true, Autocomplete: "off",
						Hint: "The part of your link after the #. It works once.",
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

func setPassword(req *pageRequest) (outcome, error) {
	body := object{"token": strings.TrimSpace(req.text("token")), "password": req.text("password")}
	return goTo(root), req.send(http.MethodPost, "/session/password", body, nil)
}

// signOutPage has only the action of the button in every page's header.
func signOutPage() page {
	p := forward(logoutPath, loginPath)
	p.actions = []action{{form: "logout", done: "You are signed out.", do: func(req *pageRequest) (outcome, error) {
		return goTo(loginPath), req.send(http.MethodDelete, "/session", nil, nil)
	}}}
	return p
}
