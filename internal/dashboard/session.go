package dashboard

// The roles (design §6), each with all rights of those before it.
const (
	roleMember        = "member"
	roleAdministrator = "administrator"
	roleOwner         = "owner"
)

// session is who is signed in: GET /session.
type session struct {
	User struct {
		ID    string `json:"id"`
		Email string `json:"email"`
	} `json:"user"`
	Organization struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"organization"`
	Role string `json:"role"`
	// PasswordReset is set for a while after another person's link has reset the password.
	PasswordReset *struct {
		By string `json:"by"`
		At string `json:"at"`
	} `json:"passwordReset"`
}

// Administers reports whether the person is an administrator or more.
func (s *session) Administers() bool { return s.has(roleAdministrator) }

// Owns reports whether the person is an owner.
func (s *session) Owns() bool { return s.has(roleOwner) }

// above reports whether the person's role is higher than another.
func (s *session) above(role string) bool { return s.has(role) && s.Role != role }

// has reports whether the role is the person's, or less. What is hidden by it the API refuses anyway.
func (s *session) has(role string) bool {
	rank := map[string]int{roleMember: 1, roleAdministrator: 2, roleOwner: 3}
	return s != nil && rank[s.Role] >= rank[role]
}
