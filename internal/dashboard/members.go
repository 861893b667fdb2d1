package dashboard

import "net/http"

const membersPath = root + "/members"

// member is a person of the organization. Link is there once, in the answer that makes it.
type member struct {
	ID            string `json:"id"`
	Email         string `json:"email"`
	Role          string `json:"role"`
	State         string `json:"state"`
	ExpiresAt     string `json:"expiresAt"`
	CreatedAt     string `json:"createdAt"`
	Link          string `json:"link"`
	LinkExpiresAt string `json:"linkExpiresAt"`
}

// memberActive is the state of a person who has set a password.
const memberActive = "active"

// membersData is what the list of members shows.
type membersData struct {
	Members []member
	Pager   pager
	Invite  form
}

// memberData is what the page of a member shows.
type memberData struct {
	Member             member
	Edit, Link, Remove form
}

// PageTitle names the member.
func (d memberData) PageTitle() string { return d.Member.Email }

func membersPage() page {
	return page{
		path: membersPath, template: "members", title: "Members",
		show:    showMembers,
		actions: []action{{form: "member-invite", do: inviteMember}},
	}
}

func showMembers(v *visit) (any, error) {
	var members list[member]
	if err := v.get("/members", v.cursor(), &members); err != nil {
		return nil, err
	}
	return membersData{
		Members: members.Data, Pager: v.pager(members.NextCursor),
		Invite: v.form(form{ID: "member-invite", Submit: "Invite", Fields: []field{
			{
				Name: "email", Kind: emailField, Label: "E-mail address", Required: true, MaxLength: 254,
				Hint: "They sign in with it. No e-mail is sent.",
			},
			v.roleField(roleMember),
		}}),
	}, nil
}

// roleField chooses a role; only owners can give that of an owner.
func (v *visit) roleField(role string) field {
	roles := []option{
		{Value: roleMember, Label: "Member: assistants, knowledge, conversations"},
		{Value: roleAdministrator, Label: "Administrator: also channels, keys, members"},
	}
	if v.session.Owns() || role == roleOwner {
		roles = append(roles, option{Value: roleOwner, Label: "Owner: also other owners"})
	}
	return field{Name: "role", Kind: selectField, Label: "Role", Required: true, Options: choices(roles, role)}
}

func inviteMember(v *visit) (outcome, error) {
	var made member
	err := v.send(http.MethodPost, "/members", object{"email": v.text("email"), "role": v.text("role")}, &made)
	return reveal(made), err
}

func memberPage() page {
	return page{
		path: membersPath + "/{id}", template: "member", title: "Member", section: membersPath,
		show: showMember,
		actions: []action{
			{form: "member-edit", done: "The role was changed. A new role ends the person's sessions.", do: func(v *visit) (outcome, error) {
				return goTo(v.path()), v.send(http.MethodPatch, "/members/"+v.id(), object{"role": v.text("role")}, nil)
			}},
			{verb: "link", form: "member-link", do: func(v *visit) (outcome, error) {
				var made member
				err := v.send(http.MethodPost, "/members/"+v.id()+"/link", nil, &made)
				return reveal(made), err
			}},
			{verb: "remove", form: "member-remove", done: "The member was removed and is signed out.", do: func(v *visit) (outcome, error) {
				return goTo(membersPath), v.send(http.MethodDelete, "/members/"+v.id(), nil, nil)
			}},
		},
	}
}

func showMember(v *visit) (any, error) {
	var shown memberData
	if err := v.get("/members/"+v.id(), nil, &shown.Member); err != nil {
		return nil, err
	}
	email := shown.Member.Email
	shown.Edit = v.form(form{ID: "member-edit", Submit: "Change role", Fields: []field{v.roleField(shown.Member.Role)}})
	if shown.Member.State != memberActive || v.session.above(shown.Member.Role) {
		shown.Link = v.form(button("member-link", v.path()+"/link", "Make a new link", ""))
	}
	shown.Remove = v.form(button("member-remove", v.path()+"/remove", "Remove member", "Remove "+email+"? They are signed out at once."))
	return shown, nil
}
