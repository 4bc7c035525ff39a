//go:build !linux

package execenv

// Only Linux has cgroups.
type (
	cgroups struct{ dir string }
	cgroup  struct{}
)

func newCgroups(parent, name string) *cgroups { return nil }

func (*cgroups) get() *cgroup    { return nil }
func (*cgroups) procs() []int    { return nil }
func (*cgroups) kill()           {}
func (*cgroups) populated() bool { return false }
func (*cgroups) remove()         {}

func (*cgroup) put()            {}
func (*cgroup) awaitEmpty()     {}
func (*cgroup) populated() bool { return false }
func (*cgroup) procs() []int    { return nil }
func (*cgroup) kill()           {}
