package execenv

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/termbridge/termbridge/internal/secrets"
)

// An Env says which environment a process gets. The zero value is minimal: the
// names that a program needs to find its way (PATH, HOME, USER, LOGNAME, SHELL,
// TMPDIR, TZ, LANG and LC_*), with the values of the agent. More is asked for
// by name: [Env.InheritSafe], [Env.Inherit], [Env.Keep], [Env.With]. [Env.Only]
// is exact.
//
// Names that describe the terminal, the editor or the supervisor of the agent
// (TMUX, GPG_TTY, COLUMNS, VSCODE_*, NVIM, NOTIFY_SOCKET and the like) are never
// inherited: a command has another terminal, and must not write to this one.
// An Env is a value: each method returns a changed copy.
type Env struct {
	from    inheritance
	keep    []string // patterns that are inherited, whatever from says
	secret  []string // patterns that InheritSafe does not inherit either
	with    map[string]string
	without map[string]bool
}

type inheritance int

const (
	minimal inheritance = iota
	safe
	everything
	nothing
)

// Patterns of names: upper case, with a '*' at either end.
var (
	minimalNames = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_*",
	}

	agentNames = []string{
		// Its terminal.
		"GPG_TTY", "SSH_TTY", "SUDO_TTY", "WINDOW", "WINDOWID", "TERMCAP", "TERMINFO", "COLUMNS", "LINES",
		"COLORTERM", "COLORFGBG", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_FEATURES", "TERM_SESSION_ID", "TERMINOLOGY", "TERMINAL_EMULATOR",
		"LC_TERMINAL", "LC_TERMINAL_VERSION", "VTE_VERSION", "XTERM_*", "RXVT_SOCKET", "TILIX_ID",
		"TERMINATOR_*", "GUAKE_TAB_UUID", "SHELL_SESSION_ID", "ITERM_*", "ITERM2_*", "PTYXIS_*", "WAVETERM*", "YAKUAKE_*", "KONSOLE_*", "KITTY_*", "GHOSTTY_*",
		"WEZTERM_*", "ALACRITTY_*", "GNOME_TERMINAL_*", "WT_*", "WARP_*", "JEDITERM_*", "ASCIINEMA_*",
		"TMUX", "TMUX_PANE", "STY", "ZELLIJ*", "BYOBU_*", "MC_SID",
		// Its editor.
		"INSIDE_EMACS", "EMACS", "EMACS_SOCKET_NAME", "EAT_SHELL_INTEGRATION_DIR", "NVIM", "NVIM_LISTEN_ADDRESS",
		"NVIM_LOG_FILE", "VIM", "VIMRUNTIME", "MYVIMRC", "VIM_TERMINAL", "VIM_SERVERNAME", "VSCODE_*", "CURSOR_TRACE_ID",
		"ZED_TERM", "ZED_ENVIRONMENT", "PYCHARM_HOSTED", "INTELLIJ_*", "__INTELLIJ_*", "KATE_PID", "CHROME_DESKTOP",
		"GIO_LAUNCHED_DESKTOP_FILE", "GIO_LAUNCHED_DESKTOP_FILE_PID", "DESKTOP_STARTUP_ID", "__CFBUNDLEIDENTIFIER",
		"ELECTRON_RUN_AS_NODE", "ELECTRON_NO_ATTACH_CONSOLE", "ELECTRON_NO_ASAR",
		// Its supervisor, and the descriptors that this gave to it.
		"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID", "MAINPID", "MANAGERPIDFDID",
		"CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY",
		"CONFIGURATION_DIRECTORY", "DBUS_STARTER_ADDRESS", "DBUS_STARTER_BUS_TYPE", "MONIT_*", "CIRCUS_*", "EINHORN_*",
		"OVERMIND_*", "SERVER_STARTER_*",
		"MANAGERPID", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "FDSTORE", "MEMORY_PRESSURE_*",
		"SUPERVISOR_*", "UPSTART_*", "PM2_*", "PM_*", "NODE_APP_INSTANCE", "NODE_CHANNEL_FD", "NODE_CHANNEL_SERIALIZATION_MODE",
		"NODE_UNIQUE_ID", "XPC_SERVICE_NAME", "XPC_FLAGS",
	}
)

// InheritSafe returns e on top of the agent's whole environment, without what
// looks like a secret: by its name, in upper or lower case (*PASSWORD*, *_KEY,
// *TOKEN, *_SAS, DOCKER_AUTH_CONFIG and so on), or by its value (a URL or a
// connection string with a password, a private key, the token formats of many
// services). A path, a number of tokens and a public key are none, and
// SSH_AUTH_SOCK, which ssh and git need, is inherited. That is a net under
// careless variables, not a vault: [Env.Secret] and [Env.Keep] correct it.
func (e Env) InheritSafe() Env { e.from = safe; return e }

// Inherit returns e on top of the agent's whole environment, secrets included.
func (e Env) Inherit() Env { e.from = everything; return e }

// Only returns an environment of exactly these variables: nothing is inherited
// and nothing is added, but for TERMBRIDGE_ID, by which a [Local] finds what its
// processes start.
func (e Env) Only(vars map[string]string) Env { return Env{from: nothing}.With(vars) }

// Secret returns e that takes names like these for secrets, too. A pattern is a
// name with a '*' at either end, at both or at none; case does not count.
func (e Env) Secret(patterns ...string) Env {
	e.secret = upper(e.secret, patterns)
	return e
}

