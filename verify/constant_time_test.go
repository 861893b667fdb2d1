package verify

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecretsAreComparedInConstantTime reads the package's own code: two values may be compared by == and != only when one of
// them is a constant, and not at all by a switch or by a function that ends at the first difference. A clock can't show
// this: a machine under load hides a difference of nanoseconds.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	t.Parallel()
	constantTime := 0
	for name, file := range parsePackage(t) {
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncDecl:
				return node.Name.Name != "names" // it compares names of members, which are public
			case *ast.BinaryExpr:
				if node.Op == token.EQL || node.Op == token.NEQ {
					require.True(t, plain(node.X) || plain(node.Y), "%s compares two values that may be secret", name.at(node))
				}
			case *ast.SwitchStmt:
				require.Nil(t, node.Tag, "%s switches on a value that may be secret", name.at(node))
			case *ast.CallExpr:
				function := called(node)
				require.False(t, endsEarly[function], "%s calls %s, whose time tells where two values differ", name.at(node), function)
				if function == "subtle.ConstantTimeCompare" || function == "hmac.Equal" {
					constantTime++
				}
			}
			return true
		})
	}
	require.Equal(t, 2, constantTime, "the values of headers, and the handshake's token")
}

// endsEarly are functions that compare, and end at the first difference.
var endsEarly = map[string]bool{
	"bytes.Equal": true, "bytes.Compare": true, "bytes.EqualFold": true, "bytes.HasSuffix": true, "bytes.Contains": true,
	"strings.Compare": true, "strings.EqualFold": true, "strings.HasSuffix": true, "strings.Contains": true,
	"slices.Equal": true, "slices.Contains": true, "slices.Compare": true, "maps.Equal": true, "reflect.DeepEqual": true, "cmp.Compare": true,
}

// called is the name of a function with its package, such as bytes.Equal.
func called(call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	from, ok := selector.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return from.Name + "." + selector.Sel.Name
}

// plain reports whether an operand is a constant of the code.
func plain(operand ast.Expr) bool {
	switch operand := operand.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return operand.Name == "nil" || operand.Name == "true" || operand.Name == "false"
	default:
		return false
	}
}

// source is a file of the package.
type source struct {
	path string
	set  *token.FileSet
}

func (s source) at(node ast.Node) string { return s.set.Position(node.Pos()).String() }

func parsePackage(t *testing.T) map[source]*ast.File {
	t.Helper()
	files, set := map[source]*ast.File{}, token.NewFileSet()
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		files[source{path, set}] = file
		return err
	}))
	require.NotEmpty(t, files)
	return files
}
