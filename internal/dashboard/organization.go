package dashboard

import (
	"slices"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const organizationPath = root + "/organization"

type organizationData struct {
	Organization *api.OrganizationObject
	// Edit and Zone are shown to administrators.
	Edit, Zone form
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

var timeZoneForm = ui.FormOf(
	api.UpdateOrganization, form{ID: "organization-zone", Submit: "Save"},
	field{Name: "timeZone", Label: "Time zone", Required: true, Hint: "Such as Asia/Ho_Chi_Minh or Europe/Berlin."},
)

var organizationPage = page{
	Path: organizationPath, Template: "organization", Title: "Organization",
	Show: func(req *pageRequest) (any, error) {
		organization := site.Read(req, api.GetOrganization, nil)
		zone := req.Form(timeZoneForm.Of(organizationPath+"/zone", organization))
		return organizationData{organization, req.Form(organizationForm.Of("", organization)), zone}, nil
	},
	Actions: []action{
		{Form: "organization-edit", Done: "Saved.", Do: submit(organizationPath, api.UpdateOrganization, organizationForm)},
		{Verb: "zone", Form: "organization-zone", Done: "Saved.", Do: submit(organizationPath, api.UpdateOrganization, timeZoneForm)},
	},
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

var memberPages = []page{
	{
		Path: membersPath, Template: "members", Title: "Members",
		Show: func(req *pageRequest) (any, error) {
			members := site.Read(req, api.ListMembers, req.Cursor())
			invite := req.Form(inviteForm.With("role", req.roles(handlers.RoleMember)))
			return listData[api.MemberObject]{members.Data, req.Pager(members.NextCursor), invite}, nil
		},
		Actions: []action{{Form: "member-invite", Do: reveal(api.InviteMember, inviteForm)}},
	},
	{
		Path: membersPath + "/{id}", Template: "member", Title: "Member", Section: membersPath, Show: showMember,
		Actions: []action{
			{
				Form: "member-edit", Done: "The role was changed. A new role ends the person's sessions.",
				Do: submit("", api.UpdateMember, memberForm),
			},
			{Verb: "link", Form: "member-link", Do: reveal(api.LinkMember, form{})},
			button("member-remove", membersPath, api.RemoveMember, "The member was removed and is signed out."),
		},
	},
}

func showMember(req *pageRequest) (any, error) {
	member := site.Read(req, api.GetMember, values{"id": req.ID()})
	shown := memberData{
		Member: member, Edit: req.Form(memberForm.With("role", req.roles(member.Role))),
		Remove: req.button("member-remove", "", "Remove member", req.Phrase("Remove %s? They are signed out at once.", member.Email)),
	}
	if member.State != "active" || req.session.has(member.Role) && req.session.Role != member.Role {
		shown.Link = req.button("member-link", "", "Make a new link", "")
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

var auditPage = page{
	Path: auditPath, Template: "audit", Title: "Audit log",
	Show: func(req *pageRequest) (any, error) {
		entries := site.Read(req, api.ListAuditLog, req.Cursor())
		shown := auditData{Entries: entries.Data, Pager: req.Pager(entries.NextCursor), Names: make(map[string]string)}
		for _, member := range everything(req, api.ListMembers) {
			shown.Names[member.ID] = member.Email
		}
		return shown, nil
	},
}
