package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/hours"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// OrganizationObject is the organization as the API shows it.
type OrganizationObject struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	Plan          string `json:"plan"`
	Suspended     bool   `json:"suspended"`
	RetentionDays int64  `json:"retentionDays" doc:"For how many days conversations are kept; 0: until they are deleted"`
	CreatedAt     string `json:"createdAt"     format:"date-time"`
	// LowBalanceMicros is the balance below which wallet.low is sent, WaitingMinutes the wait after which conversation.waiting is.
	LowBalanceMicros string `json:"lowBalanceMicros" doc:"The event wallet.low is told when the live wallet has less; 0: never"`
	WaitingMinutes   int64  `json:"waitingMinutes"   doc:"The event conversation.waiting is told when a customer has waited so long; 0: never"`
	TimeZone         string `json:"timeZone"         doc:"The IANA name of the zone in which its days and months begin; UTC in a new organization"`
}

func showOrganization(o *store.Organization) OrganizationObject {
	return OrganizationObject{
		ID: o.ID, Name: o.Name, Plan: o.Plan, Suspended: o.SuspendedAt.Valid, RetentionDays: o.RetentionDays,
		CreatedAt:        endpoint.Timestamp(o.CreatedAt),
		LowBalanceMicros: strconv.FormatInt(o.LowBalanceMicros, 10), WaitingMinutes: o.WaitingMinutes, TimeZone: o.TimeZone,
	}
}

// organizationChange is the body of PATCH /organization.
type organizationChange struct {
	RetentionDays *int64 `json:"retentionDays,omitempty" minimum:"0" maximum:"3650" doc:"0, or 7 to 3650: what is older is deleted within a day, for good"` //nolint:lll // a struct tag can't be broken

	LowBalanceMicros *string `json:"lowBalanceMicros,omitempty" pattern:"^[0-9]{1,18}$" patternDescription:"a whole number of micros" doc:"Micros; 0: never"` //nolint:lll // a struct tag can't be broken
	WaitingMinutes   *int64  `json:"waitingMinutes,omitempty"   minimum:"0" maximum:"10080" doc:"0: never"`

	TimeZone *string `json:"timeZone,omitempty" minLength:"1" maxLength:"64" doc:"An IANA name, like Asia/Ho_Chi_Minh"`
}

// The operations on the organization.
var (
	GetOrganization = operation(members("getOrganization", "GET /organization", noScope,
		"Get the organization"), (*Deps).getOrganization)
	UpdateOrganization = operation(administrators("updateOrganization", "PATCH /organization", noScope,
		"Change the time zone, for how long conversations are kept, and when people are told"), (*Deps).updateOrganization)
)

func (d *Deps) getOrganization(ctx context.Context, principal *identity.Principal, _ *struct{}) (*OrganizationObject, error) {
	organization, err := d.DB.Organizations.ByID(ctx, principal.OrgID)
	return new(showOrganization(&organization)), err
}

func (d *Deps) updateOrganization(
	ctx context.Context, principal *identity.Principal, in *struct{ Body organizationChange },
) (*OrganizationObject, error) {
	if zone := in.Body.TimeZone; zone != nil {
		if err := d.storeTimeZone(ctx, principal, *zone); err != nil {
			return nil, err
		}
	}
	if days := in.Body.RetentionDays; days != nil {
		err := d.DB.Organizations.SetRetention(ctx, principal.Actor(), principal.OrgID, *days)
		if errors.Is(err, store.ErrRetention) {
			return nil, handlers.InvalidRequest("retentionDays", "retentionDays must be 0, or %d to %d.",
				store.MinRetentionDays, store.MaxRetentionDays)
		}
		if err != nil {
			return nil, handlers.Internal(fmt.Errorf("setting the retention: %w", err))
		}
	}
	if err := d.updateBounds(ctx, principal, in.Body); err != nil {
		return nil, err
	}
	return d.getOrganization(ctx, principal, nil)
}

// storeTimeZone stores the zone of the organization's days and months.
func (d *Deps) storeTimeZone(ctx context.Context, principal *identity.Principal, zone string) error {
	if _, err := hours.Zone(zone); err != nil {
		return noSuchZone()
	}
	if err := d.DB.Organizations.SetTimeZone(ctx, principal.Actor(), principal.OrgID, zone); err != nil {
		return handlers.Internal(fmt.Errorf("setting the time zone: %w", err))
	}
	return nil
}

// noSuchZone returns the error for the name of no time zone.
func noSuchZone() error {
	return handlers.InvalidRequest("timeZone", "There is no time zone with this name. Name it like Asia/Ho_Chi_Minh.")
}

