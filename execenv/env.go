package execenv

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// An Env says which environment a process gets. The zero value is minimal: the
// names that a program needs to find its way (PATH, HOME, USER, LOGNAME, SHELL,
// TMPDIR, TZ, LANG and LC_*), with the values of the agent. More is asked for
// by name: [Env.InheritSafe], [Env.Inherit], [Env.With].
//
// Names that describe the terminal of the agent (TMUX, STY, WINDOWID, COLUMNS,
// LINES and the like) are never inherited: they would be wrong in any other.
// An Env is a value: each method returns a changed copy.
type Env struct {
	from    inheritance
	keep    []string // further patterns that a minimal Env inherits
	with    map[string]string
	without map[string]bool
}

type inheritance int

const (
	minimal inheritance = iota
	safe
	everything
)

// Patterns of names: upper case, with a '*' at either end.
var (
	minimalNames = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_*",
	}

	// A secret in a name that is not here is inherited: this list is a net
	// under careless names, not a vault.
	secretNames = []string{
		"*SECRET*", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*CREDENTIAL*",
		"*API_KEY*", "*APIKEY*", "*PRIVATE_KEY*", "*ACCESS_KEY*", "*_KEY",
		"*TOKEN", "*TOKENS", "*_TOKEN_*", "*_AUTH", "*_PASS", "*_PWD", "*_PAT", "*_DSN",
		"*_COOKIE", "*_COOKIES", "*_CONNECTION_STRING", "SSHPASS",
	}

	terminalNames = []string{
		"TMUX", "TMUX_PANE", "STY", "WINDOW", "WINDOWID", "TERMCAP", "COLUMNS", "LINES", "COLORTERM",
		"TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID", "VTE_VERSION", "WT_SESSION",
		"KONSOLE_*", "ITERM_*", "KITTY_*", "WEZTERM_*", "ALACRITTY_*", "GNOME_TERMINAL_*", "ZELLIJ*",
	}
)

// InheritSafe returns e on top of the agent's whole environment, without names
// that look like secrets, in upper or lower case: *SECRET*, *PASSWORD*,
// *PASSWD*, *PASSPHRASE*, *CREDENTIAL*, *API_KEY*, *APIKEY*, *PRIVATE_KEY*,
// *ACCESS_KEY*, *_KEY, *TOKEN, *TOKENS, *_TOKEN_*, *_AUTH, *_PASS, *_PWD,
// *_PAT, *_DSN, *_COOKIE, *_COOKIES, *_CONNECTION_STRING and SSHPASS. Only
// names are looked at, and SSH_AUTH_SOCK, which ssh and git need, is inherited.
func (e Env) InheritSafe() Env { e.from = safe; return e }

// Inherit returns e on top of the agent's whole environment, secrets included.
func (e Env) Inherit() Env { e.from = everything; return e }

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

// Environ returns the environment as "NAME=value", sorted, as it is now. The
// locale is C.UTF-8 if the agent has none. An [Executor] adds what belongs to
// one process: TERM, PWD and its own mark.
func (e Env) Environ() []string {
	list := e.environ(make(map[string]string))
	slices.Sort(list)
	return list
}

// environ returns the environment with own on top of it.
func (e Env) environ(own map[string]string) []string {
	if cmp.Or(e.get("LC_ALL"), e.get("LC_CTYPE"), e.get("LANG")) == "" && !e.without["LANG"] {
		own["LANG"] = defaultLang
	}
	agent := os.Environ()
	list := make([]string, 0, len(agent)+len(e.with)+len(own))
	for _, kv := range agent {
		// A name may begin with '=' on Windows.
		i := strings.IndexByte(kv[min(1, len(kv)):], '=') + 1
		if i == 0 {
			continue
		}
		_, set := e.with[kv[:i]]
		_, owned := own[kv[:i]]
		if !set && !owned && e.inherits(kv[:i]) {
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
	if value, ok := e.with[name]; ok || !e.inherits(name) {
		return value
	}
	return os.Getenv(name)
}

func (e Env) inherits(name string) bool {
	switch kind := kindOf(name); {
	case e.without[name], kind.terminal, name == markName:
		return false
	case e.from == everything:
		return true
	case e.from == safe:
		return !kind.secret
	default:
		return kind.minimal || matches(e.keep, strings.ToUpper(name))
	}
}

// A nameKind is what the name of a variable says about it.
type nameKind struct{ minimal, secret, terminal bool }

// nameKinds remembers them: names are few and the same at every start, and to
// match one with all patterns takes a microsecond.
var nameKinds sync.Map

func kindOf(name string) nameKind {
	if kind, ok := nameKinds.Load(name); ok {
		return kind.(nameKind)
	}
	upper := strings.ToUpper(name)
	kind := nameKind{matches(minimalNames, upper), matches(secretNames, upper), matches(terminalNames, upper)}
	nameKinds.Store(strings.Clone(name), kind)
	return kind
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		core, anyPrefix := strings.CutPrefix(pattern, "*")
		core, anySuffix := strings.CutSuffix(core, "*")
		switch {
		case anyPrefix && anySuffix:
			return strings.Contains(name, core)
		case anyPrefix:
			return strings.HasSuffix(name, core)
		case anySuffix:
			return strings.HasPrefix(name, core)
		}
		return name == core
	})
}

// Env returns the environment that fits the trust in the class:
//
//	shell, user hook, evolve        InheritSafe
//	memory git                      minimal, SSH_AUTH_SOCK and GIT_*
//	plugins, workspace tools        minimal
func (c Class) Env() Env {
	switch c {
	case ClassShell, ClassUserHook, ClassEvolve:
		return Env{}.InheritSafe()
	case ClassMemoryGit:
		return Env{keep: []string{"SSH_AUTH_SOCK", "GIT_*"}}
	}
	return Env{}
}

// Explicit returns a copy of the variables that With has set: what an Executor
// for another place passes on, where the agent's own environment means nothing.
func (e Env) Explicit() map[string]string { return maps.Clone(e.with) }
