package dashboard

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// maxSentFile is the largest file of the API, in bytes; maxSentUpload the largest form with one.
	maxSentFile   = 8 << 20
	maxSentUpload = maxSentFile + 64<<10
)

// sendFileForm sends a file of some kinds to the customer.
func sendFileForm(here string, kinds []string) form {
	accept := ""
	if !slices.Contains(kinds, platforms.FileOther) {
		families := make([]string, len(kinds))
		for i, kind := range kinds {
			families[i] = kind + "/*"
		}
		accept = strings.Join(families, ",")
	}
	return form{ID: "file-create", Action: here + "/files", Submit: "Send the file", Fields: []field{onceField(), {
		Name: "file", Kind: fileField, Label: "A file for the customer", Accept: accept, Hint: "At most 8 MiB.",
	}}}
}

// sendFile sends the form's file to the customer.
func sendFile(req *pageRequest) (outcome, error) {
	file, chosen := req.file("file")
	switch {
	case !chosen || len(file.content) == 0:
		return outcome{}, refuseField("file", "Choose a file that isn't empty.")
	case len(file.content) > maxSentFile:
		return outcome{}, refuseField("file", "The file has more than 8 MiB.")
	}
	err := req.sendMessage(object{"file": object{"name": file.name, "content": base64.StdEncoding.EncodeToString(file.content)}})
	if f := req.d.apiErrorOf(err); err != nil && strings.HasPrefix(f.Field, "file") {
		return outcome{}, refuseField("file", f.Message)
	}
	return goTo(conversationsPath + "/" + req.id()), req.explained(err)
}
