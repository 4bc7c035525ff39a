package launcher

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/termbridge/termbridge/execenv"
)

// A Policy says what a command in a sandbox may do. The zero value lets it read
// the system, without secrets, and write nothing but a /tmp of its own.
//
// In every sandbox /tmp and /run are empty, so that the sockets of other
// programs cannot be reached, the environment holds nothing of the agent's but
// PATH, HOME, LANG and TERM, and the whole tree of a command ends with it: what
// it leaves in the background dies at its natural end, too.
type Policy struct {
	// Write are directories that may be written. Read are directories that may be
	// read though they lie where the sandbox shows nothing. Both are absolute and
	// exist.
	Write, Read []string

	// Hide are files and directories that may not be read, besides those that
	// usually hold secrets ([Secrets]). They win over Write and Read.
	Hide []string

	// Show are files and directories of [Secrets] that may be read.
	Show []string

	// Network allows the network, and with it the abstract sockets of this
	// machine.
	Network bool
}

// Secrets are the files and directories, below the home directory, that a sandbox
// hides.
var Secrets = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/op",
	".config/google-chrome", ".config/chromium", ".mozilla", ".local/share/keyrings", ".password-store",
	".netrc", ".git-credentials", ".config/git/credentials", ".npmrc", ".pypirc", ".pgpass", ".my.cnf",
	".cargo/credentials.toml", ".terraform.d", ".vault-token", ".bash_history", ".zsh_history",
}

// PolicyFor returns the policy that fits the trust in a class, for work in a
// directory:
//
//	plugins          no network, no writing, the workspace is hidden
//	workspace tool   no network, the workspace is read
//	evolve           no network, the workspace is written
//	shell, user hook the network, the workspace is written
//	memory git       the network, the workspace is written, and the keys of ssh and git are read
func PolicyFor(class execenv.Class, workspace string) Policy {
	switch class {
	case execenv.ClassShell, execenv.ClassUserHook:
		return Policy{Write: []string{workspace}, Network: true}
	case execenv.ClassMemoryGit:
		return Policy{Write: []string{workspace}, Network: true, Show: []string{".ssh", ".git-credentials", ".config/git/credentials"}}
	case execenv.ClassEvolve:
		return Policy{Write: []string{workspace}}
	case execenv.ClassWorkspaceTool:
		return Policy{Read: []string{workspace}}
	}
	return Policy{Hide: []string{workspace}}
}

// hidden returns what is there of what the policy hides, as absolute paths without
// symbolic links.
func (p Policy) hidden() []string {
	var all []string
	for _, path := range slices.Concat(Secrets, p.Hide) {
		if slices.Contains(p.Show, path) {
			continue
		}
		paths := []string{path}
		if !filepath.IsAbs(path) {
			paths = nil
			for _, home := range homes() {
				paths = append(paths, filepath.Join(home, path))
			}
		}
		for _, path := range paths {
			if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(all, real) {
				all = append(all, real)
			}
		}
	}
	return all
}

// homes returns the home directories of the user: HOME may be another than the one
// that has the secrets, or none.
func homes() []string {
	var all []string
	if u, err := user.Current(); err == nil && filepath.IsAbs(u.HomeDir) {
		all = append(all, u.HomeDir)
	}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) && !slices.Contains(all, home) {
		all = append(all, home)
	}
	return all
}

// environment is what a sandbox has of the agent's environment.
func environment() []string {
	var vars []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TERM"} {
		if value, ok := os.LookupEnv(name); ok {
			vars = append(vars, name+"="+value)
		}
	}
	return vars
}

// vanished matches what bwrap writes when a mount below a directory that it binds was
// unmounted meanwhile, as every container that ends nearby does.
var vanished = regexp.MustCompile(`(?m)^bwrap: Can't bind mount .* Unable to apply mount flags: remount ".*": (No such file or directory|Invalid argument)\r?$`)

// Bubblewrap runs commands in a sandbox of this machine, by bwrap (Linux). Where
// the kernel does not allow the sandbox the start fails with [ErrNoSandbox]:
// nothing ever runs outside of it.
func Bubblewrap(policy Policy) Launcher {
	return Launcher{
		Name:    "sandbox",
		Here:    true,
		Explain: func(string) error { return ErrNoSandbox },
		Again:   vanished.MatchString,
		Argv: func(r Run) []string {
			argv := []string{
				"bwrap", "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
				"--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
				"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
			}
			// For an agent that is root these could be written, and are the machine's.
			for _, path := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"} {
				argv = append(argv, "--ro-bind-try", path, path)
			}
			if !policy.Network {
				argv = append(argv, "--unshare-net")
			}
			emptied := slices.DeleteFunc([]string{"/tmp", "/var/tmp", "/run", "/var/run"}, func(path string) bool {
				real, err := filepath.EvalSymlinks(path)
				return err != nil || real != path
			})
			for _, path := range emptied {
				argv = append(argv, "--tmpfs", path)
			}
			bind := func(how string, dirs []string) {
				for _, dir := range dirs {
					real, err := filepath.EvalSymlinks(dir)
					if err != nil {
						real = dir // bwrap says what is wrong
					}
					argv = append(argv, how, real, real)
					// A link is there as it is, unless it is in a directory that is empty now.
					if real != filepath.Clean(dir) && slices.ContainsFunc(emptied, func(path string) bool { return strings.HasPrefix(dir, path+"/") }) {
						argv = append(argv, "--symlink", real, dir)
					}
				}
			}
			bind("--ro-bind", policy.Read)
			bind("--bind", policy.Write)
			for _, path := range policy.hidden() {
				if info, err := os.Stat(path); err == nil && info.IsDir() {
					argv = append(argv, "--tmpfs", path)
				} else {
					argv = append(argv, "--ro-bind", "/dev/null", path)
				}
			}
			for _, v := range environment() {
				name, value, _ := strings.Cut(v, "=")
				argv = append(argv, "--setenv", name, value)
			}
			return append(append(argv, "--"), r.Argv...)
		},
	}
}

// Seatbelt runs commands in a sandbox of this machine, by sandbox-exec (macOS). It
// has no /tmp of its own and no processes of its own: a command may see others,
// and what it leaves behind is found as on the machine itself.
func Seatbelt(policy Policy) Launcher {
	return Launcher{
		Name: "sandbox",
		Here: true,
		Explain: func(text string) error {
			return explainBy(text, []clue{{"sandbox", ErrNoSandbox}})
		},
		Argv: func(r Run) []string {
			argv := append([]string{"env", "-i"}, environment()...)
			return append(append(argv, "sandbox-exec", "-p", policy.profile()), r.Argv...)
		},
	}
}

// profile is the policy in the language of sandbox-exec. Its later rules win.
func (p Policy) profile() string {
	var b strings.Builder
	rule := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	rule("(version 1)")
	rule("(allow default)")
	rule("(deny file-write*)")
	rule(`(allow file-write* (literal "/dev/null") (literal "/dev/tty") (regex #"^/dev/ttys[0-9]+$"))`)
	rule("(deny signal (target others))")
	if !p.Network {
		rule("(deny network*)")
	}
	for _, dir := range p.Read {
		rule("(allow file-read* (subpath %q))", dir)
	}
	for _, dir := range p.Write {
		rule("(allow file-read* file-write* (subpath %q))", dir)
	}
	for _, path := range p.hidden() {
		rule("(deny file-read* file-write* (subpath %q))", path)
	}
	return b.String()
}