// Keep returns e that inherits names like these from the agent, even if they
// look like secrets or the rest is minimal. Patterns are those of [Env.Secret],
// over which it wins.
func (e Env) Keep(patterns ...string) Env {
	e.keep = upper(e.keep, patterns)
	return e
}

func upper(list, more []string) []string {
	list = slices.Clone(list)
	for _, pattern := range more {
		list = append(list, strings.ToUpper(pattern))
	}
	return list
}

// With returns e with these variables set. They win over whatever is inherited.
func (e Env) With(vars map[string]string) Env {
	if len(vars) == 0 {
		return e
	}
	e.with = maps.Clone(e.with)
	e.without = maps.Clone(e.without)
	if e.with == nil {
		e.with = make(map[string]string, len(vars))
	}
	for name, value := range vars {
		e.with[name] = value
		delete(e.without, name)
	}
	return e
}

// Without returns e without these names, whether inherited or set before.
func (e Env) Without(names ...string) Env {
	e.with = maps.Clone(e.with)
	e.without = maps.Clone(e.without)
	if e.without == nil {
		e.without = make(map[string]bool, len(names))
	}
	for _, name := range names {
		e.without[name] = true
		delete(e.with, name)
	}
	return e
}

// Default returns e with those of these variables that [Env.With] has not set.
// They win over whatever is inherited.
func (e Env) Default(vars map[string]string) Env {
	vars = maps.Clone(vars)
	maps.DeleteFunc(vars, func(name, _ string) bool {
		_, set := e.with[name]
		return set || e.without[name]
	})
	return e.With(vars)
}

// Environ returns the environment as "NAME=value", sorted, as it is now. The
// locale is C.UTF-8 if the agent has none. An [Executor] adds what belongs to
// one process: TERM, PWD and its own tag.
func (e Env) Environ() []string {
	list := e.environ(make(map[string]string))
	slices.Sort(list)
	return list
}

// environ returns the environment with own on top of it.
func (e Env) environ(own map[string]string) []string {
	if e.from != nothing && cmp.Or(e.get("LC_ALL"), e.get("LC_CTYPE"), e.get("LANG")) == "" && !e.without["LANG"] {
		own["LANG"] = defaultLang
	}
	var agent []string
	if e.from != nothing {
		agent = os.Environ()
	}
	list := make([]string, 0, len(agent)+len(e.with)+len(own))
	for _, kv := range agent {
		// A name may begin with '=' on Windows.
		i := strings.IndexByte(kv[min(1, len(kv)):], '=') + 1
		if i == 0 {
			continue
		}
		_, set := e.with[kv[:i]]
		_, owned := own[kv[:i]]
		if !set && !owned && e.inherits(kv, i) {
			list = append(list, kv)
		}
	}
	for name, value := range e.with {
		if _, owned := own[name]; !owned {
			list = append(list, name+"="+value)
		}
	}
	for name, value := range own {
		list = append(list, name+"="+value)
	}
	return list
}

// get returns the value of a variable.
func (e Env) get(name string) string {
	if value, ok := e.with[name]; ok {
		return value
	}
	if value := os.Getenv(name); e.inherits(name+"="+value, len(name)) {
		return value
	}
	return ""
}

// inherits reports whether the agent's variable kv, whose name has n bytes, is
// inherited.
func (e Env) inherits(kv string, n int) bool {
	name := kv[:n]
	switch kind := kindOf(name); {
	case e.from == nothing, e.without[name], kind.agent, name == tagName:
		return false
	case e.from == everything:
		return true
	case len(e.keep) > 0 && secrets.Matches(e.keep, strings.ToUpper(name)):
		return true
	case e.from == safe:
		return !kind.Looks(kv, kv[n+1:]) && (len(e.secret) == 0 || !secrets.Matches(e.secret, strings.ToUpper(name)))
	default:
		return kind.minimal
	}
}

// A nameKind is what the name of a variable says about it.
type nameKind struct {
	minimal bool
	agent   bool // its terminal, editor or supervisor
	secrets.Kind
}

// nameKinds remembers them: names are few and the same at every start, and to
// match one with all patterns takes a microsecond.
var nameKinds sync.Map

func kindOf(name string) nameKind {
	if kind, ok := nameKinds.Load(name); ok {
		return kind.(nameKind)
	}
	upper := strings.ToUpper(name)
	kind := nameKind{secrets.Matches(minimalNames, upper), secrets.Matches(agentNames, upper), secrets.KindOf(name)}
	nameKinds.Store(strings.Clone(name), kind)
	return kind
}

// Env returns the environment that fits the trust in the class:
//
//	shell, user hook, evolve        InheritSafe
//	memory git                      minimal, SSH_AUTH_SOCK and GIT_*
//	plugins, workspace tools        minimal
//
// To filter nothing, as those do who trust a shell, a user hook or evolve with
// everything that the agent knows, say Env().Inherit().
func (c Class) Env() Env {
	switch c {
	case ClassShell, ClassUserHook, ClassEvolve:
		return Env{}.InheritSafe()
	case ClassMemoryGit:
		return Env{}.Keep("SSH_AUTH_SOCK", "GIT_*")
	}
	return Env{}
}

// Explicit returns a copy of the variables that With has set: what an Executor
// for another place passes on, where the agent's own environment means nothing.
func (e Env) Explicit() map[string]string { return maps.Clone(e.with) }
