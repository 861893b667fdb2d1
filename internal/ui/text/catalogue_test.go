package text_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/danielgtaylor/huma/v2/validation"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

const textPackage = "github.com/caddy-svc/caddy-svc/internal/ui/text"

// pagePackages are the folders of the packages that write pages, this one among them.
func pagePackages(t *testing.T) (folders []string) {
	for _, pattern := range []string{".", "..", "../../site", "../../dashboard", "../../console"} {
		found, err := filepath.Glob(filepath.Join(pattern, "*.go"))
		require.NoError(t, err)
		if len(found) > 0 {
			folders = append(folders, pattern)
		}
	}
	return folders
}

// found are texts with the places of their first use.
type found map[string]string

func (f found) add(text, place string) {
	if text != "" && f[text] == "" {
		f[text] = place
	}
}

// TestEveryTextHasVietnamese guarantees that each text of templates and Go code is translated, with the same verbs, and that the catalogue has no
// other entries.
func TestEveryTextHasVietnamese(t *testing.T) {
	used := make(found)
	for _, folder := range pagePackages(t) {
		textsOfCode(t, folder, used)
		textsOfTemplates(t, folder, used)
	}
	textsOfChannels(t, used)
	for code, reason := range codes.All {
		used.add(reason.Conversation, code)
		used.add(reason.Message, code)
	}
	used.add(codes.Of("").Conversation, "an unknown code")
	used.add(codes.Of("").Message, "an unknown code")
	vietnamese, singular := readTexts(t, "vi.json"), readTexts(t, "en.json")
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if vietnamese[key] == "" {
			t.Errorf("%s: vi.json has no text for %q", used[key], key)
		}
	}
	for key, translated := range vietnamese {
		if used[key] == "" {
			t.Errorf("vi.json: nothing uses %q", key)
		}
		require.ElementsMatch(t, verbs(key), verbs(translated), "vi.json: the verbs of %q", key)
	}
	for key, one := range singular {
		if used[key] == "" {
			t.Errorf("en.json: nothing uses %q", key)
		}
		require.Equal(t, verbs(key), verbs(one), "en.json: the verbs of %q", key)
	}
}

// textsOfChannels finds the texts of the built-in platforms about their channels.
func textsOfChannels(t *testing.T, used found) {
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	require.NoError(t, err)
	for _, channel := range catalog.Declared() {
		for _, text := range slices.Concat(
			[]string{channel.Label, channel.ExternalID, channel.ExternalIDHint, channel.WindowHelp}, channel.Before, channel.After,
		) {
			used.add(text, string(channel.Type))
		}
		for _, credential := range channel.Credentials {
			used.add(credential.Label, string(channel.Type))
			used.add(credential.Hint, string(channel.Type))
		}
	}
}

// TestErrorsAreKnown guarantees that each translated error is one of the operations or of the validation of their inputs.
func TestErrorsAreKnown(t *testing.T) {
	validator := make(map[string]bool)
	for _, message := range []string{
		validation.MsgExpectedArrayItemsUnique, validation.MsgExpectedMaxItems, validation.MsgExpectedMinItems, validation.MsgExpectedInteger,
		validation.MsgExpectedMaxLength, validation.MsgExpectedMinLength, validation.MsgExpectedMaximumNumber, validation.MsgExpectedMinimumNumber,
		validation.MsgExpectedNumber,
	} {
		validator["The value is not valid: "+strings.ReplaceAll(message, "%v", "%d")+"."] = true
	}
	written := constantTexts(t, "../../../handlers")
	for message := range readTexts(t, "errors.json") {
		if !written[message] && !validator[message] {
			t.Errorf("errors.json: no operation refuses with %q", message)
		}
	}
	vietnamese := text.New(text.Vietnamese, "")
	for _, c := range [][3]string{
		{"name", "name is required.", "Mục này là bắt buộc."},
		{"retentionDays", "retentionDays must be 0, or 7 to 3650.", "Phải là 0, hoặc từ 7 đến 3.650."},
		{"name", "name is not valid: expected length <= 100.", "Tối đa 100 ký tự."},
		{"", "This is not your current password.", "Đây không phải mật khẩu hiện tại của bạn."},
		{"x", "x is something else.", "x is something else."},
	} {
		require.Equal(t, c[2], vietnamese.Error(c[0], c[1]))
		require.Equal(t, c[1], text.New(text.English, "").Error(c[0], c[1]))
	}
}

