package dashboard

import (
	"slices"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const organizationPath = root + "/organization"

type organizationData struct {
	Organization *api.OrganizationObject
	// Edit is shown to administrators.
	Edit form
}

var organizationForm = ui.FormOf(
	api.UpdateOrganization, form{
		ID: "organization-edit", Submit: "Save",
		Confirm: "Conversations without a message for longer than that are deleted for good, with all their texts. With 0 none is.",
	},
	field{
		Name: "retentionDays", Label: "Keep conversations for days", Required: true,
		Hint:    "7 to 3650 days after their last message; 0 keeps them until somebody deletes them.",
		Missing: "Enter a number of days; 0 keeps conversations.",
	},
)

func organizationPage() page {
	return page{
		path: organizationPath, template: "organization", title: "Organization",
		show: func(req *pageRequest) (any, error) {
			organization, err := ask(req, api.GetOrganization, nil)
			if err != nil {
				return nil, err
			}
			return organizationData{organization, req.form(organizationForm.Of("", organization))}, nil
		},
		actions: []action{{form: "organization-edit", done: "Saved.", do: func(req *pageRequest) (outcome, error) {
			return goTo(organizationPath), req.submit(api.UpdateOrganization, organizationForm, values{})
		}}},
	}
}

const membersPath = root + "/members"

type memberData struct {
	Member             *api.MemberObject
	Edit, Link, Remove form
}

func (d memberData) PageTitle() string { return d.Member.Email }

var roleField = field{Name: "role", Label: "Role", Required: true, Options: []option{
	{Value: string(handlers.RoleMember), Label: "Member: assistants, knowledge, conversations"},
	{Value: string(handlers.RoleAdministrator), Label: "Administrator: also channels, keys, members"},
	{Value: string(handlers.RoleOwner), Label: "Owner: also other owners"},
}}

var (
	inviteForm = ui.FormOf(
		api.InviteMember, form{ID: "member-invite", Submit: "Invite"},
		field{Name: "email", Kind: ui.EmailField, Label: "E-mail address", Hint: "They sign in with it. No e-mail is sent."},
		roleField,
	)
	memberForm = ui.FormOf(api.UpdateMember, form{ID: "member-edit", Submit: "Change role"}, roleField)
)

// roles returns the roles that the person can give. Only owners can give the role owner.
func (req *pageRequest) roles(current handlers.Role) []option {
	options := ui.Choices(roleField.Options, string(current))
	if !req.session.Owns() && current != handlers.RoleOwner {
		options = slices.DeleteFunc(options, func(o option) bool { return o.Value == string(handlers.RoleOwner) })
	}
	return options
}

func memberPages() []page {
	return []page{
		{
			path: membersPath, template: "members", title: "Members",
			show: func(req *pageRequest) (any, error) {
				members, err := ask(req, api.ListMembers, req.cursor())
				if err != nil {
					return nil, err
				}
				invite := req.form(inviteForm.With("role", req.roles(handlers.RoleMember)))
				return listData[api.MemberObject]{members.Data, req.pager(members.NextCursor), invite}, nil
			},
			actions: []action{{form: "member-invite", do: func(req *pageRequest) (outcome, error) {
				made, err := askForm(req, api.InviteMember, inviteForm, values{})
				return reveal(made), err
			}}},
		},
		{
			path: membersPath + "/{id}", template: "member", title: "Member", section: membersPath,
			show: showMember,
			actions: []action{
				{
					form: "member-edit", done: "The role was changed. A new role ends the person's sessions.",
					do: func(req *pageRequest) (outcome, error) {
						return goTo(req.path()), req.submit(api.UpdateMember, memberForm, values{"id": req.id()})
					},
				},
				{verb: "link", form: "member-link", do: func(req *pageRequest) (outcome, error) {
					made, err := ask(req, api.LinkMember, values{"id": req.id()})
					return reveal(made), err
				}},
				{
					verb: "remove", form: "member-remove", done: "The member was removed and is signed out.",
					do: func(req *pageRequest) (outcome, error) {
						return goTo(membersPath), req.run(api.RemoveMember, values{"id": req.id()})
					},
				},
			},
		},
	}
}

func showMember(req *pageRequest) (any, error) {
	member, err := ask(req, api.GetMember, values{"id": req.id()})
	if err != nil {
		return nil, err
	}
	shown := memberData{
		Member: member, Edit: req.form(memberForm.With("role", req.roles(member.Role))),
		Remove: req.form(ui.Button("member-remove", req.path()+"/remove", "Remove member",
			req.phrase("Remove %s? They are signed out at once.", member.Email))),
	}
	if member.State != "active" || req.session.has(member.Role) && req.session.Role != member.Role {
		shown.Link = req.form(ui.Button("member-link", req.path()+"/link", "Make a new link", ""))
	}
	return shown, nil
}

const auditPath = root + "/audit"

type auditData struct {
	Entries []api.AuditObject
	Pager   ui.Pager
	// Names are the e-mail addresses of members by their ids.
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
		path: auditPath, template: "audit", title: "Audit log",
		show: func(req *pageRequest) (any, error) {
			entries, err := ask(req, api.ListAuditLog, req.cursor())
			if err != nil {
				return nil, err
			}
			members, err := everything(req, api.ListMembers)
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
