package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
)

// row is a promise or a fact, and the tests and scripts that show it, separated by spaces. store.TestFullDisk is TestFullDisk in the
// folder whose last name is store; tests drives the built programs from outside.
type row struct{ promise, shownBy string }

// requireShown requires that every test and script of the rows exists.
func requireShown(t *testing.T, rows []row) {
	t.Helper()
	tests := testsOf(t)
	for _, r := range rows {
		require.NotEmpty(t, r.shownBy, r.promise)
		for name := range strings.FieldsSeq(r.shownBy) {
			if strings.HasPrefix(name, "scripts/") {
				require.FileExists(t, filepath.Join("..", name))
			} else {
				require.True(t, tests[name], "there is no %s", name)
			}
		}
	}
}

// TestUpgrading: the page says of every version of the store what it changes.
func TestUpgrading(t *testing.T) {
	t.Parallel()
	var described, made []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| .* \|$`).FindAllStringSubmatch(read(t, "upgrading.md"), -1) {
		described = append(described, row[1])
	}
	for _, version := range schema.Versions(driver.Postgres) {
		made = append(made, strconv.FormatInt(version.Number, 10))
	}
	require.Equal(t, made, described)
}

// TestExtending: the Go code of the page is that of the file which is named above it.
func TestExtending(t *testing.T) {
	t.Parallel()
	page := read(t, "extending.md")
	quotations := regexp.MustCompile("(?s)\\]\\(\\.\\./([^)]*)\\):\n\n```go\n(.*?)```\n").FindAllStringSubmatch(page, -1)
	require.Len(t, quotations, strings.Count(page, "```go\n"), "code without a file")
	for _, quotation := range quotations {
		require.Contains(t, read(t, filepath.Join("..", quotation[1])), quotation[2], quotation[1])
	}
}

// testsOf returns every test of the module, as folder.Name.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)
	walkGo(t, func(path, source string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		folder, err := filepath.Abs(filepath.Dir(path))
		require.NoError(t, err)
		for _, match := range function.FindAllStringSubmatch(source, -1) {
			tests[filepath.Base(folder)+"."+match[1]] = true
		}
	})
	return tests
}

// walkGo calls visit with the path and the text of every Go file of the repository.
func walkGo(t *testing.T, visit func(path, source string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == "node_modules" || name == "dist" || name == "data" || strings.HasPrefix(name, ".") && name != "..") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			visit(path, read(t, path))
		}
		return nil
	}))
}

// TestReferencesToPages: every comment that names a heading of a page in this folder names one that exists.
func TestReferencesToPages(t *testing.T) {
	t.Parallel()
	reference := regexp.MustCompile(`docs/([a-z-]+\.md)#([a-z0-9-]+)`)
	anchors := map[string][]string{}
	walkGo(t, func(path, source string) {
		for _, match := range reference.FindAllStringSubmatch(source, -1) {
			page := match[1]
			if anchors[page] == nil {
				anchors[page] = anchorsOf(read(t, page))
			}
			require.Contains(t, anchors[page], match[2], "%s refers to %s", path, page)
		}
	})
	for _, own := range regexp.MustCompile(`\]\(#([a-z0-9-]+)\)`).FindAllStringSubmatch(read(t, "contract.md"), -1) {
		require.Contains(t, anchorsOf(read(t, "contract.md")), own[1])
	}
}

// TestSecurityPolicy: everything that SECURITY.md names exists: pages and their sections, options of the Caddyfile, commands.
func TestSecurityPolicy(t *testing.T) {
	t.Parallel()
	policy := read(t, "../SECURITY.md")
	links := regexp.MustCompile(`\]\(([^)#]+)(?:#([a-z0-9-]+))?\)`).FindAllStringSubmatch(policy, -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		page := read(t, filepath.Join("..", link[1]))
		if link[2] != "" {
			require.Contains(t, anchorsOf(page), link[2], link[1])
		}
	}
	known := map[string]bool{"User-Agent": true, "roll_keep_for": true} // of HTTP, of Caddy
	add := func(prefix, pattern, text string) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			known[prefix+match[1]] = true
		}
	}
	add("make ", `(?m)^([a-z]+):`, read(t, "../Makefile"))
	add("", `(/v1)/`, read(t, "../Caddyfile.example"))
	for _, pattern := range []string{"../caddymodule/*.go", "../caddymodule/*/*.go", "../handlers/*.go", "../handlers/*/*.go"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			source := read(t, path)
			add("", `"([A-Za-z_-]+)"`, source)
			add("caddy svc ", `Use:\s+"([a-z-]+)`, source)
			add("limits ", `(?:Word: |caddyfile\.[A-Z]\w+\()"([a-z_]+)"`, source)
		}
	}
	terms := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(policy, -1)
	require.NotEmpty(t, terms)
	for _, term := range terms {
		require.True(t, known[term[1]], "there is no %s", term[1])
	}
}

// TestLinks: every link of the README and of the pages leads to a file, a folder or a heading that exists.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	decisions, err := filepath.Glob("decisions/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, decisions)
	for _, page := range slices.Concat(pages, decisions, []string{"../README.md"}) {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]*)\)`).FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
				_, err := os.Stat(target)
				require.NoError(t, err, "%s links to %s", page, link[1])
			}
			if anchor != "" {
				require.Contains(t, anchorsOf(read(t, target)), anchor, "%s links to %s", page, link[1])
			}
		}
	}
}

// TestArchitectureNamesEveryRoom: the page links to the folder of every package of the product.
func TestArchitectureNamesEveryRoom(t *testing.T) {
	t.Parallel()
	var named []string
	for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(read(t, "architecture.md"), -1) {
		named = append(named, link[1])
	}
	walkGo(t, func(path, _ string) {
		if folder := filepath.Dir(path); !notProduct.MatchString(folder) {
			require.Contains(t, named, folder)
		}
	})
}

// notProduct matches the folders of tests, suites, tools, documentation and programs, and the root.
var notProduct = regexp.MustCompile(`^\.\.(/(tests|tools|packaging|docs|cmd)\b.*|.*test(/.*)?|.*/testdata/.*)?$`)

// anchorsOf are the anchors of a page's headings.
func anchorsOf(page string) (anchors []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors = append(anchors, strings.ReplaceAll(kept, " ", "-"))
	}
	return anchors
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