var fieldFirst = regexp.MustCompile(`^(%s|[a-z][A-Za-z]*) `)

// constantTexts returns the texts in the Go files below a folder, with "The value" instead of a field's name at their beginning.
func constantTexts(t *testing.T, folder string) map[string]bool {
	all := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			expression, ok := node.(ast.Expr)
			if ok {
				text := constantText(expression)
				all[text], all[fieldFirst.ReplaceAllString(text, "The value ")] = true, true
				for _, role := range []string{"administrator", "owner"} {
					all[strings.Replace(text, "the role %s", "the role "+role, 1)] = true
				}
			}
			return true
		})
		return nil
	}))
	return all
}

// constantText returns a text in one or several literals, empty for another expression.
func constantText(expression ast.Expr) string {
	switch expression := expression.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(expression.Value); err == nil && expression.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		return constantText(expression.X) + constantText(expression.Y)
	}
	return ""
}

var verb = regexp.MustCompile(`%(?:\[(\d+)\])?([a-zA-Z%])`)

// verbs returns the verbs of a text with their arguments, such as 1d. A text without arguments may contain any sign.
func verbs(text string) (all []string) {
	next := 1
	for _, match := range verb.FindAllStringSubmatch(text, -1) {
		if match[1] != "" {
			_, err := fmt.Sscan(match[1], &next)
			if err != nil {
				panic(err)
			}
		}
		all = append(all, fmt.Sprint(next, match[2]))
		next++
	}
	return all
}

// readTexts reads a catalogue and refuses a repeated key.
func readTexts(t *testing.T, name string) map[string]string {
	file, err := os.ReadFile(name)
	require.NoError(t, err)
	all := make(map[string]string)
	decoder := json.NewDecoder(strings.NewReader(string(file)))
	for key := ""; decoder.More(); {
		part, err := decoder.Token()
		require.NoError(t, err)
		word, isText := part.(string)
		switch {
		case !isText:
		case key == "":
			key = word
		default:
			require.Empty(t, all[key], "%s has %q twice", name, key)
			all[key], key = word, ""
		}
	}
	return all
}

// textsOfCode finds the constants of type text.Text. The type-checker needs only this package for them, so other imports are empty.
func textsOfCode(t *testing.T, folder string, used found) {
	files := token.NewFileSet()
	checked := checkPackage(t, files, folder, textImporter{t, files})
	parts := make(map[ast.Expr]bool)
	for expression := range checked.Types {
		if sum, ok := expression.(*ast.BinaryExpr); ok {
			parts[sum.X], parts[sum.Y] = true, true
		}
	}
	for expression, value := range checked.Types {
		named, ok := types.Unalias(value.Type).(*types.Named)
		if ok && !parts[expression] && value.Value != nil && value.Value.Kind() == constant.String && named.Obj().Name() == "Text" && named.Obj().Pkg().Path() == textPackage {
			used.add(constant.StringVal(value.Value), files.Position(expression.Pos()).String())
		}
	}
}

// pathsOf are the packages with types that have texts.
var pathsOf = map[string]string{".": textPackage, "..": strings.TrimSuffix(textPackage, "/text"), "../../site": strings.TrimSuffix(textPackage, "ui/text") + "site"}

func folderOf(path string) string {
	for folder, known := range pathsOf {
		if known == path {
			return folder
		}
	}
	return ""
}

type textImporter struct {
	t     *testing.T
	files *token.FileSet
}

func (i textImporter) Import(path string) (*types.Package, error) {
	folder := folderOf(path)
	if folder == "" {
		return nil, os.ErrNotExist
	}
	for _, object := range checkPackage(i.t, i.files, folder, i).Defs {
		if object != nil && object.Pkg() != nil {
			return object.Pkg(), nil
		}
	}
	return nil, os.ErrNotExist
}

func checkPackage(t *testing.T, files *token.FileSet, folder string, imports types.Importer) *types.Info {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed = append(parsed, file)
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object)}
	checker := types.Config{Importer: imports, Error: func(error) {}, FakeImportC: true, DisableUnusedImportCheck: true}
	_, _ = checker.Check(pathsOf[folder], files, parsed, info) // the other imports are missing
	return info
}

