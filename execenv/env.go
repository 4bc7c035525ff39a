package execenv

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
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
	vars := e.vars()
	list := make([]string, 0, len(vars)+4)
	for name, value := range vars {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

func (e Env) vars() map[string]string {
	agent := os.Environ()
	vars := make(map[string]string, len(agent)+len(e.with))
	for _, kv := range agent {
		// A name may begin with '=' on Windows.
		if i := strings.IndexByte(kv[min(1, len(kv)):], '='); i >= 0 && e.inherits(kv[:i+1]) {
			vars[kv[:i+1]] = kv[i+2:]
		}
	}
	maps.Copy(vars, e.with)
	if cmp.Or(vars["LC_ALL"], vars["LC_CTYPE"], vars["LANG"]) == "" && !e.without["LANG"] {
		vars["LANG"] = defaultLang
	}
	return vars
}

func (e Env) inherits(name string) bool {
	upper := strings.ToUpper(name)
	switch {
	case e.without[name], matches(terminalNames, upper), name == markName:
		return false
	case e.from == everything:
		return true
	case e.from == safe:
		return !matches(secretNames, upper)
	}
	return matches(minimalNames, upper) || matches(e.keep, upper)
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
