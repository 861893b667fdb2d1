package dashboard

import (
	"cmp"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
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

type knowledgeData struct {
	Base      *api.KnowledgeBaseObject
	Documents []documentRow
	Pager     ui.Pager
	// Live is the address of the documents while they are being ingested, empty otherwise.
	Live                         string
	Upload, Search, Edit, Delete form
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

var knowledgePages = []page{
	{
		Path: knowledgePath, Template: "knowledge", Title: "Knowledge",
		Show: func(req *pageRequest) (any, error) {
			bases := site.Read(req, api.ListKnowledgeBases, req.Cursor())
			create := req.Form(knowledgeCreateForm.Of(knowledgePath, nil))
			return listData[api.KnowledgeBaseObject]{bases.Data, req.Pager(bases.NextCursor), create}, nil
		},
		Actions: []action{{
			Form: "knowledge-create", Done: "The knowledge base was created. Add documents to it.",
			Do: create(api.CreateKnowledgeBase, knowledgeCreateForm, knowledgePath, func(k *api.KnowledgeBaseObject) string { return k.ID }),
		}},
	},
	{
		Path: knowledgePath + "/{id}", Template: "knowledge-base", Title: "Knowledge base", Section: knowledgePath,
		Fragments: []string{"documents"},
		Show:      showKnowledgeBase,
		Actions: []action{
			{Form: "knowledge-edit", Done: "The knowledge base was changed.", Do: submit("", api.UpdateKnowledgeBase, knowledgeEditForm)},
			{
				Verb: "documents", Form: "document-create", MaxBody: maxUpload, Do: createDocument,
				Done: "The document has arrived. It can be found as soon as it is ready.",
			},
			{Verb: "delete-document", Form: "document-delete", Done: "The document was deleted.", Do: run("", api.DeleteDocument)},
			button("knowledge-delete", knowledgePath, api.DeleteKnowledgeBase, "The knowledge base was deleted."),
		},
	},
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

func showKnowledgeBase(req *pageRequest) (any, error) {
	base, in := site.Read(req, api.GetKnowledgeBase, values{"id": req.ID()}), req.Cursor()
	in["id"] = base.ID
	documents := site.Read(req, api.ListDocuments, in)
	here := knowledgePath + "/" + base.ID
	data := knowledgeData{
		Base: base, Pager: req.Pager(documents.NextCursor), Upload: req.Form(uploadForm.Of(here+"/documents", nil)),
		Edit: req.Form(knowledgeEditForm.Of(here, base)),
		Delete: req.button("knowledge-delete", "", "Delete the knowledge base",
			req.Phrase("Delete the knowledge base %s with all its documents?", base.Name)),
	}
	for _, one := range documents.Data {
		if one.State == "ingesting" {
			data.Live = req.live("documents", "cursor")
		}
		data.Documents = append(data.Documents, documentRow{one, req.Form(ui.Button("document-delete-"+one.ID, here+"/delete-document", "Delete",
			req.Phrase("Delete the document %s? The assistants don't know it any more.", one.Name), "docId", one.ID))})
	}
	return &data, req.search(&data)
}

var searchForm = ui.FormOf(
	api.SearchKnowledgeBase, form{ID: "knowledge-search", Get: true, Submit: "Search"},
	field{Name: "q", Label: "What might a customer say?", Hint: "Shows the parts of the documents that an assistant would get for this text."},
)

// search adds a query and its results.
func (req *pageRequest) search(data *knowledgeData) error {
	data.Asked = req.Query("q")
	f := searchForm.Of(req.Path(), nil)
	f.Fields[0].Value = data.Asked
	if strings.TrimSpace(data.Asked) != "" {
		found, err := site.Ask(req, api.SearchKnowledgeBase, values{"id": req.ID(), "q": data.Asked})
		switch refused := handlers.AsError(err); {
		case err == nil:
			data.Snippets = found.Data
		case refused.Code.Status() != http.StatusBadRequest:
			return err
		default:
			f.Fields[0].Error = req.Translated(refused).Message
		}
	}
	data.Search = req.Form(f)
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
func createDocument(req *pageRequest) (string, error) {
	name, content, mediaType := req.Text("name"), req.Text("content"), req.Text("mediaType")
	fileName, file, chosen := req.File("file")
	if chosen {
		text, err := documentText(file)
		if err != nil {
			return "", err
		}
		content = text
		if strings.TrimSpace(name) == "" {
			name = fileName
		}
	}
	switch {
	case content == "":
		return "", site.RefuseField("file", "Choose a file, or paste the text below.")
	case strings.TrimSpace(name) == "":
		return "", site.RefuseField("name", "Pasted text needs a name.")
	}
	mediaType = cmp.Or(mediaType, mediaTypesByEnding[strings.ToLower(path.Ext(fileName))], "text/plain")
	err := req.Run(api.CreateDocument, values{"id": req.ID(), "name": name, "content": content, "mediaType": mediaType})
	if err == nil || !chosen {
		return req.Path(), err
	}
	// No page can preselect a file, so a short one becomes the form's text.
	if len(content) <= maxKeptDocument {
		req.Sent["content"], req.Sent["name"], req.Sent["mediaType"] = []string{content}, []string{name}, []string{mediaType}
		return "", err
	}
	refused := req.RefusalOf(err)
	if refused.Field == "content" {
		refused.Field = "file"
	}
	return "", refused
}

// documentText returns a file as text, without a byte order mark.
func documentText(content []byte) (string, error) {
	text := strings.TrimPrefix(string(content), "\ufeff")
	switch {
	case len(content) > maxDocument:
		return "", site.RefuseField("file", "The file has more than 4 MiB. Split it into several documents.")
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return "", site.RefuseField("file", "The file is not UTF-8 text. Save it as text, Markdown or HTML in UTF-8 and try again.")
	case strings.TrimSpace(text) == "":
		return "", site.RefuseField("file", "The file is empty.")
	}
	return text, nil
}

// mediaTypesByEnding are the media types of files by the end of their names, because browsers disagree about Markdown. All others are plain text.
var mediaTypesByEnding = map[string]string{
	".md": "text/markdown", ".markdown": "text/markdown", ".html": "text/html", ".htm": "text/html",
}