// textsOfTemplates finds the constant first arguments of t and tf.
func textsOfTemplates(t *testing.T, folder string, used found) {
	names, err := filepath.Glob(filepath.Join(folder, "templates", "*.html"))
	require.NoError(t, err)
	for _, name := range names {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		tree := parse.New(name)
		tree.Mode = parse.SkipFuncCheck
		sets := make(map[string]*parse.Tree)
		_, err = tree.Parse(string(source), "", "", sets)
		require.NoError(t, err)
		for _, one := range sets {
			walk(reflect.ValueOf(one.Root), func(command *parse.CommandNode) {
				function, ok := command.Args[0].(*parse.IdentifierNode)
				if !ok || len(command.Args) < 2 || function.Ident != "t" && function.Ident != "tf" {
					return
				}
				if key, ok := command.Args[1].(*parse.StringNode); ok {
					used.add(key.Text, name)
				}
			})
		}
	}
}

// walk visits the commands of a part of a template.
func walk(node reflect.Value, visit func(*parse.CommandNode)) {
	if node.Kind() == reflect.Interface {
		node = node.Elem()
	}
	if node.Kind() == reflect.Slice {
		for i := range node.Len() {
			walk(node.Index(i), visit)
		}
		return
	}
	if node.Kind() != reflect.Pointer || node.IsNil() || node.Type() == reflect.TypeFor[*parse.Tree]() {
		return
	}
	if command, ok := reflect.TypeAssert[*parse.CommandNode](node); ok {
		visit(command)
	}
	for i := range node.Elem().NumField() {
		if node.Elem().Type().Field(i).IsExported() || node.Elem().Type().Field(i).Anonymous {
			if field := node.Elem().Field(i); field.Kind() == reflect.Struct {
				walk(field.Addr(), visit)
			} else {
				walk(field, visit)
			}
		}
	}
}

func TestTextsAreFound(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "templates"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "templates", "x.html"), []byte(
		`{{t "one"}}{{define "x"}}{{if .A}}<a title="{{t "two"}}">{{else}}{{tf "three %s" (link "/" (t "four"))}}{{end}}{{end}}`+
			`{{range .B}}{{with tf "five %d" .C | print}}{{.}}{{end}}{{end}}{{template "x" (t "six")}}{{t .D}}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "x.go"), []byte(`package x
import ("a/b"; "`+textPackage+`")
const seven text.Text = "seven"
type form struct { Label text.Text; Name string; Fields []field }
type field struct { Label text.Text }
var all = b.Make(form{Label: "eight" + " and", Name: "no", Fields: []field{{Label: "nine"}, {"ten"}}}, map[string]text.Text{"no": "eleven"})
func words(p *text.Printer, name string) string { if name == "" { return p.T("twelve") }; return p.Tf("thirteen %s", name) }
func label() text.Text { return "fourteen" }
`), 0o600))
	used := make(found)
	textsOfTemplates(t, folder, used)
	textsOfCode(t, folder, used)
	require.ElementsMatch(t, []string{
		"one", "two", "three %s", "four", "five %d", "six", "seven", "eight and", "nine", "ten", "eleven", "twelve", "thirteen %s", "fourteen",
	}, slices.Collect(maps.Keys(used)))
}

var (
	action    = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	mark      = regexp.MustCompile(`(?s)<(?:[^<>"]|"[^"]*")*>`)
	attribute = regexp.MustCompile(`(?:aria-label|title|alt|placeholder)="([^"]*)"`)
	word      = regexp.MustCompile(`[A-Za-z]{2,}`)
	untold    = regexp.MustCompile("caddy svc channel approve|<!doctype html>|\\{\\{define \"state\"\\}\\}.*") // a command, and attributes outside of marks
)

// TestTemplatesHaveNoBareText guarantees that every word between the marks of a template, and in attributes for people, goes through the catalogue.
func TestTemplatesHaveNoBareText(t *testing.T) {
	bare := func(source string) []string {
		source = action.ReplaceAllString(untold.ReplaceAllString(source, ""), "")
		for _, attribute := range attribute.FindAllStringSubmatch(source, -1) {
			source += ">" + attribute[1]
		}
		return word.FindAllString(mark.ReplaceAllString(source, ""), -1)
	}
	require.Equal(t, []string{"Save", "me", "Menu"}, bare(`<a aria-label="Menu" href="x">Save {{.N}} me</a>{{t "No"}}`))
	for _, folder := range pagePackages(t) {
		names, err := filepath.Glob(filepath.Join(folder, "templates", "*.html"))
		require.NoError(t, err)
		for _, name := range names {
			source, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Empty(t, bare(string(source)), name)
		}
	}
}