// updateBounds stores the bounds at which a low wallet and a long wait become events.
func (d *Deps) updateBounds(ctx context.Context, principal *identity.Principal, change organizationChange) error {
	bounds := store.EventBounds{WaitingMinutes: change.WaitingMinutes}
	if change.LowBalanceMicros != nil {
		micros, err := strconv.ParseInt(*change.LowBalanceMicros, 10, 64)
		if err != nil {
			return handlers.InvalidRequest("lowBalanceMicros", "lowBalanceMicros must be a whole number of micros.")
		}
		bounds.LowBalanceMicros = &micros
	}
	if bounds == (store.EventBounds{}) {
		return nil
	}
	if err := d.DB.Organizations.SetEventBounds(ctx, principal.Actor(), principal.OrgID, bounds); err != nil {
		return handlers.Internal(fmt.Errorf("setting the bounds of events: %w", err))
	}
	return nil
}

// MemberObject is a user as the API shows it. It is exported for huma, see [endpoint.PathID].
type MemberObject struct {
	ID        string        `json:"id"`
	Email     string        `json:"email"`
	Role      handlers.Role `json:"role"      enum:"member,administrator,owner"`
	State     string        `json:"state"     enum:"invited,expired,active" doc:"invited: no password was set yet. expired: none was set in time; a new link or a new invitation of the address begins anew"` //nolint:lll // a struct tag can't be broken
	ExpiresAt *string       `json:"expiresAt" format:"date-time" doc:"When the invitation expires, or did; null: the person is active"`
	CreatedAt string        `json:"createdAt" format:"date-time"`
	UpdatedAt string        `json:"updatedAt" format:"date-time"`
}

func (d *Deps) showMember(user *store.User) MemberObject {
	state := "invited"
	switch {
	case user.Active:
		state = "active"
	case user.ExpiresAt <= d.Now().UnixMilli():
		state = "expired"
	}
	return MemberObject{
		ID: user.ID, Email: user.Email, Role: handlers.Role(user.Role), State: state, ExpiresAt: endpoint.TimestampOrNull(user.ExpiresAt),
		CreatedAt: endpoint.Timestamp(user.CreatedAt), UpdatedAt: endpoint.Timestamp(user.UpdatedAt),
	}
}

// linkedMember is a user with a new one-time link, which is shown this once.
type linkedMember struct {
	MemberObject

	Link          string `json:"link"          doc:"To set a password, once. No e-mail is sent: hand it to the person"`
	LinkExpiresAt string `json:"linkExpiresAt" format:"date-time"`
}

func (d *Deps) showLinkedMember(user *store.User, link identity.Link) *linkedMember {
	return &linkedMember{
		MemberObject: d.showMember(user), Link: handlers.WelcomeURL(d.BaseURL, link.Token),
		LinkExpiresAt: endpoint.Timestamp(d.Now().Add(link.Lifetime).UnixMilli()),
	}
}

// memberCreation is the body of POST /members.
type memberCreation struct {
	Email string        `json:"email" minLength:"1" maxLength:"254" doc:"Unique here; if a user elsewhere has it, the link can't be used"`
	Role  handlers.Role `json:"role"  enum:"member,administrator,owner"`
}

// memberChange is the body of PATCH /members/{id}.
type memberChange struct {
	Role *handlers.Role `json:"role,omitempty" enum:"member,administrator,owner" doc:"Another role ends the person's sessions"`
}

// The operations on members.
var (
	InviteMember = operation(operated("users:write", administrators("inviteMember", "POST /members", noScope,
		"Invite a person; answers a one-time link")), (*Deps).inviteMember)
	ListMembers = operation(operated("users:read", administrators("listMembers", "GET /members", noScope,
		"List the members, oldest first")), (*Deps).listMembers)
	GetMember    = operation(operated("users:read", administrators("getMember", "GET /members/{id}", noScope, "Get a member")), (*Deps).getMember)
	UpdateMember = operation(operated("users:write", administrators("updateMember", "PATCH /members/{id}", noScope,
		"Change a member's role")), (*Deps).updateMember)
	RemoveMember = operationOf(operated("users:write", administrators("removeMember", "DELETE /members/{id}", noScope,
		"Remove a member, who is signed out at once")), (*Deps).removeMember)
	LinkMember = operation(operated("users:write", administrators("linkMember", "POST /members/{id}/link", noScope,
		"Make a new one-time link for a member who lost theirs, or the password")), (*Deps).linkMember)
	ResetMemberSecondFactor = operationOf(operated("users:write", administrators(
		"resetMemberSecondFactor", "DELETE /members/{id}/second-factor", noScope,
		"Switch off the second factor of a member who lost it")), (*Deps).resetMemberSecondFactor)
)

func (d *Deps) inviteMember(ctx context.Context, principal *identity.Principal, in *struct{ Body memberCreation }) (*linkedMember, error) {
	user, link, err := d.users().Invite(ctx, principal.Authority(), principal.OrgID, in.Body.Email, in.Body.Role)
	if errors.Is(err, store.ErrConflict) {
		return nil, endpoint.Refusal(errcode.Conflict, err,
			"The organization has a user, or an open invitation, with this e-mail address already.")
	}
	if errors.Is(err, store.ErrLimit) {
		return nil, noRoom(store.MaxMembers, "members and invitations", err)
	}
	if err != nil {
		return nil, d.refuseMember(ctx, principal, "", err)
	}
	return d.showLinkedMember(&user, link), nil
}

