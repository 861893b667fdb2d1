package dashboard

import (
	"net/http"
	"strconv"
)

const organizationPath = root + "/organization"

type organization struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	Plan          string `json:"plan"`
	RetentionDays int    `json:"retentionDays"`
	CreatedAt     string `json:"createdAt"`
}

type organizationData struct {
	Organization organization
	// Edit is shown to administrators.
	Edit form
}

func organizationPage() page {
	return page{
		path: organizationPath, template: "organization", title: "Organization",
		show: func(req *pageRequest) (any, error) {
			var shown organizationData
			if err := req.get("/organization", nil, &shown.Organization); err != nil {
				return nil, err
			}
			shown.Edit = req.form(form{
				ID: "organization-edit", Submit: "Save",
				Confirm: "Conversations without a message for longer than that are deleted for good, with all their texts. With 0 none is.",
				Fields: []field{{
					Name: "retentionDays", Kind: numberField, Label: "Keep conversations for days", Required: true,
					Value: strconv.Itoa(shown.Organization.RetentionDays),
					Hint:  "7 to 3650 days after their last message; 0 keeps them until somebody deletes them.",
				}},
			})
			return shown, nil
		},
		actions: []action{{form: "organization-edit", done: "Saved.", do: func(req *pageRequest) (outcome, error) {
			if req.number("retentionDays") == nil { // null would change nothing
				return outcome{}, refuseField("retentionDays", "Enter a number of days; 0 keeps conversations.")
			}
			body := object{"retentionDays": req.number("retentionDays")}
			return goTo(organizationPath), req.send(http.MethodPatch, "/organization", body, nil)
		}}},
	}
}

const membersPath = root + "/members"

// member is a person of the organization. Link is set only in the answer that creates it.
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

const memberActive = "active"

type membersData struct {
	Members []member
	Pager   pager
	Invite  form
}

type memberData struct {
	Member             member
	Edit, Link, Remove form
}

func (d memberData) PageTitle() string { return d.Member.Email }

func membersPage() page {
	return page{
		path: membersPath, template: "members", title: "Members",
		show:    showMembers,
		actions: []action{{form: "member-invite", do: inviteMember}},
	}
}

func showMembers(req *pageRequest) (any, error) {
	var members list[member]
	if err := req.get("/members", req.cursor(), &members); err != nil {
		return nil, err
	}
	return membersData{
		Members: members.Data, Pager: req.pager(members.NextCursor),
		Invite: req.form(form{ID: "member-invite", Submit: "Invite", Fields: []field{
			{
				Name: "email", Kind: emailField, Label: "E-mail address", Required: true, MaxLength: 254,
				Hint: "They sign in with it. No e-mail is sent.",
			},
			req.roleField(roleMember),
		}}),
	}, nil
}

// roleField returns the field for a role; only owners can give the role owner.
func (req *pageRequest) roleField(role string) field {
	roles := []option{
		{Value: roleMember, Label: "Member: assistants, knowledge, conversations"},
		{Value: roleAdministrator, Label: "Administrator: also channels, keys, members"},
	}
	if req.session.Owns() || role == roleOwner {
		roles = append(roles, option{Value: roleOwner, Label: "Owner: also other owners"})
	}
	return field{Name: "role", Kind: selectField, Label: "Role", Required: true, Options: choices(roles, role)}
}

func inviteMember(req *pageRequest) (outcome, error) {
	var made member
	err := req.send(http.MethodPost, "/members", object{"email": req.text("email"), "role": req.text("role")}, &made)
	return reveal(made), err
}

func memberPage() page {
	return page{
		path: membersPath + "/{id}", template: "member", title: "Member", section: membersPath,
		show: showMember,
		actions: []action{
			{form: "member-edit", done: "The role was changed. A new role ends the person's sessions.", do: func(req *pageRequest) (outcome, error) {
				return goTo(req.path()), req.send(http.MethodPatch, "/members/"+req.id(), object{"role": req.text("role")}, nil)
			}},
			{verb: "link", form: "member-link", do: func(req *pageRequest) (outcome, error) {
				var made member
				err := req.send(http.MethodPost, "/members/"+req.id()+"/link", nil, &made)
				return reveal(made), err
			}},
			{verb: "remove", form: "member-remove", done: "The member was removed and is signed out.", do: func(req *pageRequest) (outcome, error) {
				return goTo(membersPath), req.send(http.MethodDelete, "/members/"+req.id(), nil, nil)
			}},
		},
	}
}

func showMember(req *pageRequest) (any, error) {
	var shown memberData
	if err := req.get("/members/"+req.id(), nil, &shown.Member); err != nil {
		return nil, err
	}
	email := shown.Member.Email
	shown.Edit = req.form(form{ID: "member-edit", Submit: "Change role", Fields: []field{req.roleField(shown.Member.Role)}})
	if shown.Member.State != memberActive || req.session.above(shown.Member.Role) {
		shown.Link = req.form(button("member-link", req.path()+"/link", "Make a new link", ""))
	}
	shown.Remove = req.form(button("member-remove", req.path()+"/remove", "Remove member", "Remove "+email+"? They are signed out at once."))
	return shown, nil
}

type auditEntry struct {
	ID     string `json:"id"`
	At     string `json:"at"`
	Actor  string `json:"actor"`
	Action string `json:"action"`
	Target string `json:"target"`
	Detail string `json:"detail"`
}

type auditData struct {
	Entries []auditEntry
	Pager   pager
	// Names are the addresses of members by id.
	Names map[string]string
}

// Name returns the actor or target of an entry for people.
func (d auditData) Name(id string) string {
	if name := d.Names[id]; name != "" {
		return name
	}
	return id
}

func auditPage() page {
	return page{
		path: root + "/audit", template: "audit", title: "Audit log",
		show: func(req *pageRequest) (any, error) {
			var entries list[auditEntry]
			if err := req.get("/audit-log", req.cursor(), &entries); err != nil {
				return nil, err
			}
			members, err := everything[member](req, "/members")
			if err != nil {
				return nil, err
			}
			shown := auditData{Entries: entries.Data, Pager: req.pager(entries.NextCursor), Names: make(map[string]string)}
			for i := range members {
				shown.Names[members[i].ID] = members[i].Email
			}
			return shown, nil
		},
	}
}
