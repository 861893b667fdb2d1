package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks bounds the symbolic links followed for one path, as Linux does.
const maxLinks = 40

// canonicalPath is the absolute path of a database file with every symbolic link resolved, also when the file or some
// of its directories don't exist yet.
func canonicalPath(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("a file path is needed")
	case strings.ContainsRune(path, 0):
		return "", errors.New("the file path contains NUL")
	case strings.HasPrefix(path, ":memory:"), strings.HasPrefix(path, "file:"):
		return "", errors.New("a plain file path is needed: no file: URI, and no database in memory, which processes could not share")
	case strings.HasSuffix(path, "/"):
		return "", errors.New("the file path names a directory")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("make the path absolute: %w", err)
	}
	return resolveLinks(absolute, maxLinks)
}

// resolveLinks is [filepath.EvalSymlinks] for a path whose end may not exist: what doesn't exist is appended as it is,
// and a link that points nowhere is followed to where its file will be created.
func resolveLinks(path string, links int) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		return resolved, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("resolve the path: %w", err)
	}
	if links == 0 {
		return "", errors.New("too many symbolic links")
	}
	directory, name := filepath.Split(path)
	if name == "" {
		return path, nil
	}
	directory, err = resolveLinks(filepath.Clean(directory), links)
	if err != nil {
		return "", err
	}
	path = filepath.Join(directory, name)
	if target, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(directory, target)
		}
		return resolveLinks(target, links-1)
	}
	return path, nil // Not a link: it will be created here.
}