func (d *Deps) listMembers(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[MemberObject], error) {
	return listRows(ctx, principal, in.PageQuery, d.DB.Users.List, func(row *store.User) string { return row.ID }, d.showMember)
}

func (d *Deps) getMember(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*MemberObject, error) {
	return getRow(ctx, d, principal, store.OwnedUsers, in.ID, d.DB.Users.ByID, d.showMember)
}

func (d *Deps) updateMember(ctx context.Context, principal *identity.Principal, in *idAndBody[memberChange]) (*MemberObject, error) {
	if in.Body.Role != nil {
		if err := d.users().SetRole(ctx, principal.Authority(), principal.OrgID, in.ID, *in.Body.Role); err != nil {
			return nil, d.refuseMember(ctx, principal, in.ID, err)
		}
	}
	return d.getMember(ctx, principal, &in.PathID)
}

func (d *Deps) removeMember(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, d.refuseMember(ctx, principal, in.ID, d.users().Remove(ctx, principal.Authority(), principal.OrgID, in.ID))
}

func (d *Deps) linkMember(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*linkedMember, error) {
	link, err := d.users().NewLink(ctx, principal.Authority(), principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuseMember(ctx, principal, in.ID, err)
	}
	user, err := d.DB.Users.ByID(ctx, principal.OrgID, in.ID)
	return d.showLinkedMember(&user, link), d.refuse(ctx, principal, store.OwnedUsers, in.ID, err)
}

func (d *Deps) resetMemberSecondFactor(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	err := d.users().ResetSecondFactor(ctx, principal.Authority(), principal.OrgID, in.ID)
	if errors.Is(err, store.ErrNotFound) {
		if _, err := d.getMember(ctx, principal, in); err != nil {
			return nil, err
		}
		return nil, handlers.NotFound("The member has no second factor.")
	}
	return &endpoint.Empty{}, d.refuseMember(ctx, principal, in.ID, err)
}

func (d *Deps) users() *identity.Users { return identity.NewUsers(d.DB) }

// refuseMember returns the public form of an error of [identity.Users]. It returns nil if there is no error.
func (d *Deps) refuseMember(ctx context.Context, principal *identity.Principal, id string, err error) error {
	_, badValue := errors.AsType[*identity.FieldError](err)
	switch {
	case badValue:
		return handlers.BadField(err)
	case errors.Is(err, identity.ErrOwnersOnly):
		return endpoint.Refusal(errcode.Forbidden, err, "Only an owner may make, change or remove an owner.")
	case errors.Is(err, identity.ErrHigherRoleOnly):
		return endpoint.Refusal(errcode.Forbidden, err,
			"Only a person of a higher role, or the operator, may do this. Change your own password with PUT /session/password.")
	case errors.Is(err, identity.ErrAdministratorsOnly):
		return endpoint.Refusal(errcode.Forbidden, err, "This needs the role administrator.")
	case errors.Is(err, store.ErrLastOwner):
		return endpoint.Refusal(errcode.Conflict, err, "This is the organization's last owner. Make another member an owner first.")
	default:
		return d.refuse(ctx, principal, store.OwnedUsers, id, err)
	}
}

// AuditObject is an entry of the audit log as the API shows it.
type AuditObject struct {
	ID     string `json:"id"`
	At     string `json:"at"     format:"date-time"`
	Actor  string `json:"actor"  doc:"The id of a member or of an API key, operator, or a part of the service"`
	Action string `json:"action" doc:"What was done, as in api_key.revoke"`
	Target string `json:"target" doc:"The id, or name, of what it was done to"`
	Detail string `json:"detail"`
}

func showAudit(entry *store.AuditEntry) AuditObject {
	return AuditObject{
		ID: entry.ID, At: endpoint.Timestamp(entry.At), Actor: shownActor(entry.Actor), Action: entry.Action,
		Target: entry.Target, Detail: entry.Detail,
	}
}

// shownActor returns the actor as organizations see it, without the name of an operator.
func shownActor(actor string) string {
	if strings.HasPrefix(actor, "cli") || strings.HasPrefix(actor, identity.OperatorActor) || strings.HasPrefix(actor, identity.OperatorKeyActor) {
		return "operator"
	}
	return actor
}

// The operation on the audit log.
var (
	ListAuditLog = operation(administrators("listAuditLog", "GET /audit-log", noScope,
		"List who changed what, newest first"), (*Deps).listAuditLog)
)

func (d *Deps) listAuditLog(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[AuditObject], error) {
	return listRows(ctx, principal, in.PageQuery, d.DB.AuditLog.List, func(row *store.AuditEntry) string { return row.ID }, showAudit)
}
