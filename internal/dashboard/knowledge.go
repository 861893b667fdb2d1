package dashboard

import (
	"cmp"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const knowledgePath = root + "/knowledge"

const (
	// maxDocument is the largest document of the API, in bytes; maxUpload the largest form with one.
	maxDocument = 4 << 20
	maxUpload   = 3*maxDocument + 64<<10 // pasted text is escaped
	// maxKeptDocument is the largest refused file that becomes the text of the form, so that it needn't be chosen again.
	maxKeptDocument = 256 << 10
)

// size formats a number of bytes for people.
func size(say *ui.Printer, bytes int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case bytes < kib:
		return say.Tf("%d bytes", bytes)
	case bytes < mib:
		return say.Tf("%.1f KiB", float64(bytes)/kib)
	default:
		return say.Tf("%.1f MiB", float64(bytes)/mib)
	}
}

// mediaTypeName returns the label of a document's media type.
func mediaTypeName(mediaType string) ui.Text {
	return ui.Text(cmp.Or(labelOf(mediaTypes, mediaType), mediaType))
}

type knowledgeData struct {
	Base      *api.KnowledgeBaseObject
	Documents []documentRow
	Pager     ui.Pager
	// Live is the address of the documents while they are being ingested, empty otherwise.
	Live   string
	Upload form
	Search form
	Edit   form
	Delete form
	// Asked is the query of a search, empty for none.
	Asked    string
	Snippets []api.SnippetObject
}

// documentRow is a document with the button in its row.
type documentRow struct {
	api.DocumentObject

	Delete form
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
					return goTo(knowledgePath + "/" + req.id()), req.submit(api.UpdateKnowledgeBase, knowledgeEditForm, values{"id": req.id()})
				}},
				{
					verb: "documents", form: "document-create", maxBody: maxUpload, do: createDocument,
					done: "The document has arrived. It can be found as soon as it is ready.",
				},
				{verb: "delete-document", form: "document-delete", done: "The document was deleted.", do: func(req *pageRequest) (outcome, error) {
					in := values{"id": req.id(), "docId": req.text("document")}
					return goTo(knowledgePath + "/" + req.id()), req.run(api.DeleteDocument, in)
				}},
				{verb: "delete", form: "knowledge-delete", done: "The knowledge base was deleted.", do: func(req *pageRequest) (outcome, error) {
					return goTo(knowledgePath), req.run(api.DeleteKnowledgeBase, values{"id": req.id()})
				}},
			},
		},
	}
}

var knowledgeFields = []field{
	{Name: "name", Label: "Name"},
	{Name: "description", Kind: ui.AreaField, Label: "Description", Rows: 3, Hint: "For you and your colleagues: what belongs in it."},
}

var (
	knowledgeCreateForm = ui.FormOf(
		api.CreateKnowledgeBase, form{ID: "knowledge-create", Submit: "Create the knowledge base"}, knowledgeFields...,
	)
	knowledgeEditForm = ui.FormOf(api.UpdateKnowledgeBase, form{ID: "knowledge-edit", Submit: "Save"}, knowledgeFields...)
)

func showKnowledgeBases(req *pageRequest) (any, error) {
	bases, err := ask(req, api.ListKnowledgeBases, req.cursor())
	if err != nil {
		return nil, err
	}
	create := req.form(knowledgeCreateForm.Of(knowledgePath, nil))
	return listData[api.KnowledgeBaseObject]{bases.Data, req.pager(bases.NextCursor), create}, nil
}

func createKnowledgeBase(req *pageRequest) (outcome, error) {
	created, err := askForm(req, api.CreateKnowledgeBase, knowledgeCreateForm, values{})
	if err != nil {
		return outcome{}, err
	}
	return goTo(knowledgePath + "/" + created.ID), nil
}

func showKnowledgeBase(req *pageRequest) (any, error) {
	base, err := ask(req, api.GetKnowledgeBase, values{"id": req.id()})
	if err != nil {
		return nil, err
	}
	in := req.cursor()
	in["id"] = base.ID
	documents, err := ask(req, api.ListDocuments, in)
	if err != nil {
		return nil, err
	}
	here := knowledgePath + "/" + base.ID
	data := knowledgeData{
		Base: base, Pager: req.pager(documents.NextCursor), Upload: req.form(uploadForm.Of(here+"/documents", nil)),
		Edit: req.form(knowledgeEditForm.Of(here, base)),
		Delete: req.form(ui.Button("knowledge-delete", here+"/delete", "Delete the knowledge base",
			req.phrase("Delete the knowledge base %s with all its documents?", base.Name))),
	}
	for _, one := range documents.Data {
		if one.State == "ingesting" {
			data.Live = req.live("documents", "cursor")
		}
		data.Documents = append(data.Documents, documentRow{one, req.form(ui.Button("document-delete-"+one.ID, here+"/delete-document", "Delete",
			req.phrase("Delete the document %s? The assistants don't know it any more.", one.Name), "document", one.ID))})
	}
	return &data, req.search(&data)
}

