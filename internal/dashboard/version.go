package dashboard

import "net/http"

// versionName is the hidden field that says which version of a thing a form was filled from: its updatedAt.
const versionName = "updatedAt"

func versionField(updatedAt string) field {
	return field{Name: versionName, Kind: hiddenField, Value: updatedAt}
}

// refuseStale refuses a form that was filled from another version than the one that was just read. The form is then shown
// with what was typed and the version of now, so that saving once more replaces it knowingly. A form without a version, and
// a thing without one, pass.
//
// Somebody who saves between that reading and our writing is still overwritten: the API has no condition for a change, and
// people who change one thing at the same time are seconds apart, not milliseconds.
func (v *visit) refuseStale(updatedAt string) error {
	if typed := v.text(versionName); typed == "" || updatedAt == "" || typed == updatedAt {
		return nil
	}
	return &fault{
		Status: http.StatusConflict, Code: codeConflict, Field: versionName,
		Message: "Somebody changed it meanwhile. Nothing of yours is saved yet, and all of it stands below. Open this page in another tab " +
			"to see the current values. Saving once more replaces them.",
	}
}
