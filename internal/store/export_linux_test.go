package store

import "golang.org/x/sys/unix"

// TakeForNetwork makes the file system of a path a network file system in the eyes of this process.
func TakeForNetwork(path string) error {
	var about unix.Statfs_t
	if err := unix.Statfs(path, &about); err != nil {
		return err
	}
	networkFileSystems[int64(uint32(about.Type))] = "taken for one"
	return nil
}
