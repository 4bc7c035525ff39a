package memshell

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"mvdan.cc/sh/v3/interp"
)

// A disk is files in memory, and the directories that they are in.
type disk struct {
	mu sync.Mutex
	// guards following
	entries map[string]*entry // by absolute path
}

// An entry is a file or a directory. It is its own fs.FileInfo.
type entry struct {
	name string
	dir  bool
	text []byte // the disk's mu guards it
	size int64  // of a copy
}

func (e entry) Name() string     { return e.name }
func (e entry) Size() int64      { return e.size }
func (entry) ModTime() time.Time { return time.Time{} }
func (e entry) IsDir() bool      { return e.dir }
func (entry) Sys() any           { return nil }

func (e entry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

func newDisk(files map[string]string) *disk {
	d := &disk{entries: map[string]*entry{}}
	for _, dir := range []string{"/", "/dev", "/tmp"} {
		d.mkdir(dir)
	}
	for name, text := range files {
		d.mkdir(path.Dir(name))
		d.entries[path.Clean(name)] = &entry{name: path.Base(name), text: []byte(text)}
	}
	return d
}

// mkdir makes a directory with its parents.
func (d *disk) mkdir(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name = path.Clean(name); d.entries[name] == nil; name = path.Dir(name) {
		d.entries[name] = &entry{name: path.Base(name), dir: true}
	}
}

func notExist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

// open is an [interp.OpenHandlerFunc].
func (d *disk) open(ctx context.Context, name string, flag int, _ os.FileMode) (io.ReadWriteCloser, error) {
	if name == "/dev/null" {
		return os.OpenFile(os.DevNull, os.O_RDWR, 0)
	}
	if !path.IsAbs(name) {
		name = path.Join(interp.HandlerCtx(ctx).Dir, name)
	}
	name = path.Clean(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[name]
	switch {
	case e != nil && e.dir:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	case e == nil && (flag&os.O_CREATE == 0 || d.entries[path.Dir(name)] == nil):
		return nil, notExist("open", name)
	case e == nil:
		e = &entry{name: path.Base(name)}
		d.entries[name] = e
	case flag&os.O_TRUNC != 0:
		e.text = nil
	}
	return &file{d, e, bytes.NewReader(slices.Clone(e.text))}, nil
}

// A file is an open file: what it had then is read, and writes go to its end.
type file struct {
	d *disk
	e *entry
	*bytes.Reader
}

func (f *file) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.e.text = append(f.e.text, b...)
	return len(b), nil
}

func (*file) Close() error { return nil }

// stat is an [interp.StatHandlerFunc].
func (d *disk) stat(_ context.Context, name string, _ bool) (fs.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[path.Clean(name)]; e != nil {
		info := *e
		info.text, info.size = nil, int64(len(e.text))
		return info, nil
	}
	return nil, notExist("stat", name)
}

// access is an [interp.AccessHandlerFunc].
func (d *disk) access(ctx context.Context, name string, _ interp.AccessMode) error {
	_, err := d.stat(ctx, name, true)
	return err
}

// readDir is an [interp.ReadDirHandlerFunc2].
func (d *disk) readDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if _, err := d.stat(ctx, name, true); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []fs.DirEntry
	for _, p := range slices.Sorted(maps.Keys(d.entries)) {
		if p != "/" && path.Dir(p) == path.Clean(name) {
			all = append(all, fs.FileInfoToDirEntry(entry{name: d.entries[p].name, dir: d.entries[p].dir}))
		}
	}
	return all, nil
}
