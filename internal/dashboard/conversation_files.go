package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
)

// sentFile is a file that a customer sent, as the API shows it.
type sentFile struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	State     string `json:"state"`
	Code      string `json:"code"`
	Name      string `json:"name"`
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`

	// Address has the content of a stored one.
	Address string `json:"-"`
}

// Stored reports whether its content can be had.
func (f *sentFile) Stored() bool { return f.State == "stored" }

// Picture reports whether the page shows its content.
func (f *sentFile) Picture() bool { return strings.HasPrefix(f.MediaType, "image/") }

// Label names it.
func (f *sentFile) Label() string { return cmp.Or(f.Name, fileKinds[f.Kind], "File") }

// Size returns its size for people.
func (f *sentFile) Size() string {
	const kilo, mega = 1 << 10, 1 << 20
	if f.Bytes < mega {
		return fmt.Sprintf("%d KB", max(1, f.Bytes/kilo))
	}
	return fmt.Sprintf("%.1f MB", float64(f.Bytes)/mega)
}

// Why returns in words why its content can't be had.
func (f *sentFile) Why() string {
	switch {
	case f.State == "waiting" && f.Code == "media_storage_full":
		return fileTexts[f.Code] + " It is fetched when there is room, if the platform still has it."
	case f.State == "waiting":
		return "It is being fetched from the platform."
	}
	return cmp.Or(fileTexts[f.Code], "It could not be fetched.")
}

var fileKinds = map[string]string{
	"image": "Picture", "audio": "Voice or sound", "video": "Video", "sticker": "Sticker", "file": "File",
}

// fileTexts explain why a file wasn't stored (docs/conversations.md#files).
var fileTexts = map[string]string{
	"media_too_large":    "It has more than 8 MB. Look at it in the platform's own app.",
	"media_type":         "What the platform sent is no such file.",
	"media_expired":      "The platform no longer had it when it was fetched. Ask the customer to send it again.",
	"media_refused":      "Its address is none that may be called.",
	"media_unavailable":  "It could not be fetched for too long. Look at it in the platform's own app.",
	"media_replaced":     "It made room for newer files of this customer. Look at it in the platform's own app.",
	"media_storage_full": "Your files take all of the space that there is for them. Erase conversations, or keep them for a shorter time.",
}

// fileRelay passes a file's content.
func fileRelay() relay {
	return relay{method: http.MethodGet, name: "file", ask: func(req *pageRequest) (apiRequest, error) {
		id := req.query("id")
		if !wellFormedID(id) || id == "" {
			return apiRequest{}, &apiError{Status: http.StatusNotFound, Code: codeNotFound, Message: "There is no such file."}
		}
		return apiRequest{method: http.MethodGet, path: "/conversations/" + req.id() + "/files/" + id}, nil
	}}
}
