package dashboard

import (
	"net/http"
	"strconv"
)

const organizationPath = root + "/organization"

// organization is GET /organization.
type organization struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	Plan          string `json:"plan"`
	RetentionDays int    `json:"retentionDays"`
	CreatedAt     string `json:"createdAt"`
}

// organizationData is what the page of the organization shows.
type organizationData struct {
	Organization organization
	// Edit is for administrators.
	Edit form
}

func organizationPage() page {
	return page{
		path: organizationPath, template: "organization", title: "Organization",
		show: func(v *visit) (any, error) {
			var shown organizationData
			if err := v.get("/organization", nil, &shown.Organization); err != nil {
				return nil, err
			}
			shown.Edit = v.form(form{
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
		actions: []action{{form: "organization-edit", done: "Saved.", do: func(v *visit) (outcome, error) {
			if v.number("retentionDays") == nil { // null would leave it as it is
				return outcome{}, refuseField("retentionDays", "Enter a number of days; 0 keeps conversations.")
			}
			body := object{"retentionDays": v.number("retentionDays")}
			return goTo(organizationPath), v.send(http.MethodPatch, "/organization", body, nil)
		}}},
	}
}
