package launcher

import (
	"strings"
)

// SSHOptions are the options of [SSH].
type SSHOptions struct {
	// Port is the port; "" is what ssh's configuration says, as for all that is
	// empty here.
	Port string
	// KeyFile is the file of the key to use, and no other.
	KeyFile string
	// KnownHosts is the file of the keys of hosts.
	KnownHosts string
	// Config is the configuration file; "none" is none.
	Config string
	// Ask allows ssh to ask the user for a password or a host's key, on the
	// agent's own terminal. Without it nothing is asked, and what would be is
	// an error.
	Ask bool
	// Args are further words before the destination.
	Args []string
}

// SSH runs commands on the host of a destination as ssh knows it: HOST,
// USER@HOST or an alias of its configuration. The commands of one connection
// share one TCP connection. Nil options are the defaults.
func SSH(destination string, opts *SSHOptions) Launcher {
	var o SSHOptions
	if opts != nil {
		o = *opts
	}
	return Launcher{
		Name:       "ssh " + destination,
		LoginShell: true,
		Sessions:   6, // sshd's MaxSessions is 10: the supervisor has one, and some may be closing
		Explain:    explainSSH,
		Argv: func(r Run) []string {
			argv := []string{"ssh"}
			if o.Config != "" {
				argv = append(argv, "-F", o.Config)
			}
			set := func(options ...string) {
				for _, option := range options {
					argv = append(argv, "-o", option)
				}
			}
			set("RemoteCommand=none", "EscapeChar=none", "ClearAllForwardings=yes", "PermitLocalCommand=no",
				"ControlPath="+r.Dir+"/s")
			if r.Supervisor {
				set("LogLevel=INFO", "ControlMaster=yes", "ControlPersist=no", "ConnectTimeout=15", "ServerAliveInterval=5", "ServerAliveCountMax=6")
			} else {
				// What ssh has to say goes to the standard error, as the command's own does.
				set("LogLevel=ERROR", "ControlMaster=no", "ProxyCommand=false") // over the connection, or not at all
			}
			if !o.Ask {
				set("BatchMode=yes")
			}
			if o.Port != "" {
				argv = append(argv, "-p", o.Port)
			}
			if o.KeyFile != "" {
				set("IdentityFile="+o.KeyFile, "IdentitiesOnly=yes")
			}
			if o.KnownHosts != "" {
				set("UserKnownHostsFile="+o.KnownHosts, "StrictHostKeyChecking=yes")
			}
			if r.TTY {
				argv = append(argv, "-tt")
			} else {
				argv = append(argv, "-T")
			}
			argv = append(argv, o.Args...)
			return append(append(argv, "--", destination), r.Argv...)
		},
	}
}

// explainSSH looks at all that ssh wrote: an unknown and a changed key end in the
// same line.
func explainSSH(text string) error {
	return explainBy(text, []clue{
		{"Host key verification failed", ErrHostKey},
		{"REMOTE HOST IDENTIFICATION HAS CHANGED", ErrHostKey},
		{"host key is known for", ErrHostKey},
		{"Permission denied", ErrDenied},
		{"Too many authentication failures", ErrDenied},
		{"Could not resolve hostname", ErrNoPlace},
	})
}

// Docker runs commands in a running container, by docker exec.
func Docker(container string) Launcher {
	// docker has no word for "no such keys": nobody types these.
	return containers("docker", container, "--detach-keys", strings.Repeat("ctrl-_,ctrl-^,", 8)+"ctrl-_")
}

// Podman runs commands in a running container, by podman exec.
func Podman(container string) Launcher { return containers("podman", container, "--detach-keys=") }

// containers returns the launcher of a program like docker. On a terminal such a
// program holds Ctrl-P back, and leaves the command at Ctrl-P Ctrl-Q, unless other
// keys do that.
func containers(program, container string, noDetach ...string) Launcher {
	return Launcher{
		Name:      program + " " + container,
		SetsModes: true,
		Explain:   explainContainer,
		Argv: func(r Run) []string {
			argv := []string{program, "exec", "-i"}
			if r.TTY {
				argv = append(append(argv, "-t"), noDetach...)
			}
			return append(append(argv, container), r.Argv...)
		},
	}
}

func explainContainer(text string) error {
	return explainBy(text, []clue{
		{"no such container", ErrNoPlace},
		{"no container with name", ErrNoPlace},
		{"is not running", ErrNoPlace},
		{"can only create exec sessions on running containers", ErrNoPlace},
		{"permission denied", ErrDenied},
	})
}

// A Pod says which container of a cluster [Kubectl] means. Empty fields are what
// kubectl's configuration says.
type Pod struct{ Context, Namespace, Name, Container string }

// Kubectl runs commands in a container of a pod, by kubectl exec.
func Kubectl(pod Pod) Launcher {
	return Launcher{
		Name:      strings.Join(strings.Fields("kubectl "+pod.Context+" "+pod.Namespace+" "+pod.Name+" "+pod.Container), " "),
		SetsModes: true,
		Explain:   explainKubectl,
		Argv: func(r Run) []string {
			argv := []string{"kubectl", "exec", "-i"}
			if r.TTY {
				argv = append(argv, "-t")
			}
			for _, option := range [][2]string{{"--context", pod.Context}, {"--namespace", pod.Namespace}, {"--container", pod.Container}} {
				if option[1] != "" {
					argv = append(argv, option[0], option[1])
				}
			}
			return append(append(argv, pod.Name, "--"), r.Argv...)
		},
	}
}

func explainKubectl(text string) error {
	return explainBy(text, []clue{
		{"(notfound)", ErrNoPlace},
		{"not found", ErrNoPlace},
		{"container not found", ErrNoPlace},
		{"does not exist", ErrNoPlace},
		{"forbidden", ErrDenied},
		{"unauthorized", ErrDenied},
	})
}

// Command runs commands by any other program that takes a command line as the
// words after its own: systemd-run --pipe --wait, limactl shell VM, wsl --. The
// words are the same with and without a terminal.
func Command(argv ...string) Launcher {
	return Launcher{
		Name: strings.Join(argv, " "),
		Argv: func(r Run) []string { return append(append([]string(nil), argv...), r.Argv...) },
	}
}

// A clue is a text in what a launcher wrote that names a reason.
type clue struct {
	text   string
	reason error
}

// explainBy returns the reason of the first clue that text has, in any case.
func explainBy(text string, clues []clue) error {
	text = strings.ToLower(text)
	for _, c := range clues {
		if strings.Contains(text, strings.ToLower(c.text)) {
			return c.reason
		}
	}
	return nil
}
