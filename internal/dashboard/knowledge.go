package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const knowledgePath = root + "/knowledge"

const (
	// maxDocument is the largest document of the API, in bytes; maxUpload the largest form with one.
	maxDocument = 4 << 20
	maxUpload   = 3*maxDocument + 64<<10 // pasted text is escaped
	// maxKeptDocument is the largest refused file whose text is put into the page, so that it needn't be chosen again.
	maxKeptDocument = 256 << 10
)

type knowledgeBase struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Documents   int64  `json:"documents"`
	Bytes       int64  `json:"bytes"`
	UpdatedAt   string `json:"updatedAt"`
}

type document struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	MediaType   string `json:"mediaType"`
	Bytes       int64  `json:"bytes"`
	State       string `json:"state"`
	ChunksDone  int    `json:"chunksDone"`
	ChunksTotal int    `json:"chunksTotal"`
	Reason      string `json:"reason"`
	CreatedAt   string `json:"createdAt"`
	Delete      form   `json:"-"`
}

func (d *document) Size() string { return size(d.Bytes) }

func (b *knowledgeBase) Size() string { return size(b.Bytes) }

// size formats a number of bytes for people.
func size(bytes int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case bytes < kib:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < mib:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/kib)
	default:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
	}
}

func (d *document) MediaTypeName() string {
	for _, one := range mediaTypes() {
		if one.Value == d.MediaType {
			return one.Label
		}
	}
	return d.MediaType
}

// snippet is a part of a document that a search has found.
type snippet struct {
	Document string `json:"document"`
	Position int64  `json:"position"`
	Text     string `json:"text"`
}

func (s *snippet) Part() int64 { return s.Position + 1 }

type knowledgeListData struct {
	Bases  list[knowledgeBase]
	Pager  pager
	Create form
}

type knowledgeData struct {
	Base      knowledgeBase
	Documents list[document]
	Pager     pager
	// Live is the address of the documents while they are being ingested, "" otherwise.
	Live   string
	Upload form
	Search form
	Edit   form
	Delete form
	// Asked is the query of a search, "" for none.
	Asked    string
	Snippets []snippet
}

func (d *knowledgeData) PageTitle() string { return d.Base.Name }

func knowledgePages() []page {
	return []page{
		{
			path: knowledgePath, template: "knowledge", title: "Knowledge",
			show:    showKnowledgeBases,
			actions: []action{{form: "knowledge-create", done: "The knowledge base was created. Add documents to it.", do: createKnowledgeBase}},
		},
		{
			path: knowledgePath + "/{id}", template: "knowledge-base", title: "Knowledge base", section: knowledgePath,
			fragments: []string{"documents"},
			show:      showKnowledgeBase,
			actions: []action{
				{form: "knowledge-edit", done: "The knowledge base was changed.", do: func(req *pageRequest) (outcome, error) {
					return goTo(knowledgePath + "/" + req.id()), req.send(http.MethodPatch, "/knowledge-bases/"+req.id(),
						object{"name": req.text("name"), "description": req.text("description")}, nil)
				}},
				{
					verb: "documents", form: "document-create", maxBody: maxUpload, do: createDocument,
					done: "The document has arrived. It can be found as soon as it is ready.",
				},
				{verb: "delete-document", form: "document-delete", done: "The document was deleted.", do: func(req *pageRequest) (outcome, error) {
					return goTo(knowledgePath + "/" + req.id()), req.send(http.MethodDelete,
						"/knowledge-bases/"+req.id()+"/documents/"+segment(req.text("document")), nil, nil)
				}},
				{verb: "delete", form: "knowledge-delete", done: "The knowledge base was deleted.", do: func(req *pageRequest) (outcome, error) {
					return goTo(knowledgePath), req.send(http.MethodDelete, "/knowledge-bases/"+req.id(), nil, nil)
				}},
			},
		},
	}
}

