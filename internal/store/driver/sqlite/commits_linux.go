package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// reportReads returns a file that reports, to its reader, each read of another file by any process of the machine, or nil if the system
// doesn't report them: too many watches, or a file system that can't. Writes to the database's files are no signal: one to the log is
// reported before its commit is visible, and one to mapped memory never.
func reportReads(file *os.File) *os.File {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	reports := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, file.Name(), unix.IN_ACCESS); err == nil && reportsRead(fd, file) {
		return reports
	}
	reports.Close() //nolint:errcheck // nothing was written
	return nil
}

// reportsRead reads the file and reports whether that was reported.
func reportsRead(fd int, file *os.File) bool {
	readByte(file)
	var reports [4096]byte
	n, err := unix.Read(fd, reports[:])
	return err == nil && n > 0
}
