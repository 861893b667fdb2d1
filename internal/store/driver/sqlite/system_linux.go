package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// networkFileSystems are file systems without reliable locks or shared memory mappings between machines, or even between processes, by the magic
// number of statfs(2). FUSE includes sshfs, s3fs, virtiofs and others: a local one looks like a remote one, so all are refused.
var networkFileSystems = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB2", unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.FUSE_SUPER_MAGIC: "FUSE", unix.V9FS_MAGIC: "9P", unix.CEPH_SUPER_MAGIC: "Ceph", unix.AFS_SUPER_MAGIC: "AFS",
	unix.CODA_SUPER_MAGIC: "Coda", unix.NCP_SUPER_MAGIC: "NCP", 0x0bd00bd0: "Lustre", 0x01161970: "GFS2", 0x7461636f: "OCFS2",
	0x47504653: "GPFS", 0x19830326: "BeeGFS", 0x786f4256: "VirtualBox shared folder", 0xbacbacbc: "VMware shared folder",
}

// networkFileSystem names the file system of an existing path and reports whether SQLite can't use it.
func networkFileSystem(path string) (name string, remote bool, err error) {
	var about unix.Statfs_t
	if err := unix.Statfs(path, &about); err != nil {
		return "", false, err
	}
	// Type is signed and of different width per architecture; the magic numbers are unsigned 32 bit.
	name, remote = networkFileSystems[int64(uint32(about.Type))]
	return name, remote, nil
}

// reportReads returns a file that reports, to its reader, each read of another file by any process of the machine, or nil if the system
// doesn't report them: too many watches, or a file system that can't. Writes to the database's files are no signal: one to the log is
// reported before its commit is visible, and one to mapped memory never.
func reportReads(file *os.File) *os.File {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	reports := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, file.Name(), unix.IN_ACCESS); err == nil {
		readByte(file) // is it reported?
		var read [4096]byte
		if n, err := unix.Read(fd, read[:]); err == nil && n > 0 {
			return reports
		}
	}
	reports.Close() //nolint:errcheck // nothing was written
	return nil
}