func showKnowledgeBases(req *pageRequest) (any, error) {
	data := knowledgeListData{}
	if err := req.get("/knowledge-bases", req.cursor(), &data.Bases); err != nil {
		return nil, err
	}
	data.Pager = req.pager(data.Bases.NextCursor)
	data.Create = req.form(form{
		ID: "knowledge-create", Action: knowledgePath, Submit: "Create the knowledge base", Fields: knowledgeFields(&knowledgeBase{}),
	})
	return &data, nil
}

func createKnowledgeBase(req *pageRequest) (outcome, error) {
	var created knowledgeBase
	err := req.send(http.MethodPost, "/knowledge-bases", object{"name": req.text("name"), "description": req.text("description")}, &created)
	return goTo(knowledgePath + "/" + created.ID), err
}

func knowledgeFields(base *knowledgeBase) []field {
	return []field{
		{Name: "name", Kind: textField, Label: "Name", Value: base.Name, Required: true, MaxLength: 100},
		{
			Name: "description", Kind: areaField, Label: "Description", Value: base.Description, MaxLength: 1000, Rows: 3,
			Hint: "For you and your colleagues: what belongs in it.",
		},
	}
}

func showKnowledgeBase(req *pageRequest) (any, error) {
	data := knowledgeData{}
	if err := req.get("/knowledge-bases/"+req.id(), nil, &data.Base); err != nil {
		return nil, err
	}
	if err := req.get("/knowledge-bases/"+req.id()+"/documents", req.cursor(), &data.Documents); err != nil {
		return nil, err
	}
	here := knowledgePath + "/" + data.Base.ID
	for i := range data.Documents.Data {
		one := &data.Documents.Data[i]
		if one.State == "ingesting" {
			data.Live = req.live("documents", "cursor")
		}
		erase := button("document-delete-"+one.ID, here+"/delete-document", "Delete",
			"Delete the document "+one.Name+"? The assistants don't know it any more.")
		erase.Fields = []field{{Name: "document", Kind: hiddenField, Value: one.ID}}
		one.Delete = req.form(erase)
	}
	data.Upload = req.form(uploadForm(here))
	data.Pager = req.pager(data.Documents.NextCursor)
	data.Edit = req.form(form{ID: "knowledge-edit", Action: here, Submit: "Save", Fields: knowledgeFields(&data.Base)})
	data.Delete = req.form(button("knowledge-delete", here+"/delete", "Delete the knowledge base",
		"Delete the knowledge base "+data.Base.Name+" with all its documents?"))
	return &data, req.search(&data)
}

// search adds a query and its results.
func (req *pageRequest) search(data *knowledgeData) error {
	data.Asked = req.query("q")
	asked := field{
		Name: "q", Kind: textField, Label: "What might a customer say?", Value: data.Asked, Required: true, MaxLength: 2000,
		Hint: "Shows the parts of the documents that an assistant would get for this text.",
	}
	if strings.TrimSpace(data.Asked) != "" {
		var found struct{ Data []snippet }
		err := req.get("/knowledge-bases/"+req.id()+"/search", url.Values{"q": {data.Asked}}, &found)
		if err != nil {
			f := req.d.apiErrorOf(err)
			if f.Status != http.StatusBadRequest {
				return f
			}
			asked.Error = f.Message
		}
		data.Snippets = found.Data
	}
	data.Search = req.form(form{ID: "knowledge-search", Action: req.path(), Get: true, Submit: "Search", Fields: []field{asked}})
	return nil
}

func uploadForm(here string) form {
	return form{ID: "document-create", Action: here + "/documents", Submit: "Add the document", Fields: []field{
		{
			Name: "file", Kind: fileField, Label: "File", Accept: ".txt,.text,.md,.markdown,.html,.htm,text/plain,text/markdown,text/html",
			Hint: "Text, Markdown or HTML in UTF-8, at most 4 MiB.",
		},
		{
			Name: "content", Kind: areaField, Label: "Or paste the text here", Rows: 6,
			Hint: "Used only when no file is chosen.",
		},
		{
			Name: "name", Kind: textField, Label: "Name", MaxLength: 100,
			Hint: "Answers may name it as their source. Empty: the file's name.",
		},
		{
			Name: "mediaType", Kind: selectField, Label: "Kind",
			Options: append([]option{{Label: "By the file's name, else text"}}, mediaTypes()...),
		},
	}}
}

