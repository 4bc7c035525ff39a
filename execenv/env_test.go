package execenv_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/termbridge/termbridge/execenv"
)

// agentEnv makes vars the whole environment of the agent.
func agentEnv(t *testing.T, vars ...string) {
	t.Helper()
	for _, kv := range slices.Concat(execenv.Env{}.Inherit().Environ(), []string{"LANG=", "COLORTERM=", "COLUMNS=", "LINES=", "TMUX="}) {
		name, _, _ := strings.Cut(kv, "=")
		t.Setenv(name, "") // so that it is put back
		unsetenv(t, name)
	}
	for _, kv := range vars {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
}

func TestEnv(t *testing.T) {
	agentEnv(t, "PATH=/bin", "HOME=/home/u", "LC_TIME=C", "LANG=en_US.UTF-8", "EDITOR=vi",
		"OPENAI_API_KEY=s", "github_token=s", "DB_PASSWORD=s", "MY_SECRETS=s", "AWS_ACCESS_KEY_ID=s", "MYSQL_PWD=s", "SENTRY_DSN=s", "TOKEN=s",
		"OLDPWD=/", "PWD=/", "TOKENIZERS_PARALLELISM=1", "KEYBOARD=us", "SSH_AUTH_SOCK=/s", "GIT_AUTHOR_NAME=n",
		"TMUX=1", "STY=1", "WINDOWID=1", "COLUMNS=1", "LINES=1", "TERM_PROGRAM=x", "KITTY_PID=1", "TERMBRIDGE_ID=outer.1,")

	basics := []string{"HOME=/home/u", "LANG=en_US.UTF-8", "LC_TIME=C", "PATH=/bin"}
	harmless := append([]string{"EDITOR=vi", "GIT_AUTHOR_NAME=n", "KEYBOARD=us", "OLDPWD=/", "PWD=/", "SSH_AUTH_SOCK=/s", "TOKENIZERS_PARALLELISM=1"}, basics...)
	secrets := []string{"AWS_ACCESS_KEY_ID=s", "DB_PASSWORD=s", "MYSQL_PWD=s", "MY_SECRETS=s", "OPENAI_API_KEY=s", "SENTRY_DSN=s", "TOKEN=s", "github_token=s"}
	x := map[string]string{"X": "1", "HOME": "/x"}
	for _, c := range []struct {
		name string
		env  execenv.Env
		want []string
	}{
		{"the zero value is minimal", execenv.Env{}, basics},
		{"InheritSafe leaves out secrets by name, and what describes the agent's terminal", execenv.Env{}.InheritSafe(), harmless},
		{"Inherit has the secrets too", execenv.Env{}.Inherit(), append(secrets, harmless...)},
		{"With wins over what is inherited", execenv.Env{}.With(x), []string{"HOME=/x", "LANG=en_US.UTF-8", "LC_TIME=C", "PATH=/bin", "X=1"}},
		{"With may set a secret", execenv.Env{}.With(map[string]string{"A_TOKEN": "t"}), append([]string{"A_TOKEN=t"}, basics...)},
		{"Without takes away what is inherited and what was set", execenv.Env{}.With(x).Without("X", "HOME", "LC_TIME"), []string{"LANG=en_US.UTF-8", "PATH=/bin"}},
		{"the last of With and Without counts", execenv.Env{}.Without("X", "HOME").With(x).Without("PATH", "LC_TIME"), []string{"HOME=/x", "LANG=en_US.UTF-8", "X=1"}},
		{"the order of Inherit and With does not count", execenv.Env{}.With(map[string]string{"EDITOR": "ed"}).InheritSafe(), append([]string{"EDITOR=ed"}, harmless[1:]...)},
		{"a plugin gets the minimum", execenv.ClassPluginMCP.Env(), basics},
		{"so does a tool on the workspace", execenv.ClassWorkspaceTool.Env(), basics},
		{"a shell gets all but secrets", execenv.ClassShell.Env(), harmless},
		{"so does a hook of the user", execenv.ClassUserHook.Env(), harmless},
		{"and what was evolved", execenv.ClassEvolve.Env(), harmless},
		{"unless that is what is asked for", execenv.ClassShell.Env().Inherit(), append(secrets, harmless...)},
		{"git on the memory gets what git and ssh need", execenv.ClassMemoryGit.Env(), append([]string{"SSH_AUTH_SOCK=/s", "GIT_AUTHOR_NAME=n"}, basics...)},
	} {
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, c.env.Environ()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestEnvIsAValue(t *testing.T) {
	a := execenv.Env{}.With(map[string]string{"A": "1"})
	b := a.With(map[string]string{"A": "2"})
	c := a.Without("A")
	for _, e := range []struct {
		env  execenv.Env
		want bool
	}{{a, true}, {b, false}, {c, false}} {
		if got := slices.Contains(e.env.Environ(), "A=1"); got != e.want {
			t.Errorf("a changed copy changed the original: A=1 is there: %v, want %v", got, e.want)
		}
	}
}

func TestEnvDefaultLocale(t *testing.T) {
	agentEnv(t, "PATH=/bin")
	if got, want := (execenv.Env{}).Environ(), []string{"LANG=C.UTF-8", "PATH=/bin"}; !slices.Equal(got, want) {
		t.Errorf("without a locale: got %q, want %q", got, want)
	}
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	if got, want := (execenv.Env{}).Environ(), []string{"LC_ALL=de_DE.UTF-8", "PATH=/bin"}; !slices.Equal(got, want) {
		t.Errorf("a locale stays: got %q, want %q", got, want)
	}
}
