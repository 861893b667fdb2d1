//go:build !linux

package sqlite

// networkFileSystem can tell network file systems on Linux only; elsewhere the operator's guide warns of them.
func networkFileSystem(string) (name string, remote bool, err error) {
	return "", false, nil
}