func mediaTypes() []option {
	return []option{
		{Value: "text/plain", Label: "Text"}, {Value: "text/markdown", Label: "Markdown"}, {Value: "text/html", Label: "HTML"},
	}
}

// createDocument sends the form to the API. When the API refuses a file's text, the page keeps it in the form.
func createDocument(req *pageRequest) (outcome, error) {
	file, chosen := req.file("file")
	body := object{"name": req.text("name"), "content": req.text("content"), "mediaType": req.text("mediaType")}
	if chosen {
		text, err := documentText(file.content)
		if err != nil {
			return outcome{}, err
		}
		body["content"] = text
		if strings.TrimSpace(req.text("name")) == "" {
			body["name"] = file.name
		}
	}
	switch {
	case body["content"] == "":
		return outcome{}, refuseField("file", "Choose a file, or paste the text below.")
	case strings.TrimSpace(body["name"].(string)) == "": //nolint:forcetypeassert,errcheck // as it was set above
		return outcome{}, refuseField("name", "Pasted text needs a name.")
	}
	if body["mediaType"] == "" {
		body["mediaType"] = mediaTypeOf(file.name)
	}
	err := req.send(http.MethodPost, "/knowledge-bases/"+req.id()+"/documents", body, nil)
	if err != nil && chosen {
		return outcome{}, req.keepFile(err, body)
	}
	return goTo(knowledgePath + "/" + req.id()), err
}

// keepFile puts the text of a refused file into the form, because no page can preselect a file. An error of the content is
// shown at the file, unless the form now contains the text.
func (req *pageRequest) keepFile(err error, body object) error {
	text := body["content"].(string) //nolint:forcetypeassert,errcheck // as createDocument made it
	f := *req.d.apiErrorOf(err)
	if len(text) > maxKeptDocument {
		if f.Field == "content" {
			f.Field = "file"
		}
		return &f
	}
	for _, name := range []string{"content", "name", "mediaType"} {
		req.sent.Set(name, body[name].(string)) //nolint:forcetypeassert,errcheck // as above
	}
	return &f
}

// documentText returns a file as text, without a byte order mark.
func documentText(content []byte) (string, error) {
	text := strings.TrimPrefix(string(content), "\ufeff")
	switch {
	case len(content) > maxDocument:
		return "", refuseField("file", "The file has more than 4 MiB. Split it into several documents.")
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return "", refuseField("file", "The file is not UTF-8 text. Save it as text, Markdown or HTML in UTF-8 and try again.")
	case strings.TrimSpace(text) == "":
		return "", refuseField("file", "The file is empty.")
	}
	return text, nil
}

// mediaTypeOf returns the media type for a file's name: browsers disagree about Markdown.
func mediaTypeOf(fileName string) string {
	switch strings.ToLower(path.Ext(fileName)) {
	case ".md", ".markdown":
		return "text/markdown"
	case ".html", ".htm":
		return "text/html"
	}
	return "text/plain"
}

// knowledgeOptions returns the knowledge bases as boxes.
func (req *pageRequest) knowledgeOptions(chosen []string) ([]option, error) {
	bases, err := everything[knowledgeBase](req, "/knowledge-bases")
	if err != nil {
		return nil, err
	}
	options := make([]option, len(bases))
	for i := range bases {
		options[i] = option{
			Value: bases[i].ID, Label: bases[i].Name, Hint: bases[i].Description, Selected: slices.Contains(chosen, bases[i].ID),
		}
	}
	return options, nil
}