var searchForm = ui.FormOf(
	api.SearchKnowledgeBase, form{ID: "knowledge-search", Get: true, Submit: "Search"},
	field{Name: "q", Label: "What might a customer say?", Hint: "Shows the parts of the documents that an assistant would get for this text."},
)

// search adds a query and its results.
func (req *pageRequest) search(data *knowledgeData) error {
	data.Asked = req.query("q")
	f := searchForm.Of(req.path(), nil)
	f.Fields[0].Value = data.Asked
	if strings.TrimSpace(data.Asked) != "" {
		found, err := ask(req, api.SearchKnowledgeBase, values{"id": req.id(), "q": data.Asked})
		switch refused := handlers.AsError(err); {
		case err == nil:
			data.Snippets = found.Data
		case refused.Code.Status() != http.StatusBadRequest:
			return err
		default:
			f.Fields[0].Error = req.translated(refused).Message
		}
	}
	data.Search = req.form(f)
	return nil
}

var mediaTypes = []option{
	{Value: "text/plain", Label: "Text"}, {Value: "text/markdown", Label: "Markdown"}, {Value: "text/html", Label: "HTML"},
}

var uploadForm = func() form {
	f := ui.FormOf(
		api.CreateDocument, form{ID: "document-create", Submit: "Add the document"},
		field{Name: "content", Kind: ui.AreaField, Label: "Or paste the text here", Rows: 6, Hint: "Used only when no file is chosen."},
		field{Name: "name", Label: "Name", Hint: "Answers may name it as their source. Empty: the file's name."},
		field{Name: "mediaType", Label: "Kind", Options: mediaTypes},
	)
	for i := range f.Fields { // of a file that is sent, nothing else is required
		f.Fields[i].Required = false
	}
	f.Fields[2].Options = append([]option{{Label: "By the file's name, else text"}}, mediaTypes...)
	f.Fields = append([]field{{
		Name: "file", Kind: ui.FileField, Label: "File", Accept: ".txt,.text,.md,.markdown,.html,.htm,text/plain,text/markdown,text/html",
		Hint: "Text, Markdown or HTML in UTF-8, at most 4 MiB.",
	}}, f.Fields...)
	return f
}()

// createDocument stores the form's file, or the pasted text. When the operation refuses the text of a file, the page keeps it in the form.
func createDocument(req *pageRequest) (outcome, error) {
	name, content, mediaType := req.text("name"), req.text("content"), req.text("mediaType")
	file, chosen := req.file("file")
	if chosen {
		text, err := documentText(file.content)
		if err != nil {
			return outcome{}, err
		}
		content = text
		if strings.TrimSpace(name) == "" {
			name = file.name
		}
	}
	switch {
	case content == "":
		return outcome{}, refuseField("file", "Choose a file, or paste the text below.")
	case strings.TrimSpace(name) == "":
		return outcome{}, refuseField("name", "Pasted text needs a name.")
	}
	mediaType = cmp.Or(mediaType, mediaTypeOf(file.name))
	err := req.run(api.CreateDocument, values{"id": req.id(), "name": name, "content": content, "mediaType": mediaType})
	if err == nil || !chosen {
		return goTo(knowledgePath + "/" + req.id()), err
	}
	// No page can preselect a file, so a short one becomes the form's text.
	if len(content) <= maxKeptDocument {
		req.sent.Set("content", content)
		req.sent.Set("name", name)
		req.sent.Set("mediaType", mediaType)
		return outcome{}, err
	}
	refused := req.d.refusalOf(err)
	if refused.Field == "content" {
		refused.Field = "file"
	}
	return outcome{}, refused
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

// mediaTypeOf returns the media type for a file's name, because browsers disagree about Markdown.
func mediaTypeOf(fileName string) string {
	switch strings.ToLower(path.Ext(fileName)) {
	case ".md", ".markdown":
		return "text/markdown"
	case ".html", ".htm":
		return "text/html"
	}
	return "text/plain"
}
