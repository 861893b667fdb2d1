package caddymodule

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

// TestModuleDirectoryReadsUs applies the rules of Caddy's module directory to the source of every package with modules. The directory
// reads modules from the syntax tree (caddyserver/moduledoc), and one fault keeps all of a package's modules out of it. The compiler
// sees none of these faults.
func TestModuleDirectoryReadsUs(t *testing.T) {
	t.Parallel()
	packages := map[string][]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "dist", "tests", "testdata"}, entry.Name()) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if bytes.Contains(source, []byte("RegisterModule(")) || bytes.Contains(source, []byte(") CaddyModule()")) {
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], string(source))
		}
		return err
	}))
	require.Contains(t, packages, "../caddymodule")
	var listed []string
	for folder, sources := range packages {
		modules, faults := readModules(t, sources...)
		require.Empty(t, faults, folder)
		listed = append(listed, modules...)
	}
	for _, module := range caddy.Modules() {
		name := caddy.ModuleID(module).Name()
		if module == appName || strings.HasPrefix(name, "svc_") || strings.HasPrefix(module, "svc.") {
			require.Contains(t, listed, module)
		}
	}
}

// TestModuleDirectoryRefuses shows that the rules find each form that the directory doesn't read.
func TestModuleDirectoryRefuses(t *testing.T) {
	t.Parallel()
	const method, rest = "// M is a module.\n//\n// Syntax:\n//\n//\tsvc_m\ntype M struct{}\nfunc (M) CaddyModule() caddy.ModuleInfo { ", " }\n"
	const good, registered = `return caddy.ModuleInfo{ID: "http.handlers.svc_m"}`, "func init() { caddy.RegisterModule(new(M)) }\n"
	for _, test := range []struct{ source, fault string }{
		{method + good + rest + registered, ""},
		{method + good + rest + "func init() { caddy.RegisterModule(M{}) }", ""},
		{method + good + rest + "func init() { caddy.RegisterModule(&M{}) }", "RegisterModule's argument is neither T{} nor new(T)"},
		{method + good + rest + "func init() { caddy.RegisterModule(H(new(M))) }", "RegisterModule's argument is neither T{} nor new(T)"},
		{method + good + rest + "func init() { caddy.RegisterModule(new(other.M)) }", "RegisterModule's argument is neither T{} nor new(T)"},
		{method + good + rest + "func init() { caddy.RegisterModule(M[int]{}) }", "RegisterModule's argument is neither T{} nor new(T)"},
		{method + `return moduleInfo("svc_m")` + rest + registered, "M: the first return of CaddyModule is no composite literal"},
		{method + "if x { return nil }; " + good + rest + registered, "M: the first return of CaddyModule is no composite literal"},
		{method + `return caddy.ModuleInfo{ID: name}` + rest + registered, "M: the ID is no literal"},
		{method + `return caddy.ModuleInfo{ID: "http.handlers." + name}` + rest + registered, "M: the ID is no literal"},
		{method + good + rest, "M: has CaddyModule and isn't registered"},
		{"func init() { caddy.RegisterModule(new(M)) }", "M: is registered and has no CaddyModule"},
		{"type M struct{}\nfunc (M) CaddyModule() caddy.ModuleInfo { " + good + rest + registered, "M: has no doc comment"},
		{"// M is a module.\ntype M struct{}\nfunc (M) CaddyModule() caddy.ModuleInfo { " + good + rest + registered, "M: the doc comment has no syntax of svc_m"},
	} {
		_, faults := readModules(t, "package p\n"+test.source)
		require.Equal(t, test.fault, strings.Join(faults, "; "), test.source)
	}
}

// readModules returns the ids of the modules of a package, as the directory reads them, and what keeps the directory from it. A
// module's doc comment becomes its page, so that of a directive must have its syntax.
func readModules(t *testing.T, sources ...string) (ids, faults []string) {
	t.Helper()
	docs, idOf, registered := map[string]string{}, map[string]string{}, map[string]bool{}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.GenDecl:
				if len(d.Specs) == 1 {
					if spec, ok := d.Specs[0].(*ast.TypeSpec); ok {
						docs[spec.Name.Name] = d.Doc.Text()
					}
				}
			case *ast.FuncDecl:
				if d.Recv != nil && d.Name.Name == "CaddyModule" {
					name := receiver(d)
					id, problem := moduleID(d)
					idOf[name] = id
					if problem != "" {
						fault("%s: %s", name, problem)
					}
				}
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if called, ok := call.Fun.(*ast.SelectorExpr); !ok || called.Sel.Name != "RegisterModule" {
				return true
			}
			name := registeredType(call.Args[0])
			if name == "" {
				fault("RegisterModule's argument is neither T{} nor new(T)")
			}
			registered[name] = true
			return true
		})
	}
	for name := range registered {
		if _, is := idOf[name]; name != "" && !is {
			fault("%s: is registered and has no CaddyModule", name)
		}
	}
	for name, id := range idOf {
		directive, isHandler := strings.CutPrefix(id, "http.handlers.")
		switch {
		case id == "" || registered[""]:
			continue // a fault already
		case !registered[name]:
			fault("%s: has CaddyModule and isn't registered", name)
		case docs[name] == "":
			fault("%s: has no doc comment", name)
		case isHandler && !strings.Contains(docs[name], "Syntax:\n\n\t"+directive):
			fault("%s: the doc comment has no syntax of %s", name, directive)
		}
		ids = append(ids, id)
	}
	return ids, faults
}

// receiver returns the name of a method's type.
func receiver(method *ast.FuncDecl) string {
	of := method.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// registeredType returns the type that T{} or new(T) makes, "" for anything else.
func registeredType(argument ast.Expr) string {
	made := argument
	switch e := argument.(type) {
	case *ast.CompositeLit:
		made = e.Type
	case *ast.CallExpr:
		if called, ok := e.Fun.(*ast.Ident); ok && called.Name == "new" {
			made = e.Args[0]
		}
	}
	if name, ok := made.(*ast.Ident); ok && made != argument {
		return name.Name
	}
	return ""
}

// moduleID returns the ID that the first return statement of a method CaddyModule has.
func moduleID(method *ast.FuncDecl) (id, problem string) {
	var first *ast.ReturnStmt
	ast.Inspect(method.Body, func(node ast.Node) bool {
		if statement, ok := node.(*ast.ReturnStmt); ok && first == nil {
			first = statement
		}
		return first == nil
	})
	if first == nil || len(first.Results) != 1 {
		return "", "the first return of CaddyModule is no composite literal"
	}
	info, ok := first.Results[0].(*ast.CompositeLit)
	if !ok {
		return "", "the first return of CaddyModule is no composite literal"
	}
	for _, element := range info.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "ID" {
			if value, ok := pair.Value.(*ast.BasicLit); ok {
				id, _ = strconv.Unquote(value.Value)
				return id, ""
			}
		}
	}
	return "", "the ID is no literal"
}
